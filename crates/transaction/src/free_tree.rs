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
mod change;
mod convert;
mod extents;
mod group;
mod rebuild;
#[cfg(test)]
pub(crate) mod tests;

use std::ops::Range;

use userbtrfs_format::TreeId;

use crate::editor::Editor;
use crate::error::Result;
use change::{add_group_in, change_range};
use group::{RangeChange, clear};

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
