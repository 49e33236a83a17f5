//! `fallocate`: preallocates space of files, and punches holes.
//!
//! 1. All the space is reserved before anything is allocated or zeroed. It is allocated in steps,
//!    each in a transaction of its own.
//! 2. Preallocated space reads as zeros until it is written; cached data stays.
//! 3. Sectors that are to be zeroed in part are written if they hold data.

use std::ops::Range;

use userbtrfs_format::RegularExtent;
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{HandleKind, Reservation};

use crate::data::cache::file_pages::FilePages;
use crate::data::ops::delalloc::MayExtend;
use crate::data::ops::direct::write_through;
use crate::data::ops::extend::{grow_with, settle_end};
use crate::data::ops::file_ops::FileOps;
use crate::data::ops::punch::remove;
use crate::data::read::get_extent::ExtentMaps;
use crate::data::units::{EXTENT_MAX, Times, end_of};
use crate::data::writeback::write_extent::{difference, whole_extent};
use crate::error::{Error, Result};
use crate::inode::ops;
use crate::inode::{ExtentMapKind, TreeRoots};
use crate::units::{SECTOR, SECTOR_LEN, sector_end, sector_start};

/// The most extents that are allocated in one step.
const STEP: usize = 64;

/// The allocated extents, each with its offset in the file.
type Filling = Vec<(u64, RegularExtent)>;

/// The operation on the space of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Allocates space for the holes of the range. The file grows to the end of the range, unless
    /// its size is kept.
    Reserve {
        /// Whether the size stays, even if space is allocated beyond it.
        keep_size: bool,
    },
    /// Makes the range a hole, which reads as zeros. The size stays.
    PunchHole,
    /// Makes the range read as zeros, and allocates its space.
    ZeroRange {
        /// Whether the size stays, even if space is allocated beyond it.
        keep_size: bool,
    },
}

impl FileOps {
    /// Allocates or frees the space of a range of a file.
    pub(crate) fn allocate(
        &self,
        pages: &Arc<FilePages>,
        offset: u64,
        len: u64,
        what: Allocate,
        times: Times,
    ) -> Result<()> {
        self.context.transactions.check()?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let range = offset..end_of(offset, len)?;
        let _operation = pages.inode().lock_operation();
        match what {
            Allocate::PunchHole => self.zero(pages, range, times, |_| true),
            Allocate::Reserve { keep_size } => self.preallocate(pages, range, keep_size, times),
            Allocate::ZeroRange { keep_size } => {
                let unless_prealloc =
                    |kind: &ExtentMapKind| !matches!(kind, ExtentMapKind::Prealloc(_));
                // Zero nothing if there is not enough space.
                let whole = whole_sectors(&range);
                let room = self.reserve_for_holes(pages, whole, unless_prealloc)?;
                self.zero(pages, range.clone(), times, unless_prealloc)?;
                // The holes that exist by now reserve their own space.
                drop(room);
                self.preallocate(pages, range, keep_size, times)
            }
        }
    }

    /// Makes a range read as zeros; in whole sectors the `unwanted` segments become holes.
    fn zero(
        &self,
        pages: &Arc<FilePages>,
        range: Range<u64>,
        times: Times,
        unwanted: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<()> {
        let first = sector_end(range.start);
        let last = sector_start(range.end);
        self.zero_part(pages, range.start..first.min(range.end), times)?;
        if first <= last {
            self.zero_part(pages, last..range.end, times)?;
        }
        if first < last {
            return remove(&self.context, pages, first..last, times, unwanted);
        }
        // Only the inode changes. That needs no free space, so that no error follows the zeroing.
        let touched = self.context.nodes.reserve_for_removal(1)?;
        grow_with(&self.context, pages, pages.size(), times, touched)
    }

    /// Writes zeros over a part of a sector, if that holds data.
    fn zero_part(&self, pages: &Arc<FilePages>, range: Range<u64>, times: Times) -> Result<()> {
        let start = range.start;
        let end = range.end.min(pages.size());
        if start >= end {
            return Ok(());
        }
        let sector = sector_start(start)..sector_end(end);
        let dirty = !pages.unfinished(sector.start, sector.end, 1).is_empty();
        if !dirty && !self.context.holds_data(pages, sector)? {
            return Ok(());
        }
        let zero = |tree_roots: &TreeRoots| pages.write_zeros(tree_roots, start, end);
        match self.delalloc.change(pages, start..end, MayExtend::Refused, times, zero) {
            Err(Error::NoSpace) => {
                let zeros = [0; SECTOR_LEN];
                let len = usize::try_from(end - start).expect("within a sector");
                let growth = MayExtend::Allowed;
                if write_through(&self.delalloc, pages, start, &zeros[..len], growth, times)? {
                    Ok(())
                } else {
                    Err(Error::NoSpace)
                }
            }
            done => done.map(drop),
        }
    }

    fn preallocate(
        &self,
        pages: &Arc<FilePages>,
        range: Range<u64>,
        keep_size: bool,
        times: Times,
    ) -> Result<()> {
        let size = pages.size();
        // Also if the size stays: a file with inline data has no extents behind it.
        let _growing = settle_end(&self.delalloc, pages, range.end)?;
        let mut at = sector_start(range.start);
        let end = sector_end(range.end);
        let mut data = self.reserve_for_holes(pages, at..end, is_hole)?;
        let grown = self.context.nodes.reserve(1)?;
        while at < end {
            at = self.preallocate_step(pages, at..end, &mut data)?;
        }
        let size = if keep_size { size } else { size.max(range.end) };
        grow_with(&self.context, pages, size, times, grown)
    }

    /// Allocates space for the first holes of a range; returns the offset up to which it is done.
    fn preallocate_step(
        &self,
        pages: &Arc<FilePages>,
        range: Range<u64>,
        data: &mut Option<Reservation>,
    ) -> Result<u64> {
        let metadata = self.context.nodes.reserve(2)?;
        let _one = pages.writeback.lock();
        let (extents, done) = self.fill_holes(pages, range, data)?;
        if extents.is_empty() {
            return Ok(done);
        }
        let changed = ops::change_file(
            &self.context.nodes,
            pages.inode(),
            HandleKind::Operation,
            Some(metadata),
            |change| {
                change.set_preallocated();
                for (start, extent) in &extents {
                    let end = start + extent.bytes;
                    change.put(*start, end, ExtentMapKind::Prealloc(*extent), true);
                    change.add_bytes(difference(extent.bytes, 0));
                }
            },
        );
        if changed.is_err() {
            for (_, extent) in extents {
                self.context.transactions.give_back_data(extent.disk, extent.disk_bytes);
            }
        }
        changed.map(|()| done)
    }

    /// Allocates extents for the first holes of a range. Returns them with their offsets, and the
    /// offset up to which no holes are left.
    fn fill_holes(
        &self,
        pages: &FilePages,
        range: Range<u64>,
        data: &mut Option<Reservation>,
    ) -> Result<(Filling, u64)> {
        let mut extents = Filling::new();
        match self.fill_first_holes(pages, range, data, &mut extents) {
            Ok(done) => Ok((extents, done)),
            // The extents allocated until now are put into the file; the next step meets the error.
            Err(error) => match extents.last() {
                Some((start, extent)) => {
                    let done = start + extent.bytes;
                    Ok((extents, done))
                }
                None => Err(error),
            },
        }
    }

    /// Like `fill_holes`, but adds to `extents`, which keeps those allocated before an error.
    fn fill_first_holes(
        &self,
        pages: &FilePages,
        range: Range<u64>,
        data: &mut Option<Reservation>,
        extents: &mut Filling,
    ) -> Result<u64> {
        let source = pages.backing_extents();
        let mut segments =
            ExtentMaps::new(self.context.tree_roots(), &source, range.start, range.end);
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
                let (disk, bytes) = self.context.transactions.allocate_data(wanted, SECTOR)?;
                if let Some(data) = data {
                    data.shrink(bytes);
                }
                extents.push((at, whole_extent(disk, bytes)));
                at += bytes;
            }
        }
        Ok(range.end)
    }

    /// Reserves space for the holes of a range, and for segments that become holes. The caller
    /// holds no lock but the file's operation lock.
    fn reserve_for_holes(
        &self,
        pages: &Arc<FilePages>,
        range: Range<u64>,
        becomes_hole: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<Option<Reservation>> {
        let bytes = || self.bytes_of_holes(pages, range.clone(), &becomes_hole);
        match self.delalloc.reserve_bytes(bytes()?) {
            // Dirty data has its space already, and is no hole once it is written.
            Err(Error::NoSpace) => {
                self.write_back(pages)?;
                self.delalloc.reserve_bytes(bytes()?)
            }
            reserved => reserved,
        }
    }

    fn bytes_of_holes(
        &self,
        pages: &FilePages,
        range: Range<u64>,
        becomes_hole: impl Fn(&ExtentMapKind) -> bool,
    ) -> Result<u64> {
        let source = pages.backing_extents();
        let mut segments =
            ExtentMaps::new(self.context.tree_roots(), &source, range.start, range.end);
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

/// Returns the whole sectors of a range.
fn whole_sectors(range: &Range<u64>) -> Range<u64> {
    let start = sector_end(range.start);
    start..sector_start(range.end).max(start)
}
