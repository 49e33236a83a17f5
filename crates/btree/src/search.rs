//! Search: from the root to the leaf in which a key stands, or would.

use userbtrfs_format::{Expectation, Key, Logical};
use userbtrfs_sync::{Arc, Nesting, OwnedReadGuard, ReadGuard};
use userbtrfs_volume::ReadError;

use crate::tree::Root;
use crate::{Node, NodeRef, NodeStore, Tree};

/// Where a search ended. It holds the leaf's bytes and no lock.
pub struct Position {
    /// The leaf.
    pub leaf: NodeRef,
    /// The slot of the first item whose key is not less than the one searched; may be
    /// one past the last.
    pub slot: usize,
    /// Whether the item in that slot has exactly the key.
    pub exact: bool,
    /// The first key after the leaf; nothing in the last leaf.
    pub next: Option<Key>,
    /// The node above the leaf and the leaf's slot in it; nothing where the root is a leaf.
    pub parent: Option<(NodeRef, usize)>,
}

/// What a descent holds: the anchor at first, then one node after the other.
enum Held<'a> {
    Anchor { _guard: ReadGuard<'a, Root> },
    Node(OwnedReadGuard<NodeRef>),
}

/// How far a descent came.
enum Outcome {
    Found(Position),
    /// This block is not in the cache.
    Missing(Logical, Expectation),
}

impl Tree {
    /// The leaf in which `key` stands or would stand.
    pub fn search(&self, store: &NodeStore, key: &Key) -> Result<Position, ReadError> {
        self.search_with(store, key, |logical, expected| store.load(logical, expected))
    }

    /// A search that reads what is missing through `load`.
    pub(crate) fn search_with(
        &self,
        store: &NodeStore,
        key: &Key,
        mut load: impl FnMut(Logical, &Expectation) -> Result<Arc<Node>, ReadError>,
    ) -> Result<Position, ReadError> {
        // What was read for this search stays until it ends, however small the cache.
        let mut loaded: Vec<(Logical, Arc<Node>)> = Vec::new();
        loop {
            match self.descend(store, key, &loaded)? {
                Outcome::Found(position) => return Ok(position),
                Outcome::Missing(logical, expected) => {
                    loaded.push((logical, load(logical, &expected)?));
                }
            }
        }
    }

    fn descend(
        &self,
        store: &NodeStore,
        key: &Key,
        loaded: &[(Logical, Arc<Node>)],
    ) -> Result<Outcome, ReadError> {
        let find = |logical: Logical| {
            let mut own = loaded.iter().filter(|(at, _)| *at == logical);
            own.next().map(|(_, node)| Arc::clone(node)).or_else(|| store.cached(logical))
        };
        let anchor = self.anchor().read(Nesting::Root);
        let (mut logical, mut expected) = (anchor.logical, self.expected_root(*anchor));
        let mut held = Held::Anchor { _guard: anchor };
        let (mut next, mut parent) = (None, None);
        loop {
            let Some(node) = find(logical) else {
                return Ok(Outcome::Missing(logical, expected));
            };
            let guard = store.lock_child(&node, logical, &expected)?;
            drop(std::mem::replace(&mut held, Held::Node(guard)));
            let Held::Node(guard) = &held else { unreachable!("a node was just locked") };
            if guard.is_leaf() {
                return Ok(Outcome::Found(position(NodeRef::clone(guard), key, next, parent)));
            }
            let slot = guard.child_slot(key);
            next = guard.next_child_key(slot).or(next);
            logical = guard.child(slot).logical;
            expected = Expectation { end: next, ..self.expected_child(guard, slot) };
            parent = Some((NodeRef::clone(guard), slot));
        }
    }

    /// What a node says of the child in a slot.
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
