//! Splits of full blocks, and a new root above a root that is split.

use std::ops::Range;

use userbtrfs_format::{Key, MAX_LEVEL};
use userbtrfs_sync::{Arc, Nesting, OwnedWriteGuard};
use userbtrfs_volume::TreeBlock;

use crate::NodeRef;
use crate::path::{Path, PathNode, Restart};

impl Path<'_> {
    /// Splits the leaf so that there is more space for an item of `key` before `slot`. The path
    /// then ends in the leaf where the key belongs.
    pub(crate) fn split_leaf(&mut self, key: Key, slot: usize) -> Result<(), Restart> {
        if self.steps.len() == 1 {
            self.raise_root()?;
        }
        let index = self.steps.len() - 1;
        let leaf = &self.steps[index].guard;
        let at = split_slot(leaf, slot);
        let right = if at == leaf.len() { key } else { leaf.key(at) };
        // A split at slot 0 leaves an empty left half for the new item alone.
        let left = if at == 0 { key } else { leaf.key(0) };
        self.split(index, at, [left, right], key >= right)?;
        Ok(())
    }

    /// Splits the node at `index` before the slot `at`, into halves with these first keys. The
    /// path continues in the right half if `turns`, else in the left one. Returns the index of
    /// that half in the path.
    fn split(
        &mut self,
        index: usize,
        at: usize,
        [left, first]: [Key; 2],
        turns: bool,
    ) -> Result<usize, Restart> {
        let index = if index == 0 { self.raise_root()? } else { index };
        let index = self.make_room_for_child(index - 1)? + 1;
        let right = PathNode { guard: self.split_off(index, at)?, slot: 0 };
        // Nothing fails from here on.
        self.set_keys(index, left);
        let above = &mut self.steps[index - 1];
        let slot = above.slot + 1;
        above.block_mut().insert_child(slot, &right.pointer(first));
        if turns {
            above.slot = slot;
            let step = &mut self.steps[index];
            *step = PathNode { slot: step.slot.saturating_sub(at), ..right };
        }
        Ok(index)
    }

    /// Moves the entries from the slot `at` on into a new block.
    fn split_off(&mut self, index: usize, at: usize) -> Result<OwnedWriteGuard<NodeRef>, Restart> {
        let header = self.steps[index].guard.header().clone();
        let mut right = self.create(&header, header.level, Nesting::Split)?;
        let left = self.steps[index].block_mut();
        if at < left.len() {
            left.move_tail(at, Arc::make_mut(&mut right));
        }
        Ok(right)
    }

    /// Ensures that the node at `index` has space for one more pointer; returns its index, which
    /// may change.
    fn make_room_for_child(&mut self, index: usize) -> Result<usize, Restart> {
        let node = &self.steps[index].guard;
        let len = node.len();
        if len < node.pointers_max() {
            return Ok(index);
        }
        // More pointers probably follow one that is added at the end.
        let slot = self.steps[index].slot;
        let at = if slot + 1 == len { len - 1 } else { len / 2 };
        let keys = [node.key(0), node.key(at)];
        self.split(index, at, keys, slot >= at)
    }

    /// Puts a new root above the old one; returns the index of the old one.
    fn raise_root(&mut self) -> Result<usize, Restart> {
        let old = &self.steps[0];
        let header = old.guard.header();
        if header.level >= MAX_LEVEL {
            return Err(Restart::TooHigh(self.tools.tree.id()));
        }
        let mut root = self.create(header, header.level + 1, Nesting::NewRoot)?;
        let pointer = old.pointer(old.guard.key(0));
        Arc::make_mut(&mut root).insert_child(0, &pointer);
        self.steps.insert(0, PathNode { guard: root, slot: 0 });
        self.set_root();
        Ok(1)
    }
}

/// Returns the slot at which to split a leaf for an item to be inserted before `slot`: the
/// middle, or `slot` itself if that is near the end, since more items may follow.
fn split_slot(leaf: &TreeBlock, slot: usize) -> usize {
    let len = leaf.len();
    let used = leaf.used_space();
    if slot > 0 && leaf.space_before(slot) >= used / 4 * 3 {
        return slot;
    }
    partition_point(1.min(len - 1)..len - 1, |slot| leaf.space_before(slot) < used / 2)
}

/// Returns the first slot for which `is_before` is false; the end of `slots` if it is true for
/// all. It is true for no slot after one for which it is false.
pub(crate) fn partition_point(slots: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = slots;
    while start < end {
        let middle = usize::midpoint(start, end);
        if is_before(middle) { start = middle + 1 } else { end = middle }
    }
    start
}
