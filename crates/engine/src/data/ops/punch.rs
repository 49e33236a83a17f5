//! Removes extents from a range of a file.
//!
//! 1. A range is removed in steps, each in a transaction of its own.
//! 2. All of a step that can fail is done before anything changes.

use std::ops::Range;

use userbtrfs_sync::Arc;
use userbtrfs_transaction::HandleKind;

use crate::data::cache::dirty::Delta;
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::reservation::{CUT_ITEMS, DelallocReserved};
use crate::data::read::get_extent::ExtentMaps;
use crate::data::units::Times;
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::write_extent::difference;
use crate::error::Result;
use crate::inode::ExtentMapKind;
use crate::inode::ops;

/// Makes holes of the `wanted` segments in a range of whole sectors, and drops all of the range
/// from the page cache. The caller holds the operation lock.
pub(in crate::data) fn remove(
    context: &WriteContext,
    pages: &Arc<FilePages>,
    range: Range<u64>,
    times: Times,
    wanted: impl Fn(&ExtentMapKind) -> bool,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        // A hole in the middle of a dirty run makes two runs of it. Space for both is reserved
        // at once: a thread that waits for space holds none.
        let (mut reservation, most) = ops::reserve_step(&context.nodes, pages.inode(), CUT_ITEMS)?;
        let cut = reservation.split(context.costs.of_a_cut());
        let _one = pages.writeback.lock();
        let _range = pages.range.lock_exclusive(at..range.end);
        let rest = at..range.end;
        let (holes, bytes, end) = removable(context, pages, rest, most, &wanted)?;
        let mut dropped = Delta::default();
        ops::change_file(
            &context.nodes,
            pages.inode(),
            HandleKind::Operation,
            Some(reservation),
            |change| {
                for hole in &holes {
                    change.put(hole.start, hole.end, ExtentMapKind::Hole, false);
                }
                change.add_bytes(difference(0, bytes));
                times.touch(change);
                dropped = pages.discard(at, end);
                pages.advance_size(change, 0);
            },
        )?;
        let cut = DelallocReserved { data: None, metadata: Some(cut) };
        pages.account.settle(cut, dropped, context.costs);
        at = end;
    }
    Ok(())
}

/// Finds the `wanted` segments among the first `most` of a range. Returns their ranges, the
/// bytes that the file counts for them, and the end of the segments that were looked at.
fn removable(
    context: &WriteContext,
    pages: &FilePages,
    range: Range<u64>,
    most: usize,
    wanted: impl Fn(&ExtentMapKind) -> bool,
) -> Result<(Vec<Range<u64>>, u64, u64)> {
    let source = pages.backing_extents();
    let mut segments = ExtentMaps::new(context.tree_roots(), &source, range.start, range.end);
    let mut holes: Vec<Range<u64>> = Vec::new();
    let mut bytes = 0;
    let mut end = range.start;
    for _ in 0..most {
        let Some(segment) = segments.next()? else { break };
        end = segment.end;
        if matches!(segment.kind, ExtentMapKind::Hole) || !wanted(&segment.kind) {
            continue;
        }
        bytes += segment.counted_bytes();
        match holes.last_mut() {
            Some(last) if last.end == segment.start => last.end = segment.end,
            _ => holes.push(segment.start..segment.end),
        }
    }
    Ok((holes, bytes, end))
}
