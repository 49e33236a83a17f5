//! Direct I/O: writes a caller's buffer to the device before the call returns, bypassing the page
//! cache.
//!
//! 1. The buffer is shared, so the caller cannot change it: checksum and device see the same bytes.
//! 2. The cached data of the range is dropped when the write is done, and stays if it failed.
//! 3. A direct write holds the range over the I/O: readers see all of it or nothing, sector by
//!    sector.

use smallvec::smallvec;
use userbtrfs_device::{Buffer, Slice};
use userbtrfs_sync::Arc;

use crate::data::cache::dirty::{Delta, DirtyRun};
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::reservation::{CUT_ITEMS, DelallocReserved, SpaceNeeded};
use crate::data::ops::delalloc::{Delalloc, MayExtend};
use crate::data::ops::extend::settle_end;
use crate::data::ops::file_ops::FileOps;
use crate::data::units::{EXTENT_MAX, Times, end_of};
use crate::data::writeback::batch::{FileJob, Origin, WritebackBatch};
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::nocow::{may_be_in_place, targets_in_extents};
use crate::error::{Error, Result};
use crate::units::{SECTOR, sector_end, sector_start};

impl FileOps {
    /// Writes a buffer of whole sectors at a sector boundary, and waits.
    pub(crate) fn write_direct(
        &self,
        pages: &Arc<FilePages>,
        buffer: &Arc<Buffer>,
        offset: u64,
    ) -> Result<()> {
        self.context.transactions.check()?;
        let len = buffer.len() as u64;
        if !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return Err(Error::Invalid("direct I/O that is not of whole sectors"));
        }
        if len == 0 {
            return Ok(());
        }
        let end = end_of(offset, len)?;
        let _operation = pages.inode().lock_operation();
        let _growing = settle_end(&self.delalloc, pages, offset)?;
        let sectors = i64::try_from(len / SECTOR).expect("of data in memory");
        let need = with_a_cut(self.context.costs.need(Delta { sectors, runs: 1 }));
        match self.delalloc.reserve_need(need) {
            Ok(reserved) => {
                let bytes = Slice::from(Arc::clone(buffer));
                let _one = pages.writeback.lock();
                let _range = pages.range.lock_exclusive(offset..end);
                let origin = Origin::Caller { end, times: Times::Now };
                transfer(&self.context, pages, &bytes, offset, origin, reserved)
            }
            Err(Error::NoSpace) => {
                let growth = MayExtend::Allowed;
                if write_through(&self.delalloc, pages, offset, buffer, growth, Times::Now)? {
                    Ok(())
                } else {
                    Err(Error::NoSpace)
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// Writes bytes in place, at once, if all of them can be: used when no space is left. Returns
/// true if it did. The caller holds no lock but the operation lock, which it holds if the file
/// may grow.
pub(in crate::data) fn write_through(
    delalloc: &Delalloc,
    pages: &Arc<FilePages>,
    at: u64,
    bytes: &[u8],
    growth: MayExtend,
    times: Times,
) -> Result<bool> {
    if !may_be_in_place(&pages.inode().item()) {
        return Ok(false);
    }
    let bytes_end = at + bytes.len() as u64;
    let start = sector_start(at);
    let end = sector_end(bytes_end);
    let need = with_a_cut(delalloc.context.costs.need(Delta { sectors: 0, runs: 1 }));
    let reserved = delalloc.reserve_need(need)?;
    let _one = pages.writeback.lock();
    let _range = pages.range.lock_exclusive(start..end);
    let places = targets_in_extents(&delalloc.context, pages, &pages.inode().item(), start, end)?;
    let grows = growth == MayExtend::Refused && bytes_end > pages.size();
    if grows || places.iter().any(|(_, place)| place.is_none()) {
        return Ok(false);
    }
    let mut whole = Buffer::zeroed(usize::try_from(end - start).expect("data in memory"));
    pages.read_locked(delalloc.context.tree_roots(), start, &mut whole)?;
    let skip = usize::try_from(at - start).expect("within a sector");
    whole[skip..][..bytes.len()].copy_from_slice(bytes);
    let slice = Slice::from(whole);
    let origin = Origin::Caller { end: bytes_end, times };
    transfer(&delalloc.context, pages, &slice, start, origin, reserved)?;
    Ok(true)
}

/// Writes sectors from a caller's buffer; `reserved` includes space for a cut. The caller holds
/// the range and the writeback lock.
fn transfer(
    context: &WriteContext,
    pages: &Arc<FilePages>,
    bytes: &Slice,
    start: u64,
    origin: Origin,
    mut reserved: DelallocReserved,
) -> Result<()> {
    // The dropped sectors may be in the middle of a dirty run.
    let metadata = reserved.split_metadata(CUT_ITEMS, context.costs);
    let mut cut = DelallocReserved { data: None, metadata };
    let _claim = pages.account.claim(&mut cut, Delta::default(), context.costs);
    let mut rest =
        DirtyRun { start, end: start + bytes.len() as u64, parts: smallvec![bytes.clone()] };
    let mut runs = Vec::new();
    while rest.end - rest.start > EXTENT_MAX {
        let behind = rest.split_off(rest.start + EXTENT_MAX);
        runs.push(std::mem::replace(&mut rest, behind));
    }
    runs.push(rest);
    let mut transfer = WritebackBatch::new(context);
    let job = transfer.add(FileJob::new(pages, origin, reserved));
    let failed = transfer.run(runs.into_iter().map(|run| (job, run))).pop().flatten();
    failed.map_or(Ok(()), |failed| Err(failed.into()))
}

/// Returns the need of a write that may also cut a dirty run in two.
fn with_a_cut(need: SpaceNeeded) -> SpaceNeeded {
    SpaceNeeded { items: need.items + CUT_ITEMS, ..need }
}
