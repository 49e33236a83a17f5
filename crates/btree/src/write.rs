//! Making a tree, and changing its items in key order.
//!
//! 1. A leaf that the running transaction made is changed with nothing else locked for writing,
//!    as long as nothing above it has to change, and unless a snapshot of the tree was made in the
//!    transaction: a block above may be shared then.
//! 2. Otherwise the whole path from the root is locked, and copied as far as necessary.
//! 3. In both cases all changes that fall into the leaf are made while it is locked.
//! 4. Nothing is read while a tree lock is held: see [`crate::path`], invariant 3.

use userbtrfs_format::{Expectation, Logical, TreeId};
use userbtrfs_sync::{Arc, Nesting, OwnedReadGuard, ReadGuard};
use userbtrfs_volume::TreeBlock;
use uuid::Uuid;

use crate::edit::{Edit, EditError, Outcome, Reach, edit_leaf};
use crate::path::{Path, Restart, SearchContext};
use crate::search::{MissingBlock, ReadBlocks};
use crate::source::{BlockSource, NoSpace};
use crate::tree::Root;
use crate::{NodeRef, NodeStore, Tree};

impl Tree {
    /// Makes a new tree: its root is an empty leaf, allocated from `source`.
    pub fn create(
        id: TreeId,
        store: &NodeStore,
        source: &dyn BlockSource,
        chunk_tree_uuid: Uuid,
    ) -> Result<Self, NoSpace> {
        let root = store.make(source, id, 0, Logical(0), Nesting::Root, |bytes, new| {
            TreeBlock::empty(bytes, new, store.geometry(), chunk_tree_uuid)
        })?;
        let generation = source.generation();
        let logical = root.header().logical;
        let tree = store.tree(id, Root { logical, level: 0, generation });
        tree.grew(1);
        Ok(tree)
    }

    /// Makes changes, whose keys ascend strictly. If it fails, the changes before the one that
    /// failed are made, and no others.
    pub fn apply<E: Edit>(
        &self,
        store: &NodeStore,
        source: &dyn BlockSource,
        edits: &mut [E],
    ) -> Result<(), EditError> {
        assert!(edits.is_sorted_by(|a, b| a.key() < b.key()), "edits come in key order");
        let mut arrivals = ReadBlocks::default();
        let mut done = 0;
        while done < edits.len() {
            let tools = SearchContext { tree: self, store, source, arrivals: &arrivals };
            match tools.advance(&mut edits[done..]) {
                Ok(0) => unreachable!("a whole way changes at least one item"),
                Ok(count) => {
                    done += count;
                    arrivals = ReadBlocks::default();
                }
                Err(detour) => resolve(store, source, detour, &mut arrivals)?,
            }
        }
        Ok(())
    }
}

/// Loads what a restarted path needs, or returns the error that it ended with.
pub(crate) fn resolve(
    store: &NodeStore,
    source: &dyn BlockSource,
    detour: Restart,
    arrivals: &mut ReadBlocks,
) -> Result<(), EditError> {
    match detour {
        Restart::NoSpace(error) => Err(error.into()),
        Restart::TooHigh(tree) => Err(EditError::TooHigh(tree)),
        Restart::Sharing { logical, level } => {
            source.load_refs(logical, level).map_err(EditError::Source)
        }
        Restart::Missing(missing) => {
            Ok(arrivals.fetch(store, *missing, |at, expected| store.load(at, expected))?)
        }
    }
}

/// The lock that [`SearchContext::advance_in_leaf`] holds while it descends.
enum HeldWriteLock<'a> {
    Anchor { _guard: ReadGuard<'a, Root> },
    Node { _guard: OwnedReadGuard<NodeRef> },
}

impl SearchContext<'_> {
    /// Makes the first changes, all that fall into one leaf; returns their number.
    fn advance<E: Edit>(self, edits: &mut [E]) -> Result<usize, Restart> {
        if self.tree.last_snapshot() == self.source.generation() {
            return self.advance_on_way(edits);
        }
        match self.advance_in_leaf(edits)? {
            0 => self.advance_on_way(edits),
            count => Ok(count),
        }
    }

    /// Changes a leaf of the running transaction, as far as nothing above it has to change;
    /// returns the number of changes made.
    fn advance_in_leaf<E: Edit>(self, edits: &mut [E]) -> Result<usize, Restart> {
        let key = edits[0].key();
        let anchor = self.tree.anchor().read(Nesting::Root);
        let mut logical = anchor.logical;
        let mut expected = self.tree.expected_root(*anchor);
        let mut held = HeldWriteLock::Anchor { _guard: anchor };
        loop {
            if expected.generation != self.source.generation() {
                return Ok(0);
            }
            let missing = |unfit| Restart::missing(MissingBlock { logical, expected, unfit });
            let node = self.arrivals.find(self.store, logical).ok_or_else(|| missing(None))?;
            if expected.level == 0 {
                let leaf = self.store.lock_child_alone(&node, logical, &expected);
                let mut leaf = leaf.map_err(|error| missing(Some(error)))?;
                drop(held);
                if !self.is_current(&leaf) {
                    return Ok(0);
                }
                let leaf = Arc::make_mut(&mut leaf);
                let within = |edit: &E| expected.end.is_none_or(|end| edit.key() < end);
                let done = |edit: &mut E| edit_leaf(leaf, edit, Reach::Leaf) == Outcome::Done;
                let changed = edits.iter_mut().take_while(|edit| within(edit)).map(done);
                return Ok(changed.take_while(|done| *done).count());
            }
            let guard = self.store.lock_child(&node, logical, &expected);
            let guard = guard.map_err(|error| missing(Some(error)))?;
            let slot = guard.child_slot(&key);
            let end = guard.next_child_key(slot).or(expected.end);
            logical = guard.child(slot).logical;
            expected = Expectation { end, ..self.tree.expected_child(&guard, slot) };
            held = HeldWriteLock::Node { _guard: guard };
        }
    }

    /// Changes a leaf with the whole path to it locked.
    fn advance_on_way<E: Edit>(self, edits: &mut [E]) -> Result<usize, Restart> {
        let mut path = Path::descend(self, &edits[0].key())?;
        let mut done = 0;
        while let Some(edit) = edits.get_mut(done) {
            let key = edit.key();
            if path.end().is_some_and(|end| end <= key) {
                break;
            }
            match edit_leaf(path.leaf_mut(), edit, Reach::Way) {
                Outcome::Done => done += 1,
                Outcome::FirstChanged => {
                    done += 1;
                    if path.leaf_mut().is_empty() {
                        break;
                    }
                    path.mend_keys(path.steps.len() - 1);
                }
                Outcome::NoRoom { slot, missing } => {
                    if !path.push_items(key, slot, missing) {
                        path.split_leaf(key, slot)?;
                    }
                }
                Outcome::Structure => unreachable!("the whole way is held"),
            }
        }
        path.close_gaps();
        Ok(done)
    }
}
