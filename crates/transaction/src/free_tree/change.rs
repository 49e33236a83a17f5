//! Changes of the free space of a group, in the form that it has.

use std::ops::Range;

use userbtrfs_format::FreeSpaceInfo;

use super::group::{RangeChange, USING_BITMAPS, clear, info, info_key};
use super::{bitmaps, convert, extents};
use crate::damage::Damage;
use crate::editor::{Changes, EditItems};
use crate::error::Result;

/// Allocates or frees a range of a group, and converts the group if that is due.
pub(super) fn change_range(
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

/// Adds a new group; the ranges of `free` ascend and do not touch.
pub(super) fn add_group_in(
    items: &mut impl EditItems,
    group: &Range<u64>,
    free: &[Range<u64>],
) -> Result<()> {
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
