//! The items of trees, as they are on disk.

use userbtrfs_btree::ReadAhead;
use userbtrfs_format::{Key, TreeId};

use super::Filesystem;
use crate::error::Result;

impl Filesystem {
    /// Calls `show` for the items of a tree in key order, from the first whose key is not less than
    /// `first`, with the key, the generation of its leaf, and its bytes; until `show` returns
    /// false.
    ///
    /// Changes that are pending in memory are not in the trees before the next commit.
    pub fn show_items(
        &self,
        tree: TreeId,
        first: &Key,
        mut show: impl FnMut(&Key, u64, &[u8]) -> bool,
    ) -> Result<()> {
        let tree_roots = self.inner.tree_roots();
        let tree = tree_roots.tree(tree)?;
        let mut cursor = tree_roots.cursor(&tree, first, ReadAhead::Off)?;
        while let (Some((leaf, _)), Some(item)) = (cursor.leaf(), cursor.item()) {
            if !show(&item.key, leaf.header().generation, item.data) {
                break;
            }
            cursor.advance()?;
        }
        Ok(())
    }
}
