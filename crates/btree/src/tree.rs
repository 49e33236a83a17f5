//! A tree: its number, and where its root is.

use userbtrfs_format::{Expectation, Logical, MAX_LEVEL, RootItem, TreeId};
use userbtrfs_sync::{BlockLabel, TreeLock};

/// The root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// Where it is.
    pub logical: Logical,
    /// Its level.
    pub level: u8,
    /// The transaction that wrote it.
    pub generation: u64,
}

impl From<&RootItem> for Root {
    fn from(item: &RootItem) -> Self {
        Self { logical: item.logical, level: item.level, generation: item.generation }
    }
}

/// A tree that can be searched.
pub struct Tree {
    id: TreeId,
    anchor: TreeLock<Root>,
}

impl Tree {
    /// The tree of this number whose root stands there.
    pub fn new(id: TreeId, root: Root) -> Self {
        let label = BlockLabel { owner: id.0, level: MAX_LEVEL + 1 };
        Self { id, anchor: TreeLock::new(label, root) }
    }

    /// Its number.
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// The parent of the root node, as far as locks go.
    pub(crate) fn anchor(&self) -> &TreeLock<Root> {
        &self.anchor
    }

    /// What must stand where the root is.
    pub(crate) fn expected_root(&self, root: Root) -> Expectation {
        Expectation {
            owner: self.id,
            level: root.level,
            generation: root.generation,
            first_key: None,
            end: None,
        }
    }
}
