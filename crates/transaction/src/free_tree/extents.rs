//! Free space as ranges: an item without content for each.

use std::ops::{ControlFlow, Range};

use userbtrfs_format::{ItemKind, Key};

use super::group::RangeChange;
use crate::damage::Damage;
use crate::editor::{Changes, Items};
use crate::error::Result;

/// Allocates or frees a range; returns by how many the number of free ranges grows.
pub(super) fn change_range(
    items: &impl Items,
    group: &Range<u64>,
    range: &Range<u64>,
    change: RangeChange,
    changes: &mut Changes,
) -> Result<i32> {
    let near = near(items, group, range)?;
    match change {
        RangeChange::Allocated => allocate(&near, range, changes),
        RangeChange::Freed => free(&near, range, changes),
    }
}

/// Cuts the range out of the free range that contains it.
fn allocate(near: &[Range<u64>], range: &Range<u64>, changes: &mut Changes) -> Result<i32> {
    let holds = |free: &&Range<u64>| free.start <= range.start && range.end <= free.end;
    let Some(free) = near.iter().find(holds) else {
        return Err(Damage::NotFree { start: range.start, len: range.end - range.start }.into());
    };
    changes.remove(key(free));
    let mut more = -1;
    for rest in [free.start..range.start, range.end..free.end] {
        if !rest.is_empty() {
            changes.put(key(&rest), Vec::new());
            more += 1;
        }
    }
    Ok(more)
}

/// Joins the range with the free ranges that touch it.
fn free(near: &[Range<u64>], range: &Range<u64>, changes: &mut Changes) -> Result<i32> {
    let mut joined = range.clone();
    let mut more = 1;
    for free in near {
        if free.start < range.end && range.start < free.end {
            let len = range.end - range.start;
            return Err(Damage::AlreadyFree { start: range.start, len }.into());
        }
        joined = joined.start.min(free.start)..joined.end.max(free.end);
        changes.remove(key(free));
        more -= 1;
    }
    changes.put(key(&joined), Vec::new());
    Ok(more)
}

/// Returns the free ranges that overlap or touch a range.
fn near(items: &impl Items, group: &Range<u64>, range: &Range<u64>) -> Result<Vec<Range<u64>>> {
    let mut near = Vec::new();
    visit(items, group, range, |free| {
        if free.end >= range.start {
            near.push(free);
        }
    })?;
    Ok(near)
}

/// Returns all free ranges of a group.
pub(super) fn load(items: &impl Items, group: &Range<u64>) -> Result<Vec<Range<u64>>> {
    let mut free = Vec::new();
    visit(items, group, group, |range| free.push(range))?;
    Ok(free)
}

/// Calls `see` with the free ranges of a group from the last that starts before `within`, or at its
/// start, to the last that starts before its end, or at it.
fn visit(
    items: &impl Items,
    group: &Range<u64>,
    within: &Range<u64>,
    mut see: impl FnMut(Range<u64>),
) -> Result<()> {
    let from = Key::new(within.start, ItemKind::FREE_SPACE_EXTENT, u64::MAX);
    let mut damaged = None;
    let mut last_end = group.start;
    items.visit(&from, &mut |key, _| {
        if key.objectid > within.end || key.objectid >= group.end {
            return ControlFlow::Break(());
        }
        if key.objectid < group.start || key.kind == ItemKind::FREE_SPACE_INFO {
            return ControlFlow::Continue(());
        }
        let end = key.objectid.checked_add(key.offset).filter(|end| *end <= group.end);
        let fits = key.kind == ItemKind::FREE_SPACE_EXTENT && last_end <= key.objectid;
        let Some(end) = end.filter(|_| fits) else {
            damaged = Some(Damage::FreeSpaceItem(key));
            return ControlFlow::Break(());
        };
        last_end = end;
        see(key.objectid..end);
        ControlFlow::Continue(())
    })?;
    damaged.map_or(Ok(()), |damage| Err(damage.into()))
}

/// Adds free ranges.
pub(super) fn put_all(free: &[Range<u64>], changes: &mut Changes) {
    for range in free {
        changes.put(key(range), Vec::new());
    }
}

/// Removes free ranges.
pub(super) fn remove_all(free: &[Range<u64>], changes: &mut Changes) {
    for range in free {
        changes.remove(key(range));
    }
}

fn key(range: &Range<u64>) -> Key {
    Key::new(range.start, ItemKind::FREE_SPACE_EXTENT, range.end - range.start)
}
