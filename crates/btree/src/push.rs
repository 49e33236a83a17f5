//! Moves of items from a full leaf to a neighbour, so that fewer leaves are split and the leaves of
//! a tree are fuller.
//!
//! 1. Nothing is read for this: only a neighbour that is in memory, and that no other tree shares
//!    or has shared, takes items.
//! 2. In a subvolume tree the neighbour is copied first if need be. That takes one block, as a
//!    split would; but the tree does not grow. In other trees, which the commit itself changes, it
//!    must be one that the running transaction may change in place: a copy would free a block,
//!    which is one more change of the extent tree.
//! 3. Half of the neighbour's free space is used, so that both leaves have space for the items
//!    that follow. A neighbour with little space is left alone: each move costs more than it
//!    delays the split.

use userbtrfs_format::Key;
use userbtrfs_sync::{Arc, OwnedWriteGuard};

use crate::NodeRef;
use crate::merge::Side;
use crate::path::{Path, PathNode};
use crate::source::{BlockRefs, NoSpace};
use crate::split::partition_point;

impl Path<'_> {
    /// Makes space in the leaf for `missing` more bytes for the item of `key` before `slot`, or in
    /// it, by moving other items to a neighbour; or makes the path end in the right neighbour, if
    /// the item can be its first. Returns false if neither neighbour has enough space.
    pub(crate) fn push_items(&mut self, key: Key, slot: usize, missing: usize) -> bool {
        let index = self.steps.len() - 1;
        if index == 0 {
            return false;
        }
        self.push_right(index, key, slot, missing) || self.push_left(index, slot, missing)
    }

    fn push_right(&mut self, index: usize, key: Key, slot: usize, missing: usize) -> bool {
        let Some(right) = self.roomy_neighbour(index, Side::Right) else { return false };
        let own = &self.steps[index].guard;
        let half = right.free_space() / 2;
        if slot == own.len() {
            if own.free_space() + missing > half {
                return false;
            }
            let Ok(right) = self.writable_neighbour(index, Side::Right, right) else {
                return false;
            };
            let slot = self.steps[index - 1].slot + 1;
            self.steps[index - 1].block_mut().set_child_key(slot, key);
            self.steps[index - 1].slot = slot;
            self.steps[index] = PathNode { guard: right, slot: 0 };
            return true;
        }
        // The item to be changed stays, and the leaf keeps a first key.
        let first = if own.key(slot) == key { slot + 1 } else { slot.max(1) };
        let space_after = |at: usize| own.used_space() - own.space_before(at);
        let at = partition_point(first..own.len(), |at| space_after(at) > half);
        if space_after(at) < missing {
            return false;
        }
        let Ok(mut right) = self.writable_neighbour(index, Side::Right, right) else {
            return false;
        };
        self.steps[index].block_mut().move_tail(at, Arc::make_mut(&mut right));
        let above = &mut self.steps[index - 1];
        let slot = above.slot + 1;
        above.block_mut().set_child_key(slot, right.key(0));
        true
    }

    fn push_left(&mut self, index: usize, slot: usize, missing: usize) -> bool {
        let Some(left) = self.roomy_neighbour(index, Side::Left) else { return false };
        let own = &self.steps[index].guard;
        let half = left.free_space() / 2;
        // One item stays: the leaf has a first key.
        let end = slot.min(own.len() - 1);
        let at = partition_point(1..end + 1, |at| own.space_before(at) <= half) - 1;
        if own.space_before(at) < missing {
            return false;
        }
        let Ok(mut left) = self.writable_neighbour(index, Side::Left, left) else { return false };
        self.steps[index].block_mut().move_head(at, Arc::make_mut(&mut left));
        self.mend_keys(index);
        true
    }

    /// Returns the locked neighbour, if it may be changed or copied and has space for some items.
    fn roomy_neighbour(&self, index: usize, side: Side) -> Option<OwnedWriteGuard<NodeRef>> {
        let (guard, sharing) = self.neighbour(index, side)?;
        let is_exclusive = sharing.refs <= 1 && !sharing.full_backref;
        let is_roomy = guard.free_space() >= guard.area() / 16;
        let may_change = self.tools.is_current(&guard) || self.tools.tree.id().is_shareable();
        (is_exclusive && is_roomy && may_change).then_some(guard)
    }

    /// Returns the neighbour if it may be changed in place, else a copy that replaces it.
    fn writable_neighbour(
        &mut self,
        index: usize,
        side: Side,
        old: OwnedWriteGuard<NodeRef>,
    ) -> Result<OwnedWriteGuard<NodeRef>, NoSpace> {
        if self.tools.is_current(&old) {
            return Ok(old);
        }
        let header = old.header();
        let token = side.token_of_copy();
        let made = self.make(header.logical, 0, token, |bytes, new| old.copy_to(bytes, new))?;
        let copy = PathNode { guard: made, slot: 0 };
        let above = &mut self.steps[index - 1];
        let slot = side.of(above.slot).expect("the neighbour was there");
        let pointer = copy.pointer(above.guard.key(slot));
        above.block_mut().set_child(slot, &pointer);
        self.free(header, BlockRefs::ALONE);
        Ok(copy.guard)
    }
}
