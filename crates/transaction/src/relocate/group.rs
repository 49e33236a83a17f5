//! The steps of the relocation of a block group, outside of commits.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use userbtrfs_format::Logical;
use userbtrfs_sync::Arc;
use userbtrfs_volume::{Range as VolumeRange, ReadError};

use super::{CopiedExtent, Outcome, PART_EXTENTS, Part, PendingRelocation, Request};
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
    /// transaction, and has written all data of files. If it fails, the group can be used again,
    /// and the rest of its content is where it was.
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
        if kind == SpaceKind::System && !space.has_system_blocks(0) {
            let _no_commit = Handle::join(self.context, HandleKind::Operation)?;
            if !space.make_chunk_of(kind) {
                space.unfreeze(start);
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }

    /// Moves all that is in a group, part by part.
    fn move_content(&self, start: Logical) -> Result<()> {
        let space = &self.context.space;
        let Some((_, len)) = space.kind_and_len(start) else { return Ok(()) };
        let end = start.0 + len;
        let _not_in_place = space.exclude_nocow_in(start.0..end);
        self.settle(start)?;
        let mut at = start.0;
        let mut most = PART_EXTENTS;
        while let Some(part) = self.first_part(at..end, most)? {
            match self.move_part(&part)? {
                Outcome::Moved { .. } => {
                    at = part.range.end;
                    most = (2 * most).min(PART_EXTENTS);
                }
                Outcome::TooLarge => most = part.count / 2,
                // Less may fit.
                Outcome::Refused(Error::NoSpace) if part.count > 1 => most = part.count / 2,
                Outcome::Refused(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn first_part(&self, range: Range<u64>, most: usize) -> Result<Option<Part>> {
        let _no_commit = Handle::join(self.context, HandleKind::Operation)?;
        Part::first(self.context, &range, most)
    }

    /// Moves a part, and counts what is moved.
    fn move_part(&self, part: &Part) -> Result<Outcome> {
        let before = self.pending.stats();
        let outcome = self.copy_and_move(part);
        let stats = &mut self.pending.state.lock().stats;
        if let Ok(Outcome::Moved { .. }) = outcome {
            stats.add_moved(part.blocks() * u64::from(self.context.nodesize()));
        } else {
            // The data that was copied is to be moved again.
            *stats = before;
        }
        outcome
    }

    /// Copies the data of a part, and moves all references to the part by a commit.
    fn copy_and_move(&self, part: &Part) -> Result<Outcome> {
        let data = self.copy_data(&part.data)?;
        // One extent is moved however many refer to it.
        let bounded = part.count > 1;
        let memory_max = if bounded { self.context.options.dirty_max } else { usize::MAX };
        let request = Request { range: part.range.clone(), data: data.clone(), memory_max };
        let generation = {
            let handle = Handle::join(self.context, HandleKind::Operation)?;
            self.pending.state.lock().request = Some(request);
            handle.generation()
        };
        self.committer.commit_generation(generation, CommitTrigger::Asked)?;
        let outcome = self.pending.state.lock().outcome.take();
        let outcome = outcome.expect("the commit of this transaction makes the relocation");
        match &outcome {
            Outcome::Moved { unused } => self.give_back(unused),
            Outcome::TooLarge | Outcome::Refused(_) => self.give_back(&data),
        }
        Ok(outcome)
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

    /// Copies extents of data.
    fn copy_data(&self, extents: &[(Logical, u64)]) -> Result<Vec<CopiedExtent>> {
        let bytes = extents.iter().map(|(_, len)| len).sum();
        let mut reservation = self.reserver.reserve_data(bytes)?;
        let mut copies = Vec::new();
        for &(from, len) in extents {
            let copied = self.file_data.allocate(len, len).and_then(|(to, _)| {
                reservation.shrink(len);
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
            self.pending.state.lock().stats.add_moved(piece);
            done += piece;
        }
        Ok(())
    }

    /// Reads data that fits its checksums.
    fn read(&self, logical: Logical, len: u64) -> Result<userbtrfs_device::Buffer> {
        let mut sums = self.checksums(logical, len)?;
        loop {
            if let Some(bytes) = self.read_with(&sums, logical, len)? {
                return Ok(bytes);
            }
            // What is freed meanwhile may be discarded, and has no checksums any more.
            let now = self.checksums(logical, len)?;
            if now == sums {
                let why = "data cannot be read, or does not fit its checksums";
                return Err(Error::NotRelocated(why));
            }
            sums = now;
        }
    }

    fn checksums(&self, logical: Logical, len: u64) -> Result<BTreeMap<u64, Vec<u8>>> {
        let _no_commit = Handle::join(self.context, HandleKind::Operation)?;
        checksums::runs(&self.context.tree_roots, logical, len)
    }

    /// Reads data from a copy that fits these checksums; returns `None` if there is none.
    fn read_with(
        &self,
        sums: &BTreeMap<u64, Vec<u8>>,
        logical: Logical,
        len: u64,
    ) -> Result<Option<userbtrfs_device::Buffer>> {
        let volume = self.context.volume();
        let range = VolumeRange { logical, len: usize::try_from(len).expect("a piece is short") };
        let kind = volume.geometry().checksum_kind;
        let is_good = |bytes: &[u8]| {
            sums.iter().all(|(&at, stored)| {
                let first = usize::try_from(at - logical.0).expect("it is in the piece");
                let sectors = bytes[first..].chunks(usize::try_from(SECTOR).expect("4 KiB"));
                let mut pairs = sectors.zip(stored.chunks(kind.size()));
                pairs.all(|(sector, sum)| kind.compute(sector).as_bytes() == sum)
            })
        };
        for copy in 0.. {
            match volume.read(range, copy) {
                Ok(Some(bytes)) if is_good(&bytes) => return Ok(Some(bytes)),
                // Another copy may be good.
                Ok(Some(_)) | Err(ReadError::Device(_)) => {}
                Ok(None) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Removes a group that has no content any more, and waits until its space is free.
    fn remove(&self, start: Logical) -> Result<()> {
        let space = &self.context.space;
        for _ in 0..REMOVALS {
            if !space.has(start) && !space.has_groups_being_removed() {
                return Ok(());
            }
            self.committer.commit_and_free()?;
        }
        Err(Error::NotRelocated("the block group is still in use"))
    }
}
