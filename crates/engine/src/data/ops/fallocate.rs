//! Space of files that is allocated ahead, and holes that are made: what `fallocate` does.
//!
//! 1. All the space is reserved before anything is allocated or zeroed. It comes in steps, each in
//!    a transaction of its own.
//! 2. Space allocated ahead reads as zeros until it is written; what is in memory stays.
//! 3. Sectors of which a part is to be zeros are written, if they hold something.

use std::ops::Range;

use userbtrfs_format::{RegularExtent, SECTOR_SIZE};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{HandleKind, Reservation};

use crate::data::ops::write::{MayExtend, Times};
use crate::data::writeback::batch::EXTENT_MAX;
use crate::data::writeback::context::{
    SECTOR, WriteContext, end_of, sector_end, sector_start, size_of,
};
use crate::data::writeback::write_extent::{difference, whole_extent};
use crate::data::{ExtentMapKind, ExtentMaps, FilePages};
use crate::error::{Error, Result};
use crate::inode::{PendingExtentKind, TreeRoots};

/// The most extents that are allocated in one step.
const STEP: usize = 64;

/// Extents that are allocated, and where each comes in its file, in bytes.
type Filling = Vec<(u64, RegularExtent)>;

/// What is done with the space of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Space is allocated where there is none; what is there stays. The file grows to the end of
    /// the range, unless its size is kept.
    Reserve {
        /// Whether the size stays, though space comes behind it.
        keep_size: bool,
    },
    /// The range becomes a hole, and reads as zeros. The size stays.
    PunchHole,
    /// The range reads as zeros, and has space.
    ZeroRange {
        /// Whether the size stays, though space comes behind it.
        keep_size: bool,
    },
}

impl WriteContext {
    /// Allocates space for a range of a file, or takes it.
    pub(crate) fn allocate(
        &self,
        contents: &Arc<FilePages>,
        offset: u64,
        len: u64,
        what: Allocate,
        times: Times,
    ) -> Result<()> {
        self.ledger.check()?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let range = offset..end_of(offset, len)?;
        let _operation = contents.inode().lock_operation();
        match what {
            Allocate::PunchHole => self.zero(contents, range, times, |_| true),
            Allocate::Reserve { keep_size } => self.preallocate(contents, range, keep_size, times),
            Allocate::ZeroRange { keep_size } => {
                let unless_prealloc =
                    |kind: &ExtentMapKind| !matches!(kind, ExtentMapKind::Prealloc(_));
                // Where there is not room enough, nothing is zeroed.
                let whole = whole_sectors(&range);
                let room = self.reserve_for_holes(contents, whole, unless_prealloc)?;
                self.zero(contents, range.clone(), times, unless_prealloc)?;
                // The holes that there are by now reserve their own.
                drop(room);
                self.preallocate(contents, range, keep_size, times)
            }
        }
    }

    /// Lets a range read as zeros; whole sectors lose what is `unwanted`.
    fn zero(
        &self,
        contents: &Arc<FilePages>,
        range: Range<u64>,
        times: Times,
        unwanted: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<()> {
        let (first, last) = (sector_end(range.start), sector_start(range.end));
        self.zero_part(contents, range.start..first.min(range.end), times)?;
        if first <= last {
            self.zero_part(contents, last..range.end, times)?;
        }
        match first < last {
            true => self.remove(contents, first..last, times, unwanted),
            false => self.grow(contents, size_of(contents), times),
        }
    }

    /// Writes zeros over a part of a sector, where that holds something.
    fn zero_part(&self, contents: &Arc<FilePages>, range: Range<u64>, times: Times) -> Result<()> {
        let (start, end) = (range.start, range.end.min(size_of(contents)));
        if start >= end {
            return Ok(());
        }
        let sector = sector_start(start)..sector_end(end);
        let dirty = !contents.unfinished(sector.start, sector.end, 1).is_empty();
        if !dirty && !self.holds_data(contents, sector)? {
            return Ok(());
        }
        let zero = |forest: &TreeRoots| contents.write_zeros(forest, start, end);
        match self.change(contents, start..end, (MayExtend::Refused, times), zero) {
            Err(Error::NoSpace) => {
                let zeros = [0; SECTOR_SIZE as usize];
                let len = usize::try_from(end - start).expect("within a sector");
                let how = (MayExtend::Allowed, times);
                match self.write_through(contents, start, &zeros[..len], how)? {
                    true => Ok(()),
                    false => Err(Error::NoSpace),
                }
            }
            done => done.map(drop),
        }
    }

    fn preallocate(
        &self,
        contents: &Arc<FilePages>,
        range: Range<u64>,
        keep_size: bool,
        times: Times,
    ) -> Result<()> {
        let size = size_of(contents);
        // Also where the size stays: inline data never has anything behind it.
        let _growing = self.settle_end(contents, range.end)?;
        let (mut at, end) = (sector_start(range.start), sector_end(range.end));
        let mut data = self.reserve_for_holes(contents, at..end, is_hole)?;
        while at < end {
            at = self.preallocate_step(contents, at..end, &mut data)?;
        }
        let size = if keep_size { size } else { size.max(range.end) };
        self.grow(contents, size, times)
    }

    /// Allocates space for the first holes of a range; gives where it is done.
    fn preallocate_step(
        &self,
        contents: &Arc<FilePages>,
        range: Range<u64>,
        data: &mut Option<Reservation>,
    ) -> Result<u64> {
        let metadata = self.nodes.reserve(2)?;
        let _one = contents.writeback.lock();
        let (extents, done) = self.fill_holes(contents, range, data)?;
        if extents.is_empty() {
            return Ok(done);
        }
        let changed = self.nodes.change_file(
            contents.inode(),
            HandleKind::Operation,
            Some(metadata),
            |change| {
                change.set_preallocated();
                for (start, extent) in &extents {
                    let end = start + extent.bytes;
                    change.put(*start, end, PendingExtentKind::Prealloc(*extent), true);
                    change.add_bytes(difference(extent.bytes, 0));
                }
            },
        );
        if changed.is_err() {
            for (_, extent) in extents {
                self.ledger.give_back_data(extent.disk, extent.disk_bytes);
            }
        }
        changed.map(|()| done)
    }

    /// Allocates extents for the first holes of a range: where they come, and up to where there
    /// are none left.
    fn fill_holes(
        &self,
        contents: &FilePages,
        range: Range<u64>,
        data: &mut Option<Reservation>,
    ) -> Result<(Filling, u64)> {
        let mut extents = Filling::new();
        match self.fill_first_holes(contents, range, data, &mut extents) {
            Ok(done) => Ok((extents, done)),
            // What was allocated until now is put into the file; the next step meets the error.
            Err(error) => match extents.last() {
                Some((start, extent)) => {
                    let done = start + extent.bytes;
                    Ok((extents, done))
                }
                None => Err(error),
            },
        }
    }

    /// The same, into what is there already when it fails.
    fn fill_first_holes(
        &self,
        contents: &FilePages,
        range: Range<u64>,
        data: &mut Option<Reservation>,
        extents: &mut Filling,
    ) -> Result<u64> {
        let source = contents.beneath();
        let mut segments = ExtentMaps::new(self.nodes.forest(), &source, range.start, range.end);
        while let Some(segment) = segments.next()? {
            if !matches!(segment.kind, ExtentMapKind::Hole) {
                continue;
            }
            let mut at = segment.start;
            while at < segment.end {
                if extents.len() == STEP {
                    return Ok(at);
                }
                let wanted = (segment.end - at).min(EXTENT_MAX);
                let (disk, bytes) = self.ledger.allocate_data(wanted, SECTOR)?;
                if let Some(data) = data {
                    data.shrink(bytes);
                }
                extents.push((at, whole_extent(disk, bytes)));
                at += bytes;
            }
        }
        Ok(range.end)
    }

    /// Reserves room for the holes of a range, and for what is to be one. No lock is held but the
    /// file's operation lock.
    fn reserve_for_holes(
        &self,
        contents: &Arc<FilePages>,
        range: Range<u64>,
        becomes_hole: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<Option<Reservation>> {
        let bytes = || self.bytes_of_holes(contents, range.clone(), &becomes_hole);
        match self.reserve_bytes(bytes()?) {
            // What is dirty has its space already, and is no hole once it is written.
            Err(Error::NoSpace) => {
                self.write_back(contents)?;
                self.reserve_bytes(bytes()?)
            }
            reserved => reserved,
        }
    }

    fn bytes_of_holes(
        &self,
        contents: &FilePages,
        range: Range<u64>,
        becomes_hole: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<u64> {
        let source = contents.beneath();
        let mut segments = ExtentMaps::new(self.nodes.forest(), &source, range.start, range.end);
        let mut bytes = 0;
        while let Some(segment) = segments.next()? {
            if becomes_hole(&segment.kind) {
                bytes += segment.end - segment.start;
            }
        }
        Ok(bytes)
    }
}

fn is_hole(kind: &ExtentMapKind) -> bool {
    matches!(kind, ExtentMapKind::Hole)
}

/// The sectors that are in a range as a whole.
fn whole_sectors(range: &Range<u64>) -> Range<u64> {
    let start = sector_end(range.start);
    start..sector_start(range.end).max(start)
}
