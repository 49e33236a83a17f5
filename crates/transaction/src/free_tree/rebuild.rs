//! Rebuilds the free space tree from the extent tree.

use std::ops::{ControlFlow, Range};

use userbtrfs_format::{ItemKind, Key};

use super::change::add_group_in;
use super::group::clear;
use crate::damage::Damage;
use crate::editor::{EditItems, Items};
use crate::error::Result;

/// Removes all items of the tree, and adds the groups.
pub(super) fn rebuild(
    extents: &impl Items,
    items: &mut impl EditItems,
    groups: &[Range<u64>],
    nodesize: u32,
) -> Result<()> {
    clear(items, &(0..u64::MAX))?;
    for group in groups {
        let free = unused(extents, group, u64::from(nodesize))?;
        add_group_in(items, group, &free)?;
    }
    Ok(())
}

/// Returns the ranges of a group that no extent uses.
pub(super) fn unused(
    extents: &impl Items,
    group: &Range<u64>,
    nodesize: u64,
) -> Result<Vec<Range<u64>>> {
    let mut free = Vec::new();
    let mut used_to = group.start;
    let mut damaged = None;
    extents.visit(&Key::new(group.start, ItemKind(0), 0), &mut |key, _| {
        if key.objectid >= group.end {
            return ControlFlow::Break(());
        }
        let len = match key.kind {
            ItemKind::EXTENT_ITEM => key.offset,
            ItemKind::METADATA_ITEM => nodesize,
            _ => return ControlFlow::Continue(()),
        };
        if key.objectid < group.start {
            return ControlFlow::Continue(());
        }
        let end = key.objectid.checked_add(len).filter(|end| *end <= group.end);
        let Some(end) = end.filter(|_| key.objectid >= used_to) else {
            damaged = Some(Damage::ExtentItem(key));
            return ControlFlow::Break(());
        };
        if key.objectid > used_to {
            free.push(used_to..key.objectid);
        }
        used_to = end;
        ControlFlow::Continue(())
    })?;
    if used_to < group.end {
        free.push(used_to..group.end);
    }
    damaged.map_or(Ok(free), |damage| Err(damage.into()))
}
