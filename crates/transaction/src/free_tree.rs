//! The free space tree: which ranges of each block group are free.
//!
//! 1. A group's free space is stored as ranges, which do not touch each other, or as bitmaps, which
//!    together cover the group. FREE_SPACE_INFO holds the form, and the number of free runs.
//! 2. Ranges are converted to bitmaps when they take more space than bitmaps would. Bitmaps are
//!    converted to ranges when there are 100 runs less than that, so that the form does not
//!    oscillate.
//! 3. An allocated range was free before, and a freed one was not: all else is damage.
//! 4. Superblock mirrors count as free here; the allocator leaves them out.
//!
//! A group is given by its range of logical addresses, in bytes. The caller determines the group in
//! which a range lies.

mod bitmaps;
mod convert;
mod extents;
mod rebuild;
#[cfg(test)]
pub(crate) mod tests;

use std::ops::{ControlFlow, Range};

use userbtrfs_format::{FreeSpaceInfo, ItemKind, Key, TreeId};

use crate::damage::Damage;
use crate::editor::{Changes, EditItems, Editor, Items};
use crate::error::Result;
use crate::units::{SECTOR, VERIFIED};

/// The flag of groups whose free space is stored as bitmaps.
const USING_BITMAPS: u32 = 1;

/// The number of items that are removed at a time.
const BATCH: usize = 1024;

/// The change of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeChange {
    Allocated,
    Freed,
}

/// Removes `range` from the free space; it was free.
pub fn allocate(editor: &Editor<'_>, group: &Range<u64>, range: &Range<u64>) -> Result<()> {
    change_range(&mut editor.items(TreeId::FREE_SPACE)?, group, range, RangeChange::Allocated)
}

/// Adds `range` to the free space; it was in use.
pub fn free(editor: &Editor<'_>, group: &Range<u64>, range: &Range<u64>) -> Result<()> {
    change_range(&mut editor.items(TreeId::FREE_SPACE)?, group, range, RangeChange::Freed)
}

/// Adds a new group; the ranges of `free` ascend and do not touch.
pub fn add_group(editor: &Editor<'_>, group: &Range<u64>, free: &[Range<u64>]) -> Result<()> {
    add_group_in(&mut editor.items(TreeId::FREE_SPACE)?, group, free)
}

/// Removes all items of a group.
pub fn remove_group(editor: &Editor<'_>, group: &Range<u64>) -> Result<()> {
    clear(&mut editor.items(TreeId::FREE_SPACE)?, group)
}

/// Rebuilds the tree from the extent tree, for these groups.
pub fn rebuild(editor: &Editor<'_>, groups: &[Range<u64>]) -> Result<()> {
    let nodesize = editor.tree_roots.store().volume().geometry().nodesize;
    let extents = editor.items(TreeId::EXTENT)?;
    rebuild::rebuild(&extents, &mut editor.items(TreeId::FREE_SPACE)?, groups, nodesize)
}

fn change_range(
    items: &mut impl EditItems,
    group: &Range<u64>,
    range: &Range<u64>,
    change: RangeChange,
) -> Result<()> {
    assert!(!range.is_empty() && group.start <= range.start && range.end <= group.end);
    let info = info(items, group)?;
    let mut changes = Changes::default();
    let more = if info.flags == USING_BITMAPS {
        bitmaps::change_range(items, group, range, change, &mut changes)?
    } else {
        extents::change_range(items, group, range, change, &mut changes)?
    };
    let extent_count = count_after(group, info, more)?;
    let after = FreeSpaceInfo { extent_count, ..info };
    if after != info {
        changes.put(info_key(group), after.encode().to_vec());
    }
    items.apply(changes)?;
    convert::convert_if_due(items, group, after)
}

fn count_after(group: &Range<u64>, info: FreeSpaceInfo, more: i32) -> Result<u32> {
    let wrong = Damage::FreeRangeCount { start: group.start, count: info.extent_count };
    Ok(info.extent_count.checked_add_signed(more).ok_or(wrong)?)
}

fn add_group_in(items: &mut impl EditItems, group: &Range<u64>, free: &[Range<u64>]) -> Result<()> {
    // Items may be left of a group that was here before.
    clear(items, group)?;
    let extent_count = u32::try_from(free.len()).expect("ranges of a group have 32-bit numbers");
    let bitmaps = extent_count > convert::Limits::of(group).bitmaps_above;
    let mut changes = Changes::default();
    if bitmaps {
        bitmaps::put_all(group, free, &mut changes);
    } else {
        extents::put_all(free, &mut changes);
    }
    let info = FreeSpaceInfo { extent_count, flags: u32::from(bitmaps) };
    changes.put(info_key(group), info.encode().to_vec());
    items.apply(changes)
}

/// Removes all items that start in a range.
fn clear(items: &mut impl EditItems, range: &Range<u64>) -> Result<()> {
    loop {
        let mut changes = Changes::default();
        items.visit(&Key::new(range.start, ItemKind(0), 0), &mut |key, _| {
            if key.objectid >= range.end || changes.len() == BATCH {
                return ControlFlow::Break(());
            }
            if key.objectid >= range.start {
                changes.remove(key);
            }
            ControlFlow::Continue(())
        })?;
        if changes.is_empty() {
            return Ok(());
        }
        items.apply(changes)?;
    }
}

fn info_key(group: &Range<u64>) -> Key {
    Key::new(group.start, ItemKind::FREE_SPACE_INFO, group.end - group.start)
}

fn info(items: &impl Items, group: &Range<u64>) -> Result<FreeSpaceInfo> {
    let parse = |data: &[u8]| FreeSpaceInfo::parse(data).expect(VERIFIED);
    let missing = Damage::NoFreeSpaceInfo { start: group.start, len: group.end - group.start };
    Ok(items.get(&info_key(group), parse)?.ok_or(missing)?)
}
