//! The steps of the relocation of a block group, outside of commits.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use userbtrfs_format::Logical;
use userbtrfs_sync::Arc;
use userbtrfs_volume::Range as VolumeRange;

use super::{CopiedExtent, Outcome, PendingRelocation, Request, data_extents};
use crate::checksums;
use crate::commit::{CommitTrigger, Committer, Handle, HandleKind};
use crate::context::TransactionContext;
use crate::error::{Error, Result};
use crate::space::SpaceKind;
use crate::space::file_data::FileData;
use crate::space::flush::SpaceReserver;
use crate::units::SECTOR;

/// The most bytes that are copied at a time.
const PIECE: u64 = 1 << 20;
/// The number of times that data being written is waited for, and the time between.
const SETTLING: usize = 200;
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);
/// The number of commits until a group whose content was moved is removed.
const REMOVALS: usize = 4;

/// Relocates block groups.
pub(crate) struct GroupRelocator<'a> {
    pub(crate) context: &'a TransactionContext,
    pub(crate) committer: &'a Committer,
    pub(crate) file_data: &'a FileData,
    pub(crate) reserver: &'a SpaceReserver,
    pub(crate) pending: &'a PendingRelocation,
}

impl GroupRelocator<'_> {
    /// Moves all that is in a block group elsewhere, and removes the group. The caller is in no
    /// transaction, and has written all data of files. If it fails, the group can be used again.
    pub(crate) fn relocate(&self, start: Logical) -> Result<()> {
        let space = &self.context.space;
        self.freeze(start)?;
        let done = self.move_content(start).and_then(|()| self.remove(start));
        if done.is_err() {
            space.unfreeze(start);
        }
        done
    }

    fn freeze(&self, start: Logical) -> Result<()> {
        let space = &self.context.space;
        let Some((kind, _)) = space.kind_and_len(start) else { return Ok(()) };
        while !space.freeze(start) {
            let _no_commit = Handle::join(self.context, HandleKind::Operation)?;
            let is_loaded = space.load_next(&self.context.tree_roots, kind)?;
            if !is_loaded && !space.make_chunk_of(kind) {
                return Err(Error::NoSpace);
            }
        }
        if kind == SpaceKind::System && !space.has_system_blocks() {
            let _no_commit = Handle::join(self.context, HandleKind::Operation)?;
            if !space.make_chunk_of(kind) {
                space.unfreeze(start);
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }

    fn move_content(&self, start: Logical) -> Result<()> {
        let space = &self.context.space;
        let Some((_, len)) = space.kind_and_len(start) else { return Ok(()) };
        let range = start.0..start.0 + len;
        let _not_in_place = space.exclude_nocow_in(range.clone());
        self.settle(start)?;
        let data = self.copy_data(&range)?;
        self.pending.0.lock().request = Some(Request { range, data: data.clone() });
        self.committer.commit(CommitTrigger::Asked)?;
        let outcome = self.pending.0.lock().outcome.take();
        match outcome.expect("the commit made the relocation") {
            Outcome::Moved { unused } => {
                self.give_back(&unused);
                Ok(())
            }
            Outcome::Refused(error) => {
                self.give_back(&data);
                Err(error)
            }
        }
    }

    /// Commits until the extent tree lists all that is allocated in the group: data that was being
    /// written when it was frozen, too.
    fn settle(&self, start: Logical) -> Result<()> {
        for _ in 0..SETTLING {
            self.committer.commit(CommitTrigger::Asked)?;
            if self.context.space.is_all_counted(start) {
                return Ok(());
            }
            thread::sleep(SETTLE_INTERVAL);
        }
        Err(Error::NotRelocated("data is being written"))
    }

    fn give_back(&self, copies: &[CopiedExtent]) {
        for copy in copies {
            self.file_data.give_back(copy.to, copy.len);
        }
    }

    /// Copies all data in a range.
    fn copy_data(&self, range: &Range<u64>) -> Result<Vec<CopiedExtent>> {
        let extents = {
            let _no_commit = Handle::join(self.context, HandleKind::Operation)?;
            data_extents(self.context, range)?
        };
        let bytes = extents.iter().map(|(_, len)| len).sum();
        let _reservation = self.reserver.reserve_data(bytes)?;
        let mut copies = Vec::new();
        for (from, len) in extents {
            let copied = self.file_data.allocate(len, len).and_then(|(to, _)| {
                copies.push(CopiedExtent { from, to, len });
                self.copy(from, to, len)
            });
            if let Err(error) = copied {
                self.give_back(&copies);
                return Err(error);
            }
        }
        Ok(copies)
    }

    fn copy(&self, from: Logical, to: Logical, len: u64) -> Result<()> {
        let mut done = 0;
        while done < len {
            let piece = PIECE.min(len - done);
            let bytes = self.read(Logical(from.0 + done), piece)?;
            let written = [(Logical(to.0 + done), Arc::new(bytes))];
            self.context.volume().write_blocks(written)?;
            done += piece;
        }
        Ok(())
    }

    /// Reads data from a copy that fits its checksums.
    fn read(&self, logical: Logical, len: u64) -> Result<userbtrfs_device::Buffer> {
        let volume = self.context.volume();
        let runs = {
            let _no_commit = Handle::join(self.context, HandleKind::Operation)?;
            checksums::runs(&self.context.tree_roots, logical, len)?
        };
        let range = VolumeRange { logical, len: usize::try_from(len).expect("a piece is short") };
        let kind = volume.geometry().checksum_kind;
        let is_good = |bytes: &[u8]| {
            runs.iter().all(|(&at, stored)| {
                let first = usize::try_from(at - logical.0).expect("it is in the piece");
                let sectors = bytes[first..].chunks(usize::try_from(SECTOR).expect("4 KiB"));
                let mut pairs = sectors.zip(stored.chunks(kind.size()));
                pairs.all(|(sector, sum)| kind.compute(sector).as_bytes() == sum)
            })
        };
        let mut copy = 0;
        while let Some(bytes) = volume.read(range, copy)? {
            if is_good(&bytes) {
                return Ok(bytes);
            }
            copy += 1;
        }
        Err(Error::NotRelocated("data does not fit its checksums"))
    }

    /// Removes a group that has no content any more, and waits until its space is free.
    fn remove(&self, start: Logical) -> Result<()> {
        let space = &self.context.space;
        for _ in 0..REMOVALS {
            if !space.has(start) && !space.has_groups_being_removed() {
                return Ok(());
            }
            self.committer.commit_for_space()?;
        }
        Err(Error::NotRelocated("the block group is still in use"))
    }
}
