//! A tree: its id, and the address of its root.

use userbtrfs_format::{Expectation, Logical, MAX_LEVEL, RootItem, TreeId};
use userbtrfs_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use userbtrfs_sync::{BlockLabel, Nesting, TreeLock};

/// The root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The address of its block.
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
    /// Blocks no newer than this may be shared with snapshots.
    last_snapshot: AtomicU64,
    /// Blocks allocated minus blocks freed since the last [`Tree::take_growth`].
    blocks: AtomicI64,
    /// The number of searches: see [`Tree::searches`].
    #[cfg(debug_assertions)]
    searches: AtomicU64,
}

impl Tree {
    /// Creates the handle of an existing tree; `anchor` has the label of [`Self::anchor_label`].
    pub(crate) fn of_anchor(id: TreeId, anchor: TreeLock<Root>) -> Self {
        let last_snapshot = AtomicU64::new(0);
        let blocks = AtomicI64::new(0);
        Self {
            id,
            anchor,
            last_snapshot,
            blocks,
            #[cfg(debug_assertions)]
            searches: AtomicU64::new(0),
        }
    }

    /// Returns the label of the lock of the root of tree `id`.
    pub(crate) fn anchor_label(id: TreeId) -> BlockLabel {
        BlockLabel { owner: id.0, level: MAX_LEVEL + 1 }
    }

    /// Returns the root. The caller holds no tree lock.
    pub fn root(&self) -> Root {
        *self.anchor.read(Nesting::Root)
    }

    /// Returns the transaction of the last snapshot of the tree: blocks no newer may be shared.
    pub fn last_snapshot(&self) -> u64 {
        self.last_snapshot.load(Ordering::Relaxed)
    }

    /// Records the transaction of the last snapshot of the tree.
    pub fn set_last_snapshot(&self, generation: u64) {
        self.last_snapshot.store(generation, Ordering::Relaxed);
    }

    /// Returns by how many blocks the tree grew, or shrank, since this was last called.
    pub fn take_growth(&self) -> i64 {
        self.blocks.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn grew(&self, blocks: i64) {
        self.blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Returns the number of searches for reading, for tests which assert that there are none.
    /// Counted in debug builds only.
    #[cfg(debug_assertions)]
    pub fn searches(&self) -> u64 {
        self.searches.load(Ordering::Relaxed)
    }

    #[cfg(debug_assertions)]
    pub(crate) fn count_search(&self) {
        self.searches.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the id of the tree.
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// The parent of the root node in the lock order.
    pub(crate) fn anchor(&self) -> &TreeLock<Root> {
        &self.anchor
    }

    /// Returns what the block of `root` must contain.
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
