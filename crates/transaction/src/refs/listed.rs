//! Checks whether the extent tree lists something that was read.

use userbtrfs_btree::{Cursor, Extent, ReadAhead};
use userbtrfs_format::{ItemKind, Key, Logical, TreeId};

use super::run::find;
use crate::editor::TreeItems;
use crate::error::Result;
use crate::roots::TreeRoots;

/// Returns true if there is a tree block of this level and generation.
pub fn lists_block(
    tree_roots: &TreeRoots,
    logical: Logical,
    level: u8,
    generation: u64,
) -> Result<bool> {
    let nodesize = tree_roots.store().volume().geometry().nodesize;
    let extent = Extent::Block { logical, level };
    let found = find(&TreeItems::new(tree_roots, TreeId::EXTENT)?, &extent, nodesize)?;
    Ok(found.is_some_and(|found| found.item.generation == generation))
}

/// Returns true if all of a range lies in one extent.
pub fn lists_range(tree_roots: &TreeRoots, logical: Logical, len: u64) -> Result<bool> {
    let tree = tree_roots.tree(TreeId::EXTENT)?;
    let last = Key::new(logical.0, ItemKind::EXTENT_ITEM, u64::MAX);
    let before = Cursor::seek_back(tree_roots.store(), &tree, &last, ReadAhead::Off)?;
    let Some(before) = before.item() else { return Ok(false) };
    // The previous item may be a keyed reference of the extent.
    let first = Key::new(before.key.objectid, ItemKind::EXTENT_ITEM, 0);
    let extent = tree_roots.cursor(&tree, &first, ReadAhead::Off)?;
    Ok(extent.item().is_some_and(|item| {
        let start = item.key.objectid;
        let bytes = item.key.offset;
        item.key.kind == ItemKind::EXTENT_ITEM
            && start <= logical.0
            && logical.0 + len <= start + bytes
    }))
}
