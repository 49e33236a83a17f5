//! The form in which free space is stored, and the conversion from one form to the other.

use std::ops::Range;

use userbtrfs_format::{FreeSpaceInfo, item_space};

use super::bitmaps::{BITMAP_SIZE, COVERED};
use super::group::{USING_BITMAPS, info_key};
use super::{bitmaps, extents};
use crate::editor::{Changes, EditItems};
use crate::error::Result;

/// The difference of the two limits, in runs.
const GAP: u32 = 100;

/// The limits at which a group changes its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// A group with more ranges than this is converted to bitmaps.
    pub(super) bitmaps_above: u32,
    /// A group with less runs than this is converted to ranges.
    pub(super) ranges_below: u32,
}

impl Limits {
    /// Returns the limits of a group: as many ranges as take the space of its bitmaps, and 100
    /// less.
    pub(super) fn of(group: &Range<u64>) -> Self {
        let bitmaps = (group.end - group.start).div_ceil(COVERED);
        let room = |len| u64::try_from(item_space(len)).expect("an item is small");
        let ranges = bitmaps.saturating_mul(room(BITMAP_SIZE)) / room(0);
        let bitmaps_above = u32::try_from(ranges).unwrap_or(u32::MAX);
        Self { bitmaps_above, ranges_below: bitmaps_above.saturating_sub(GAP) }
    }
}

/// Converts a group to the other form if the count in `info`, its current item, asks for it.
pub(super) fn convert_if_due(
    items: &mut impl EditItems,
    group: &Range<u64>,
    info: FreeSpaceInfo,
) -> Result<()> {
    let limits = Limits::of(group);
    let mut changes = Changes::default();
    let flags = if info.flags == USING_BITMAPS {
        if info.extent_count >= limits.ranges_below {
            return Ok(());
        }
        let bitmaps = bitmaps::load(items, group, group)?;
        bitmaps::remove_all(&bitmaps, &mut changes);
        extents::put_all(&bitmaps::runs(&bitmaps), &mut changes);
        0
    } else {
        if info.extent_count <= limits.bitmaps_above {
            return Ok(());
        }
        let free = extents::load(items, group)?;
        extents::remove_all(&free, &mut changes);
        bitmaps::put_all(group, &free, &mut changes);
        USING_BITMAPS
    };
    changes.put(info_key(group), FreeSpaceInfo { flags, ..info }.encode().to_vec());
    items.apply(changes)
}
