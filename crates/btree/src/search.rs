//! Search: from the root to the leaf in which a key is, or would be.

use userbtrfs_format::{Expectation, Key, Logical};
use userbtrfs_sync::{Arc, Nesting, OwnedReadGuard, ReadGuard};
use userbtrfs_volume::ReadError;

use crate::tree::Root;
use crate::{Node, NodeRef, NodeStore, Tree};

/// The position that a search found. It holds the leaf's bytes and no lock.
pub struct Position {
    /// The leaf.
    pub leaf: NodeRef,
    /// The slot of the first item whose key is not less than the one searched; may be
    /// one past the last.
    pub slot: usize,
    /// Whether the item in that slot has exactly the key.
    pub exact: bool,
    /// The first key after the leaf; `None` for the last leaf.
    pub next: Option<Key>,
    /// The node above the leaf and the leaf's slot in it; `None` if the root is a leaf.
    pub parent: Option<(NodeRef, usize)>,
}

/// The lock that a descent holds: that of the anchor first, then that of one node after the other.
enum HeldLock<'a> {
    Anchor { _guard: ReadGuard<'a, Root> },
    Node(OwnedReadGuard<NodeRef>),
}

/// The result of a descent.
enum Outcome {
    Found(Position),
    Detour(MissingBlock),
}

/// A block that must be read before the search restarts.
pub(crate) struct MissingBlock {
    pub(crate) logical: Logical,
    pub(crate) expected: Expectation,
    /// Why the block in memory at this address is not the expected one.
    pub(crate) unfit: Option<ReadError>,
}

/// The blocks that were read for one search or path. They stay in memory until it ends, however
/// small the cache is.
#[derive(Default)]
pub(crate) struct ReadBlocks {
    nodes: Vec<(Logical, Arc<Node>)>,
    /// The address and generation of the block that could not be loaded the last time.
    failed: Option<(Logical, u64)>,
}

impl ReadBlocks {
    pub(crate) fn find(&self, store: &NodeStore, logical: Logical) -> Option<Arc<Node>> {
        let own = self.nodes.iter().find(|(at, _)| *at == logical);
        own.map(|(_, node)| Arc::clone(node)).or_else(|| store.cached(logical))
    }

    /// Loads a missing block by `load`. The tree and its blocks may change while no lock is held:
    /// only a block that fails twice in a row is an error.
    pub(crate) fn fetch(
        &mut self,
        store: &NodeStore,
        missing: MissingBlock,
        load: impl FnOnce(Logical, &Expectation) -> Result<Arc<Node>, ReadError>,
    ) -> Result<(), ReadError> {
        let MissingBlock { logical, expected, unfit } = missing;
        let loaded = match unfit {
            None => load(logical, &expected),
            Some(error) => {
                self.nodes.retain(|(at, _)| *at != logical);
                store.forget(logical);
                Err(error)
            }
        };
        match loaded {
            Ok(node) => self.nodes.push((logical, node)),
            Err(error) if self.failed == Some((logical, expected.generation)) => return Err(error),
            Err(_) => self.failed = Some((logical, expected.generation)),
        }
        Ok(())
    }
}

impl Tree {
    /// Reads the root into the cache, and nothing below it. The caller holds no tree lock, and
    /// the tree does not change meanwhile.
    pub fn load_root(&self, store: &NodeStore) -> Result<(), ReadError> {
        let Root { logical, level, generation } = self.root();
        let owner = self.id();
        let expected = Expectation { owner, level, generation, first_key: None, end: None };
        if store.has(logical) { Ok(()) } else { store.load(logical, &expected).map(drop) }
    }

    /// Finds the leaf in which `key` is or would be.
    pub fn search(&self, store: &NodeStore, key: &Key) -> Result<Position, ReadError> {
        self.search_with(store, key, |logical, expected| store.load(logical, expected))
    }

    /// Searches like [`Tree::search`]; reads missing blocks through `load`.
    pub(crate) fn search_with(
        &self,
        store: &NodeStore,
        key: &Key,
        mut load: impl FnMut(Logical, &Expectation) -> Result<Arc<Node>, ReadError>,
    ) -> Result<Position, ReadError> {
        #[cfg(debug_assertions)]
        self.count_search();
        let mut arrivals = ReadBlocks::default();
        loop {
            match self.descend(store, key, &arrivals, |_| {}) {
                Outcome::Found(position) => return Ok(position),
                Outcome::Detour(missing) => arrivals.fetch(store, missing, &mut load)?,
            }
        }
    }

    /// Returns the addresses of the blocks from the root to the leaf in which `key` is or would be.
    pub fn path_to(&self, store: &NodeStore, key: &Key) -> Result<Vec<Logical>, ReadError> {
        let mut arrivals = ReadBlocks::default();
        loop {
            let mut path = Vec::new();
            match self.descend(store, key, &arrivals, |logical| path.push(logical)) {
                Outcome::Found(_) => return Ok(path),
                Outcome::Detour(missing) => {
                    arrivals.fetch(store, missing, |at, expected| store.load(at, expected))?;
                }
            }
        }
    }

    /// Returns the first key after the unreadable block that keeps a cursor from reaching the
    /// first item whose key is not less than `key`, as recorded in the nodes above the block.
    /// `None` if there is no such block, or if it is the last of the tree.
    pub fn end_of_unreadable(&self, store: &NodeStore, key: &Key) -> Option<Key> {
        let mut key = *key;
        loop {
            let mut end = None;
            let found = self.search_with(store, &key, |logical, expected| {
                end = expected.end;
                store.load(logical, expected)
            });
            match found {
                Ok(Position { leaf, slot, .. }) if slot < leaf.len() => return None,
                Ok(Position { next, .. }) => key = next?,
                Err(_) => return end,
            }
        }
    }

    /// Descends to a leaf, and calls `visit` with the address of each block on the way.
    fn descend(
        &self,
        store: &NodeStore,
        key: &Key,
        arrivals: &ReadBlocks,
        mut visit: impl FnMut(Logical),
    ) -> Outcome {
        let anchor = self.anchor().read(Nesting::Root);
        let mut logical = anchor.logical;
        let mut expected = self.expected_root(*anchor);
        let mut held = HeldLock::Anchor { _guard: anchor };
        let mut next = None;
        let mut parent = None;
        loop {
            let Some(node) = arrivals.find(store, logical) else {
                return Outcome::Detour(MissingBlock { logical, expected, unfit: None });
            };
            let guard = match store.lock_child(&node, logical, &expected) {
                Ok(guard) => guard,
                Err(error) => {
                    return Outcome::Detour(MissingBlock { logical, expected, unfit: Some(error) });
                }
            };
            visit(logical);
            drop(std::mem::replace(&mut held, HeldLock::Node(guard)));
            let HeldLock::Node(guard) = &held else { unreachable!("a node was just locked") };
            if guard.is_leaf() {
                return Outcome::Found(position(NodeRef::clone(guard), key, next, parent));
            }
            let slot = guard.child_slot(key);
            next = guard.next_child_key(slot).or(next);
            logical = guard.child(slot).logical;
            expected = Expectation { end: next, ..self.expected_child(guard, slot) };
            parent = Some((NodeRef::clone(guard), slot));
        }
    }

    /// Returns what a node records of the child in a slot.
    pub(crate) fn expected_child(&self, node: &NodeRef, slot: usize) -> Expectation {
        let child = node.child(slot);
        Expectation {
            owner: self.id(),
            level: node.header().level - 1,
            generation: child.generation,
            first_key: Some(child.key),
            end: node.next_child_key(slot),
        }
    }
}

fn position(
    leaf: NodeRef,
    key: &Key,
    next: Option<Key>,
    parent: Option<(NodeRef, usize)>,
) -> Position {
    let (slot, exact) = match leaf.search(key) {
        Ok(slot) => (slot, true),
        Err(slot) => (slot, false),
    };
    Position { leaf, slot, exact, next, parent }
}
