//! The path from the root to a leaf, locked for writing as a whole.
//!
//! 1. The anchor and every node of the path are locked for writing; each node is of the running
//!    transaction: it was copied, if need be, before anything below it was locked.
//! 2. The slot of each node but the leaf leads to the next.
//! 3. Nothing is read while a path is held: an operation that needs a read ends the path with a
//!    [`Restart`]. The changes made until then leave the tree consistent, and stay.

use userbtrfs_format::{ChildPointer, Expectation, Header, Key, Logical, NewBlock, TreeId};
use userbtrfs_sync::{Arc, Nesting, OwnedWriteGuard, WriteGuard};
use userbtrfs_volume::{NodeBytes, ReadError, TreeBlock};

use crate::search::{MissingBlock, ReadBlocks};
use crate::source::{BlockRefs, BlockSource, NoSpace};
use crate::tree::Root;
use crate::{NodeRef, NodeStore, Tree};

/// The tree that is searched, and the nodes and blocks that the search may use.
#[derive(Clone, Copy)]
pub(crate) struct SearchContext<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) store: &'a NodeStore,
    pub(crate) source: &'a dyn BlockSource,
    pub(crate) arrivals: &'a ReadBlocks,
}

/// The reason why a path ends before its work is done.
pub(crate) enum Restart {
    /// A block must be read.
    Missing(Box<MissingBlock>),
    /// The references to a block must be looked up.
    Sharing { logical: Logical, level: u8 },
    /// There is no space for a block.
    NoSpace(NoSpace),
    /// The tree would exceed the maximum height.
    TooHigh(TreeId),
}

impl Restart {
    pub(crate) fn missing(missing: MissingBlock) -> Self {
        Self::Missing(Box::new(missing))
    }
}

impl From<NoSpace> for Restart {
    fn from(error: NoSpace) -> Self {
        Self::NoSpace(error)
    }
}

/// A node of a path.
pub(crate) struct PathNode {
    pub(crate) guard: OwnedWriteGuard<NodeRef>,
    /// The slot of the next node of the path.
    pub(crate) slot: usize,
}

impl PathNode {
    pub(crate) fn block_mut(&mut self) -> &mut TreeBlock {
        Arc::make_mut(&mut self.guard)
    }

    /// Returns the child pointer to this node.
    pub(crate) fn pointer(&self, key: Key) -> ChildPointer {
        let header = self.guard.header();
        ChildPointer { key, logical: header.logical, generation: header.generation }
    }
}

/// A path from the root to a leaf.
pub(crate) struct Path<'a> {
    pub(crate) tools: SearchContext<'a>,
    pub(crate) anchor: WriteGuard<'a, Root>,
    /// The root first, the leaf last.
    pub(crate) steps: Vec<PathNode>,
}

impl<'a> Path<'a> {
    /// Locks the path to the leaf in which `key` is or would be.
    pub(crate) fn descend(tools: SearchContext<'a>, key: &Key) -> Result<Self, Restart> {
        let anchor = tools.tree.anchor().write(Nesting::Root);
        let mut path = Self { tools, anchor, steps: Vec::new() };
        loop {
            path.enter()?;
            path.copy_last()?;
            path.lower_root();
            let last = path.steps.last_mut().expect("a node was entered");
            if last.guard.is_leaf() {
                return Ok(path);
            }
            last.slot = last.guard.child_slot(key);
        }
    }

    /// Locks the next node of the path.
    pub(crate) fn enter(&mut self) -> Result<(), Restart> {
        let SearchContext { tree, .. } = self.tools;
        let (logical, expected) = match self.steps.last() {
            None => (self.anchor.logical, tree.expected_root(*self.anchor)),
            Some(last) => {
                let logical = last.guard.child(last.slot).logical;
                let expected = tree.expected_child(&last.guard, last.slot);
                (logical, Expectation { end: self.end_of(self.steps.len()), ..expected })
            }
        };
        let guard = self.lock(logical, expected)?;
        self.steps.push(PathNode { guard, slot: 0 });
        Ok(())
    }

    fn lock(
        &self,
        logical: Logical,
        expected: Expectation,
    ) -> Result<OwnedWriteGuard<NodeRef>, Restart> {
        let SearchContext { store, arrivals, .. } = self.tools;
        let missing =
            |unfit: Option<ReadError>| Restart::missing(MissingBlock { logical, expected, unfit });
        let node = arrivals.find(store, logical).ok_or_else(|| missing(None))?;
        store.lock_child_alone(&node, logical, &expected).map_err(|error| missing(Some(error)))
    }

    /// Returns the first key after the leaf.
    pub(crate) fn end(&self) -> Option<Key> {
        self.end_of(self.steps.len() - 1)
    }

    /// Returns the first key after the node at `index`, or after the one that would be there.
    pub(crate) fn end_of(&self, index: usize) -> Option<Key> {
        let mut above = self.steps[..index].iter().rev();
        above.find_map(|step| step.guard.next_child_key(step.slot))
    }

    /// Returns the leaf.
    pub(crate) fn leaf_mut(&mut self) -> &mut TreeBlock {
        self.steps.last_mut().expect("a way has a leaf").block_mut()
    }

    /// Sets the keys in the parents to the first key of the node at `index`.
    pub(crate) fn mend_keys(&mut self, index: usize) {
        self.set_keys(index, self.steps[index].guard.key(0));
    }

    /// Sets the keys in the parents of the node at `index` to `key`.
    pub(crate) fn set_keys(&mut self, index: usize, key: Key) {
        for step in self.steps[..index].iter_mut().rev() {
            let slot = step.slot;
            if step.guard.key(slot) != key {
                step.block_mut().set_child_key(slot, key);
            }
            if slot != 0 {
                break;
            }
        }
    }

    /// Allocates an empty block, locked with the nesting `token`.
    pub(crate) fn create(
        &self,
        near: &Header,
        level: u8,
        token: Nesting,
    ) -> Result<OwnedWriteGuard<NodeRef>, NoSpace> {
        let geometry = self.tools.store.geometry();
        self.make(near.logical, level, token, |bytes, new| {
            TreeBlock::empty(bytes, new, geometry, near.chunk_tree_uuid)
        })
    }

    /// Allocates a block and fills it by `build`.
    pub(crate) fn make(
        &self,
        near: Logical,
        level: u8,
        token: Nesting,
        build: impl FnOnce(NodeBytes, &NewBlock) -> TreeBlock,
    ) -> Result<OwnedWriteGuard<NodeRef>, NoSpace> {
        let SearchContext { tree, store, source, .. } = self.tools;
        let made = store.make(source, tree.id(), level, near, token, build)?;
        tree.grew(1);
        Ok(made)
    }

    /// Drops the reference of the tree to a block, unless [`SearchContext::drop_shared_block`] did.
    /// A block that other trees share stays in memory: all of them lock the same node, which
    /// serializes their updates of the references to its children.
    pub(crate) fn free(&self, block: &Header, sharing: BlockRefs) {
        let SearchContext { tree, store, source, .. } = self.tools;
        if sharing.refs <= 1 {
            store.discard(block.logical);
            source.free(tree.id(), block);
        }
        tree.grew(-1);
    }

    /// Makes the first node of the path the root of the tree.
    pub(crate) fn set_root(&mut self) {
        let header = self.steps[0].guard.header();
        let logical = header.logical;
        let level = header.level;
        let generation = header.generation;
        *self.anchor = Root { logical, level, generation };
        self.tools.source.root_changed(self.tools.tree);
    }

    /// Replaces a root that has a single child by that child, the last node of the path.
    pub(crate) fn lower_root(&mut self) {
        if self.steps.len() == 2 && self.steps[0].guard.len() == 1 {
            let old = self.steps.remove(0);
            self.set_root();
            self.free(old.guard.header(), BlockRefs::ALONE);
        }
    }
}
