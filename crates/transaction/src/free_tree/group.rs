//! The items that both forms of a group have: its FREE_SPACE_INFO; and the removal of items.

use std::ops::{ControlFlow, Range};

use userbtrfs_format::{FreeSpaceInfo, ItemKind, Key};

use crate::damage::Damage;
use crate::editor::{Changes, EditItems, Items};
use crate::error::Result;
use crate::units::VERIFIED;

/// The flag of groups whose free space is stored as bitmaps.
pub(super) const USING_BITMAPS: u32 = 1;

/// The number of items that are removed at a time.
const BATCH: usize = 1024;

/// The change of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeChange {
    Allocated,
    Freed,
}

/// Removes all items that start in a range.
pub(super) fn clear(items: &mut impl EditItems, range: &Range<u64>) -> Result<()> {
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

pub(super) fn info_key(group: &Range<u64>) -> Key {
    Key::new(group.start, ItemKind::FREE_SPACE_INFO, group.end - group.start)
}

pub(super) fn info(items: &impl Items, group: &Range<u64>) -> Result<FreeSpaceInfo> {
    let parse = |data: &[u8]| FreeSpaceInfo::parse(data).expect(VERIFIED);
    let missing = Damage::NoFreeSpaceInfo { start: group.start, len: group.end - group.start };
    Ok(items.get(&info_key(group), parse)?.ok_or(missing)?)
}
