//! Merging: sparse blocks are merged with a neighbour, empty blocks are removed.
//!
//! 1. A neighbour that is not in memory is not read for this: the tree is valid without the merge.
//! 2. Two neighbours are merged into the one that is on the path; the other is freed, as if it
//!    had been copied.
//! 3. A root that is left with one child is replaced by it in the same change, if the child is in
//!    memory.

use userbtrfs_format::Expectation;
use userbtrfs_sync::{Nesting, OwnedWriteGuard, TreeLock};

use crate::NodeRef;
use crate::edit::is_sparse;
use crate::path::Path;
use crate::source::BlockRefs;

/// The side of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Path<'_> {
    /// Removes or merges empty and sparse nodes of the path after items of its leaf were removed.
    /// Consumes the path.
    pub(crate) fn close_gaps(mut self) {
        for index in (1..self.steps.len()).rev() {
            // A neighbour is locked only while no node below it is.
            self.steps.truncate(index + 1);
            let block = &self.steps[index].guard;
            if block.is_empty() {
                self.remove_last();
            } else if is_sparse(block) {
                self.merge(index);
            } else {
                break;
            }
        }
        self.lower_roots();
    }

    /// Replaces roots that have a single child by it, as long as the child is in memory.
    fn lower_roots(&mut self) {
        let is_alone = |root: &NodeRef| !root.is_leaf() && root.len() == 1;
        while is_alone(&self.steps[0].guard) {
            let held = self.steps.len() > 1 || self.enter().and_then(|()| self.copy_last()).is_ok();
            // If the child cannot be locked and copied now, the next path from the root does this.
            if !held {
                return;
            }
            self.lower_root();
        }
    }

    /// Removes the empty node at the end of the path from its parent.
    fn remove_last(&mut self) {
        let gone = self.steps.pop().expect("the root is never removed");
        let index = self.steps.len() - 1;
        let above = &mut self.steps[index];
        let slot = above.slot;
        above.block_mut().remove_children(slot..slot + 1);
        let is_first = slot == 0 && !above.guard.is_empty();
        above.slot = slot.min(above.guard.len().saturating_sub(1));
        if is_first {
            self.mend_keys(index);
        }
        self.free(gone.guard.header(), BlockRefs::ALONE);
    }

    /// Merges a neighbour into the node at `index`, if one is in memory that fits.
    fn merge(&mut self, index: usize) {
        for side in [Side::Right, Side::Left] {
            if let Some((neighbour, sharing)) = self.mergeable(index, side) {
                return self.join(index, side, &neighbour, sharing);
            }
        }
    }

    /// Returns the locked neighbour, if both nodes fit into one.
    fn mergeable(&self, index: usize, side: Side) -> Option<(OwnedWriteGuard<NodeRef>, BlockRefs)> {
        let (guard, sharing) = self.neighbour(index, side)?;
        let own = &self.steps[index].guard;
        // Leave some space, so that the next item does not split the node again.
        let fits = own.used_space() + guard.used_space() <= own.area() / 4 * 3;
        fits.then_some((guard, sharing))
    }

    /// Returns the locked neighbour of the last node of the path, which is at `index`, if it is in
    /// memory and its references are known.
    pub(crate) fn neighbour(
        &self,
        index: usize,
        side: Side,
    ) -> Option<(OwnedWriteGuard<NodeRef>, BlockRefs)> {
        let above = &self.steps[index - 1];
        let slot = side.of(above.slot).filter(|slot| *slot < above.guard.len())?;
        let expected = self.tools.tree.expected_child(&above.guard, slot);
        let end = above.guard.next_child_key(slot).or_else(|| self.end_of(index - 1));
        let expected = Expectation { end, ..expected };
        let logical = above.guard.child(slot).logical;
        let node = self.tools.arrivals.find(self.tools.store, logical)?;
        if node.label().level != expected.level {
            return None;
        }
        let guard = TreeLock::write_owned(&node, side.token());
        let sound = guard.check_expected(&expected).is_ok();
        let sharing = self.tools.sharing(&guard, false).ok()?;
        sound.then_some((guard, sharing))
    }

    fn join(
        &mut self,
        index: usize,
        side: Side,
        neighbour: &OwnedWriteGuard<NodeRef>,
        sharing: BlockRefs,
    ) {
        let sharing = self.tools.drop_shared_block(neighbour, sharing);
        self.tools.update_refs_for_cow(neighbour, sharing);
        let above = &mut self.steps[index - 1];
        let slot = side.of(above.slot).expect("the neighbour was there");
        above.block_mut().remove_children(slot..slot + 1);
        let own = self.steps[index].block_mut();
        match side {
            Side::Right => own.append_all(neighbour),
            Side::Left => {
                own.prepend_all(neighbour);
                self.steps[index - 1].slot = slot;
                self.mend_keys(index);
            }
        }
        self.free(neighbour.header(), sharing);
    }
}

impl Side {
    /// Returns the slot of the neighbour on this side of the child in `slot`.
    pub(crate) fn of(self, slot: usize) -> Option<usize> {
        match self {
            Self::Left => slot.checked_sub(1),
            Self::Right => slot.checked_add(1),
        }
    }

    /// Returns the lock token of a copy of the neighbour on this side.
    pub(crate) fn token_of_copy(self) -> Nesting {
        match self {
            Self::Left => Nesting::LeftCow,
            Self::Right => Nesting::RightCow,
        }
    }

    fn token(self) -> Nesting {
        match self {
            Self::Left => Nesting::Left,
            Self::Right => Nesting::Right,
        }
    }
}
