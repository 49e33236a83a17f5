//! Dropping a tree: all references that a deleted tree holds are dropped, step by step.
//!
//! The tree T is not changed any more, and no thread reads it. Other trees may share its blocks,
//! and copy them meanwhile. The table of [`crate::cow`] says which references the children of a
//! block have; what follows for a child, by its references:
//!
//! | the child                           | its own children               | the child         |
//! |-------------------------------------|--------------------------------|-------------------|
//! | one reference                       | each is dropped                | then freed        |
//! | several, owned by T, no full backref | by T, dropped; by address, added | reference dropped |
//! | several, otherwise                  | as before                      | reference dropped |
//!
//! In the second case the child is *converted*, since no reference may name T any more; so is
//! every block of T below it.
//!
//! Invariants:
//!
//! 1. No block of T is written. Its nodes stay as the last commit left them, so that after a crash
//!    T is valid from the position of the last durable step on.
//! 2. Position: a node of level 1 or above, and its next child. All children before it, and before
//!    the path to it, are dropped; the node and those above it are not.
//! 3. Only T reaches a block of the path, which has one reference. So nobody changes the references
//!    of it or of its children because of T's path, and what is known of it stays valid from one
//!    transaction to the next.
//! 4. A reference to a shared block is dropped by [`BlockSource::drop_if_shared`]: of two trees
//!    that drop the last two, one finds that it has the block alone. The references to its children
//!    change after that, under its tree lock, as when another tree copies it. A block whose
//!    children keep theirs is not read.
//! 5. A block is converted after all blocks below it; its reference is dropped in the same step or
//!    in a later one. A block with the full-backref flag is not converted again, but blocks below
//!    it may have to be: Linux converts from the top downwards.
//! 6. A step may end between two conversions. Those that are complete are found by their flags
//!    after a crash; until then a key tells how far they are, since keys ascend in the walk.
//! 7. A failure is detected before the change that it prevents: the position stays valid.

use std::collections::BTreeMap;

use thiserror::Error;
use userbtrfs_format::{Expectation, ItemKind, Key, Logical, TreeId};
use userbtrfs_sync::{Arc, Nesting, OwnedWriteGuard, TreeLock};
use userbtrfs_volume::{ReadError, TreeBlock};

use crate::cow::ChildRefs;
use crate::path::SearchContext;
use crate::read_ahead::Ahead;
use crate::search::ReadBlocks;
use crate::source::{Backref, BlockRefs, BlockSource, Extent, RefChange, SourceError};
use crate::step_budget::StepBudget;
use crate::tree::Root;
use crate::{Node, NodeRef, NodeStore, Tree};

/// The position that the drop of a tree has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropPosition {
    /// The key of the next child to drop.
    pub key: Key,
    /// The level of the node that has this child, at least 1.
    pub level: u8,
}

/// Counters of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Blocks that were freed.
    pub freed: u64,
    /// Blocks that other trees keep, to which a reference was dropped.
    pub shared: u64,
    /// Blocks whose children are referred to by address from now on.
    pub converted: u64,
    /// References to data that were dropped.
    pub data: u64,
}

/// The error for a tree that cannot be dropped further.
#[derive(Debug, Error)]
pub enum DropError {
    /// A tree block cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The references to a block could not be looked up.
    #[error(transparent)]
    Source(SourceError),
    /// A block has no references, but the tree refers to it.
    #[error("block {0} is in use, but has no references")]
    Unreferenced(Logical),
    /// A block that has to be of the tree alone has several references, or another owner.
    #[error("block {logical} of {tree} should be its own, but is not")]
    NotOwn {
        /// The tree.
        tree: TreeId,
        /// The address of the block.
        logical: Logical,
    },
    /// The tree has no such position.
    #[error("{tree} has no node of level {} with a child {}", at.level, at.key)]
    Position {
        /// The tree.
        tree: TreeId,
        /// The position that was saved.
        at: DropPosition,
    },
}

/// A tree that is being dropped.
pub struct TreeDrop {
    tree: Arc<Tree>,
    /// Blocks of earlier transactions are not owned by the tree.
    created: u64,
    /// The path to the next child, the root first; all blocks have one reference.
    path: Vec<DropNode>,
    /// All blocks below shared ones are converted up to here: the end and the level of the last
    /// one, which ascend in the order of the conversions.
    converted: (Key, u8),
    counts: DropCounts,
}

/// A step of a drop.
struct Step<'a> {
    tools: SearchContext<'a>,
    walk: &'a mut TreeDrop,
    /// The read-ahead of each level.
    ahead: BTreeMap<u8, Ahead>,
    budget: StepBudget,
}

/// A block of the path.
struct DropNode {
    /// Kept, so that it stays in the cache until it is freed.
    node: Arc<Node>,
    block: NodeRef,
    /// The slot of the next child.
    slot: usize,
    /// The reference to the block.
    backref: Backref,
    /// Whether its children are referred to by its address.
    full_backref: bool,
    /// The first key after the block.
    end: Option<Key>,
}

/// A pointer to a block.
#[derive(Clone, Copy)]
struct Child {
    logical: Logical,
    expected: Expectation,
}

/// The result of a drop of a reference to a shared block.
enum SharedOutcome {
    Dropped,
    /// The step has ended before; the block may be converted in part.
    Paused,
    /// Only this tree refers to the block any more.
    Alone,
}

impl Child {
    /// Returns the child of a node in a slot; `end` is the first key after the node.
    fn of(tree: &Tree, node: &NodeRef, slot: usize, end: Option<Key>) -> Self {
        let expected = tree.expected_child(node, slot);
        let expected = Expectation { end: expected.end.or(end), ..expected };
        Self { logical: node.child(slot).logical, expected }
    }

    /// Returns the first key after it, and its level: a parent follows its last child.
    fn end(&self) -> (Key, u8) {
        (self.expected.end.unwrap_or(Key::MAX), self.expected.level)
    }
}

impl DropNode {
    /// Returns whether nothing but the block itself is left to drop.
    fn is_last(&self) -> bool {
        self.block.is_leaf() || self.slot == self.block.len()
    }
}

impl TreeDrop {
    /// Begins to drop a tree, or continues at `position`. Blocks older than `created` are not
    /// owned by the tree: the transaction in which it was made as a snapshot, 0 for others.
    pub fn start(
        store: &NodeStore,
        source: &dyn BlockSource,
        tree: &Arc<Tree>,
        created: u64,
        position: Option<DropPosition>,
    ) -> Result<Self, DropError> {
        let path = Vec::new();
        let converted = (Key::MIN, 0);
        let counts = DropCounts::default();
        let mut walk = Self { tree: Arc::clone(tree), created, path, converted, counts };
        let arrivals = &ReadBlocks::default();
        let tools = SearchContext { tree, store, source, arrivals };
        let mut step = Step::new(tools, &mut walk, 0);
        let Root { logical, .. } = tree.root();
        step.enter_alone(Child { logical, expected: tree.expected_root(tree.root()) })?;
        if let Some(position) = position {
            step.go_to(position)?;
        }
        Ok(walk)
    }

    /// Returns the position; `None` at the start, if the root is a leaf, and at the end.
    pub fn position(&self) -> Option<DropPosition> {
        let last = self.path.last().filter(|last| !last.is_last())?;
        Some(DropPosition { key: last.block.key(last.slot), level: last.block.header().level })
    }

    /// Drops references until about `budget` of them changed, or more if a single block has more.
    /// Returns true if the whole tree is dropped. The caller is in one transaction during the
    /// step, and holds no tree lock. `budget` is not 0.
    ///
    /// If it fails, [`Self::position`] is that of the changes made before.
    pub fn step(
        &mut self,
        store: &NodeStore,
        source: &dyn BlockSource,
        budget: u64,
    ) -> Result<bool, DropError> {
        assert!(budget > 0, "a step drops something");
        let tree = Arc::clone(&self.tree);
        let arrivals = &ReadBlocks::default();
        let tools = SearchContext { tree: &tree, store, source, arrivals };
        let mut step = Step::new(tools, self, budget);
        let done = step.run();
        // Blocks that were read ahead stay in the cache for the next step.
        step.ahead.into_values().for_each(|ahead| ahead.finish(store));
        done
    }

    /// Returns the counters since the last call.
    pub fn take_counts(&mut self) -> DropCounts {
        std::mem::take(&mut self.counts)
    }

    fn last(&self) -> &DropNode {
        self.path.last().expect("the tree is not dropped yet")
    }

    fn last_mut(&mut self) -> &mut DropNode {
        self.path.last_mut().expect("the tree is not dropped yet")
    }

    /// Returns the next child of the path.
    fn next_child(&self) -> Child {
        let last = self.last();
        Child::of(&self.tree, &last.block, last.slot, last.end)
    }

    /// Returns the reference to the next child of the path, or to the root.
    fn next_backref(&self) -> Backref {
        match self.path.last() {
            Some(last) if last.full_backref => Backref::Parent(last.block.header().logical),
            _ => Backref::Tree(self.tree.id()),
        }
    }

    fn may_own(&self, child: Child) -> bool {
        child.expected.generation >= self.created
    }

    /// Returns whether other trees share a child, and neither it nor those below need a
    /// conversion.
    fn is_not_read(&self, child: Child, refs: BlockRefs) -> bool {
        let is_converted = child.expected.level == 0 && refs.full_backref;
        refs.refs > 1 && (is_converted || !self.may_own(child))
    }
}

impl<'a> Step<'a> {
    fn new(tools: SearchContext<'a>, walk: &'a mut TreeDrop, budget: u64) -> Self {
        let budget = StepBudget::new(budget);
        Self { tools, walk, ahead: BTreeMap::new(), budget }
    }

    /// Makes the step; returns true if the whole tree is dropped.
    fn run(&mut self) -> Result<bool, DropError> {
        loop {
            let Some(last) = self.walk.path.last() else { return Ok(true) };
            if last.is_last() {
                self.free_last();
            } else if self.budget.is_spent() || !self.drop_child()? {
                return Ok(false);
            }
        }
    }

    /// Moves to a saved position.
    fn go_to(&mut self, at: DropPosition) -> Result<(), DropError> {
        let wrong = DropError::Position { tree: self.walk.tree.id(), at };
        if at.level == 0 {
            return Err(wrong);
        }
        loop {
            let last = self.walk.last_mut();
            let level = last.block.header().level;
            if level < at.level {
                return Err(wrong);
            }
            last.slot = last.block.child_slot(&at.key);
            if level == at.level {
                let is_there = last.block.key(last.slot) == at.key;
                return if is_there { Ok(()) } else { Err(wrong) };
            }
            self.enter_alone(self.walk.next_child())?;
        }
    }

    /// Adds a block to the path that must have one reference.
    fn enter_alone(&mut self, child: Child) -> Result<(), DropError> {
        let node = self.load(child)?;
        self.enter(child, node)
    }

    /// Adds a block with one reference to the path.
    fn enter(&mut self, child: Child, node: Arc<Node>) -> Result<(), DropError> {
        let (refs, locked) = lock_with_refs(self.tools, child, &node)?;
        if refs.refs > 1 || (!refs.full_backref && !is_owner(self.tools, &node)) {
            return Err(not_own(self.tools, child));
        }
        let block = NodeRef::clone(&*locked);
        drop(locked);
        let backref = self.walk.next_backref();
        let full_backref = refs.full_backref;
        let end = child.expected.end;
        self.walk.path.push(DropNode { node, block, slot: 0, backref, full_backref, end });
        Ok(())
    }

    /// Drops a child, or enters it. Returns false, and does nothing but perhaps convert blocks, if
    /// it is left to the next step.
    fn drop_child(&mut self) -> Result<bool, DropError> {
        let child = self.walk.next_child();
        let refs = look_up(self.tools, child)?;
        if self.walk.is_not_read(child, refs) && self.drop_reference(child) {
            return Ok(true);
        }
        let node = self.load(child)?;
        let DropNode { block, slot, .. } = self.walk.last();
        let block = NodeRef::clone(block);
        self.read_ahead(&block, *slot, |walk, tools, child| {
            look_up(tools, child).map_or(true, |refs| !walk.is_not_read(child, refs))
        });
        if refs.refs > 1 {
            match self.drop_shared(child, &node)? {
                SharedOutcome::Dropped => return Ok(true),
                SharedOutcome::Paused => return Ok(false),
                SharedOutcome::Alone => {}
            }
        }
        if child.expected.level == 0 {
            let cost = cost_of(&*lock(self.tools, child, &node)?);
            if !self.budget.fits(cost) {
                return Ok(false);
            }
        }
        self.enter(child, node)?;
        Ok(true)
    }

    /// Drops the reference to a child that other trees share; returns false if there are none.
    fn drop_reference(&mut self, child: Child) -> bool {
        let backref = self.walk.next_backref();
        let change = drop_block(child.logical, child.expected.level, backref);
        let is_shared = |refs: BlockRefs| refs.refs > 1;
        if !self.tools.source.drop_if_shared(change).is_some_and(is_shared) {
            return false;
        }
        self.walk.last_mut().slot += 1;
        self.budget.spend(1);
        self.walk.counts.shared += 1;
        true
    }

    /// Drops the reference to a child that other trees share.
    fn drop_shared(&mut self, child: Child, node: &Arc<Node>) -> Result<SharedOutcome, DropError> {
        let owns = self.walk.may_own(child) && is_owner(self.tools, node);
        if owns && !self.convert_below(child, node)? {
            return Ok(SharedOutcome::Paused);
        }
        let (refs, block) = lock_with_refs(self.tools, child, node)?;
        let converts = owns && !refs.full_backref;
        if refs.refs > 1 && converts && !self.budget.fits(cost_of(&block)) {
            return Ok(SharedOutcome::Paused);
        }
        if !self.drop_reference(child) {
            return Ok(SharedOutcome::Alone);
        }
        if converts {
            self.convert(&block);
        }
        Ok(SharedOutcome::Dropped)
    }

    /// Converts all blocks of the tree below a block of it; returns false if the rest is left to
    /// the next step.
    fn convert_below(&mut self, parent: Child, node: &Arc<Node>) -> Result<bool, DropError> {
        if parent.expected.level == 0 {
            return Ok(true);
        }
        let block = NodeRef::clone(&*lock(self.tools, parent, node)?);
        for slot in 0..block.len() {
            let child = Child::of(self.tools.tree, &block, slot, parent.expected.end);
            if child.end() <= self.walk.converted {
                continue;
            }
            if self.budget.is_spent() {
                return Ok(false);
            }
            if self.walk.may_own(child) {
                self.read_ahead(&block, slot, |walk, _, child| walk.may_own(child));
                if !self.convert_child(child)? {
                    return Ok(false);
                }
            }
            self.walk.converted = child.end();
            self.budget.advance();
        }
        Ok(true)
    }

    /// Converts a block, and those below it, if they are of the tree. Returns false if the rest is
    /// left to the next step.
    fn convert_child(&mut self, child: Child) -> Result<bool, DropError> {
        let refs = look_up(self.tools, child)?;
        if child.expected.level == 0 && refs.full_backref {
            return Ok(true);
        }
        self.budget.visit();
        let node = self.load(child)?;
        if !is_owner(self.tools, &node) {
            return Ok(true);
        }
        if !self.convert_below(child, &node)? {
            return Ok(false);
        }
        let (refs, block) = lock_with_refs(self.tools, child, &node)?;
        if refs.full_backref {
            return Ok(true);
        }
        if !self.budget.fits(cost_of(&block)) {
            return Ok(false);
        }
        self.convert(&block);
        Ok(true)
    }

    /// Converts a block whose lock is held.
    fn convert(&mut self, block: &TreeBlock) {
        self.tools.reference_children(block, true, ChildRefs::Address);
        self.tools.reference_children(block, false, ChildRefs::Tree);
        let header = block.header();
        self.tools.source.set_full_backref(header.logical, header.level);
        self.budget.spend(cost_of(block));
        self.walk.counts.converted += 1;
    }

    /// Frees the last block of the path, whose children are dropped; those of a leaf are dropped
    /// here.
    fn free_last(&mut self) {
        let DropNode { node, full_backref, backref, .. } =
            self.walk.path.pop().expect("the path has a last block");
        let block = TreeLock::write_owned(&node, Nesting::Root);
        self.budget.spend(1);
        if block.is_leaf() {
            let cost = cost_of(&block);
            let by = if full_backref { ChildRefs::Address } else { ChildRefs::Tree };
            self.tools.reference_children(&block, false, by);
            self.budget.spend(cost);
            self.walk.counts.data += cost;
        }
        let header = block.header();
        self.tools.store.discard(header.logical);
        match backref {
            Backref::Tree(tree) => self.tools.source.free(tree, header),
            _ => self.tools.source.reference(drop_block(header.logical, header.level, backref)),
        }
        self.walk.counts.freed += 1;
        if let Some(above) = self.walk.path.last_mut() {
            above.slot += 1;
        }
    }

    /// Returns a node, from memory or from the device.
    fn load(&mut self, child: Child) -> Result<Arc<Node>, ReadError> {
        let Child { logical, expected } = child;
        let store = self.tools.store;
        if let Some(node) = store.cached(logical) {
            return Ok(node);
        }
        let ahead = self.ahead.get_mut(&expected.level);
        let ready = ahead.and_then(|ahead| ahead.take(store, logical));
        ready.unwrap_or_else(|| store.load(logical, &expected))
    }

    /// Reads those children after a slot ahead that are `wanted`.
    fn read_ahead(
        &mut self,
        parent: &NodeRef,
        slot: usize,
        wanted: impl Fn(&TreeDrop, SearchContext<'_>, Child) -> bool,
    ) {
        let tools = self.tools;
        let ahead = self.ahead.entry(parent.header().level - 1).or_default();
        let wanted = |logical, expected| wanted(self.walk, tools, Child { logical, expected });
        ahead.advance_where(tools.store, tools.tree, parent, slot, wanted);
    }
}

/// Returns the number of references that a block holds.
fn cost_of(block: &TreeBlock) -> u64 {
    let count = if block.is_leaf() {
        let kinds = (0..block.len()).map(|slot| block.key(slot).kind);
        kinds.filter(|kind| *kind == ItemKind::EXTENT_DATA).count()
    } else {
        block.len()
    };
    count as u64
}

fn drop_block(logical: Logical, level: u8, backref: Backref) -> RefChange {
    RefChange { add: false, extent: Extent::Block { logical, level }, backref }
}

fn not_own(tools: SearchContext<'_>, child: Child) -> DropError {
    DropError::NotOwn { tree: tools.tree.id(), logical: child.logical }
}

/// Returns whether the tree is the owner of a block.
fn is_owner(tools: SearchContext<'_>, node: &Node) -> bool {
    node.label().owner == tools.tree.id().0
}

/// Returns the references to a block, at least one.
fn look_up(tools: SearchContext<'_>, child: Child) -> Result<BlockRefs, DropError> {
    loop {
        match tools.source.sharing(child.logical) {
            Some(BlockRefs { refs: 0, .. }) => return Err(DropError::Unreferenced(child.logical)),
            Some(refs) => return Ok(refs),
            None => {
                let loaded = tools.source.load_refs(child.logical, child.expected.level);
                loaded.map_err(DropError::Source)?;
            }
        }
    }
}

/// Locks a node for writing.
fn lock(
    tools: SearchContext<'_>,
    child: Child,
    node: &Arc<Node>,
) -> Result<OwnedWriteGuard<NodeRef>, ReadError> {
    tools.store.lock_alone(node, child.logical, &child.expected, Nesting::Root)
}

/// Locks a node for writing, and returns the references to it, which stay as they are until it is
/// unlocked.
fn lock_with_refs(
    tools: SearchContext<'_>,
    child: Child,
    node: &Arc<Node>,
) -> Result<(BlockRefs, OwnedWriteGuard<NodeRef>), DropError> {
    loop {
        look_up(tools, child)?;
        let block = lock(tools, child, node)?;
        match tools.source.sharing(child.logical) {
            Some(BlockRefs { refs: 0, .. }) => return Err(DropError::Unreferenced(child.logical)),
            Some(refs) => return Ok((refs, block)),
            None => drop(block),
        }
    }
}
