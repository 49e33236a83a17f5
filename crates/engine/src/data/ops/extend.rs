//! Extends files: what is between the old end and new bytes reads as zeros, whatever is on disk.

use userbtrfs_sync::Arc;
use userbtrfs_transaction::{HandleKind, Reservation};

use crate::data::cache::file_pages::{ExtendGuard, FilePages};
use crate::data::ops::delalloc::{Delalloc, MayExtend};
use crate::data::ops::punch::remove;
use crate::data::units::Times;
use crate::data::writeback::context::WriteContext;
use crate::error::Result;
use crate::inode::ops;
use crate::inode::{ExtentMapKind, TreeRoots};
use crate::units::{SECTOR, sector_end, sector_start};

/// Prepares a file for growing to `to` bytes or beyond: the range from its end to there reads
/// as zeros. The caller holds the operation lock, and keeps the guard until the file has grown.
pub(in crate::data) fn settle_end<'a>(
    delalloc: &Delalloc,
    pages: &'a Arc<FilePages>,
    to: u64,
) -> Result<Option<ExtendGuard<'a>>> {
    let size = pages.size();
    if to <= size {
        return Ok(None);
    }
    let growing = pages.grow();
    let last = sector_start(size);
    let end = sector_end(size);
    // The bytes on disk beyond the end of a file may be anything, and inline data has no
    // extents behind it: nor has data in flight that becomes inline, and lands before this.
    let may_be_inline = || size < SECTOR && pages.unfinished_from(0) == Some(0);
    if last < end && (may_be_inline() || delalloc.context.holds_data(pages, last..end)?) {
        redirty_end(delalloc, pages, size)?;
    }
    if end < to && delalloc.context.holds_data(pages, end..sector_end(to))? {
        remove(&delalloc.context, pages, end..sector_end(to), Times::Kept, |kind| {
            !matches!(kind, ExtentMapKind::Prealloc(_))
        })?;
    }
    Ok(Some(growing))
}

/// Makes the last sector of a file dirty, with zeros beyond the end. The caller holds the
/// operation lock.
pub(in crate::data) fn redirty_end(
    delalloc: &Delalloc,
    pages: &Arc<FilePages>,
    size: u64,
) -> Result<()> {
    let last = sector_start(size);
    let end = sector_end(size);
    let redirty = |tree_roots: &TreeRoots| pages.redirty(tree_roots, last, end);
    delalloc.change(pages, last..size, MayExtend::Refused, Times::Kept, redirty)?;
    Ok(())
}

/// Extends a file, or only updates its times. The caller holds the operation lock.
pub(in crate::data) fn grow(
    delalloc: &Delalloc,
    pages: &Arc<FilePages>,
    size: u64,
    times: Times,
) -> Result<()> {
    let _growing = settle_end(delalloc, pages, size)?;
    let reservation = delalloc.context.nodes.reserve(1)?;
    grow_with(&delalloc.context, pages, size, times, reservation)
}

/// Extends a file, or only updates its times, with space reserved for the inode. The caller
/// holds the operation lock, and has called `settle_end`.
pub(in crate::data) fn grow_with(
    context: &WriteContext,
    pages: &Arc<FilePages>,
    size: u64,
    times: Times,
    reservation: Reservation,
) -> Result<()> {
    let inode = pages.inode();
    ops::change_file(&context.nodes, inode, HandleKind::Operation, Some(reservation), |change| {
        change.set_size(size.max(change.size()));
        times.touch(change);
        pages.advance_size(change, 0);
    })
}
