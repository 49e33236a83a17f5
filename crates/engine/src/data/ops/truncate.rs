//! Truncation: files that become longer or shorter, and extents that are dropped.
//!
//! 1. A file is cut in bounded steps, each in a transaction that may be a later one: from its end
//!    backwards, so that after a crash it is as long as it has data for.
//! 2. Callers see the new size at once. Until the last step the size on disk is larger.
//! 3. All of a step that can fail is done before anything changes: extents stay until they are
//!    dropped.
//! 4. The last sector is written again after a cut, with zeros beyond the end: so the old bytes do
//!    not reappear if a later write fails. But a cut must not need space: if there is none, the old
//!    bytes stay on disk, hidden by the size, and extending the file zeros them
//!    ([`settle_end`](crate::data::ops::extend::settle_end)).

use userbtrfs_sync::Arc;
use userbtrfs_transaction::HandleKind;

use crate::data::cache::dirty::Delta;
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::reservation::DelallocReserved;
use crate::data::ops::delalloc::Delalloc;
use crate::data::ops::extend::{grow, redirty_end};
use crate::data::ops::file_ops::FileOps;
use crate::data::read::get_extent::ExtentMaps;
use crate::data::units::{SIZE_MAX, Times};
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::nocow::inline_fits;
use crate::data::writeback::write_extent::difference;
use crate::error::{Error, Result};
use crate::inode::ops;
use crate::inode::{ExtentMapKind, InlineData};
use crate::units::{SECTOR, sector_end, sector_start};

/// The rest of a truncated inline file: its bytes, and how many there were before.
type ShortInline = Option<(Arc<[u8]>, u64)>;

impl FileOps {
    /// Sets the size of a file: drops bytes at its end, or adds zeros.
    pub(crate) fn set_len(&self, pages: &Arc<FilePages>, size: u64) -> Result<()> {
        self.context.transactions.check()?;
        if size > SIZE_MAX {
            return Err(Error::FileTooLarge);
        }
        let _operation = pages.inode().lock_operation();
        if size < pages.size() {
            shrink(&self.delalloc, pages, size)
        } else {
            grow(&self.delalloc, pages, size, Times::Now)
        }
    }
}

/// Truncates a file. The caller holds the operation lock.
pub(in crate::data) fn shrink(
    delalloc: &Delalloc,
    pages: &Arc<FilePages>,
    size: u64,
) -> Result<()> {
    let cut = cut(&delalloc.context, pages, size);
    // If this fails (there is no space, the sector is damaged), extending the file does it.
    let _left = zero_tail(delalloc, pages, size);
    cut
}

/// Zeros the last sector beyond the end of a file.
fn zero_tail(delalloc: &Delalloc, pages: &Arc<FilePages>, size: u64) -> Result<()> {
    let last = sector_start(size);
    let end = sector_end(size);
    if last < end && delalloc.context.holds_data(pages, last..end)? {
        redirty_end(delalloc, pages, size)?;
    }
    Ok(())
}

fn cut(context: &WriteContext, pages: &Arc<FilePages>, size: u64) -> Result<()> {
    let mut done = shrink_step(context, pages, size, true)?;
    while !done {
        // Move the change into the tree, so that the next step finds other extents there.
        let merged = context.transactions.merge_most().map_err(Error::from);
        done = match merged.and_then(|()| shrink_step(context, pages, size, false)) {
            Ok(done) => done,
            Err(error) => {
                // The extents beyond the end are dropped when the file grows or is deleted.
                let inode = pages.inode();
                ops::change_file(&context.nodes, inode, HandleKind::Operation, None, |change| {
                    change.set_disk_size(change.disk_size().min(size));
                })?;
                return Err(error);
            }
        };
    }
    Ok(())
}

/// Drops the last extents of a file; the first step also truncates the page cache. Returns true
/// if no extents are left beyond the end.
fn shrink_step(
    context: &WriteContext,
    pages: &Arc<FilePages>,
    size: u64,
    first: bool,
) -> Result<bool> {
    let (reservation, most) = ops::reserve_step(&context.nodes, pages.inode(), 0)?;
    let _one = pages.writeback.lock();
    let _range = pages.range.lock_exclusive(sector_start(size)..u64::MAX);
    let inline = if first { short_inline(context, pages, size)? } else { None };
    let keep = sector_end(size);
    let start = ops::start_of_last(&context.nodes, pages.inode(), keep, most)?;
    let bytes = context.bytes_of(pages, start..u64::MAX)?;
    let mut dropped = Delta::default();
    ops::change_file(
        &context.nodes,
        pages.inode(),
        HandleKind::Operation,
        Some(reservation),
        |change| {
            if first {
                dropped = pages.truncate(size);
                change.cut_size(size);
                change.touch();
            }
            change.put(start, u64::MAX, ExtentMapKind::Hole, false);
            change.add_bytes(difference(0, bytes));
            if let Some((data, before)) = inline {
                change.add_bytes(difference(data.len() as u64, before));
                change.put(0, SECTOR, ExtentMapKind::Inline(InlineData::plain(data)), false);
            }
            let known = if start > keep { start } else { size };
            change.set_disk_size(change.disk_size().min(known));
            pages.advance_size(change, 0);
        },
    )?;
    pages.account.settle(DelallocReserved::default(), dropped, context.costs);
    Ok(start == keep)
}

/// Returns the rest of an inline file that is cut. If compressed data would become too long,
/// returns `None`: the item stays as it is, hidden by the size.
fn short_inline(context: &WriteContext, pages: &Arc<FilePages>, size: u64) -> Result<ShortInline> {
    if size == 0 || size > inline_fits(context) {
        return Ok(None);
    }
    let source = pages.backing_extents();
    let tree_roots = context.tree_roots();
    let first = ExtentMaps::new(tree_roots, &source, 0, SECTOR).next()?.map(|first| first.kind);
    let Some(ExtentMapKind::Inline(data)) = first else { return Ok(None) };
    // The file may have grown in memory: then it will not stay inline.
    if size >= data.ram_bytes() {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(size).expect("below a sector")];
    pages.read_locked(tree_roots, 0, &mut bytes)?;
    Ok(Some((bytes.into(), data.ram_bytes())))
}
