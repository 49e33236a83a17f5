//! The blocks of logs.
//!
//! 1. A block that was not submitted to the device is freed at once when its tree drops it.
//! 2. The superblock may lead to any other dropped block until the superblock of a log commit that
//!    was sealed later is durable. Then the block is *reusable*, and a log allocates it first: so
//!    the logs of a transaction reuse a few addresses, however many syncs there are.
//! 3. A block that was ever submitted to the device belongs to the log until the commit, which pins
//!    all of them: so they are also discarded on the device, if freed space is.
//! 4. Logs are not shared, and their blocks are in no extent tree: there are no references to
//!    count.

use std::collections::BTreeSet;
use std::mem;

use userbtrfs_btree::{BlockRefs, BlockSource, NoSpace, RefChange, SourceError, Tree};
use userbtrfs_format::{Header, Logical, TreeId};
use userbtrfs_sync::{Class, Mutex};

use crate::space::{Space, SpaceKind};

/// The blocks of the logs of the running transaction.
pub(super) struct LogBlocks(Mutex<BlockSets>);

#[derive(Default, PartialEq, Eq)]
struct BlockSets {
    /// Not submitted since they were allocated; some were before that.
    unwritten: BTreeSet<Logical>,
    /// All that were ever submitted to the device.
    written: BTreeSet<Logical>,
    /// Written, and dropped since a log commit was last sealed.
    dropped: BTreeSet<Logical>,
    /// Dropped before that: the next superblock no longer leads to them.
    dropped_and_sealed: BTreeSet<Logical>,
    /// Written, and no superblock leads to them.
    reusable: BTreeSet<Logical>,
}

/// The blocks that logs had.
pub(super) struct DroppedBlocks {
    /// Blocks that were never written.
    pub(super) free: BTreeSet<Logical>,
    pub(super) pinned: BTreeSet<Logical>,
}

impl LogBlocks {
    pub(super) fn new() -> Self {
        // The same class as for delayed references, which track the blocks of other trees.
        Self(Mutex::new(Class::DelayedRefs, BlockSets::default()))
    }

    pub(super) fn is_empty(&self) -> bool {
        *self.0.lock() == BlockSets::default()
    }

    /// Seals a log commit: returns the blocks to write, by address. From now on they count as
    /// written.
    pub(super) fn seal(&self) -> BTreeSet<Logical> {
        let mut sets = self.0.lock();
        let mut dropped = mem::take(&mut sets.dropped);
        sets.dropped_and_sealed.append(&mut dropped);
        let unwritten = mem::take(&mut sets.unwritten);
        sets.written.extend(&unwritten);
        unwritten
    }

    /// Panics unless the block was submitted to the device and is still that of a log.
    pub(super) fn assert_submitted(&self, logical: Logical) {
        let sets = self.0.lock();
        let is_there = sets.written.contains(&logical) && !sets.reusable.contains(&logical);
        assert!(is_there, "a superblock would lead to log block {logical}, which is not written");
    }

    /// Records that the superblock of the log commit that was sealed last is durable.
    pub(super) fn superblock_is_durable(&self) {
        let mut sets = self.0.lock();
        let mut dropped_and_sealed = mem::take(&mut sets.dropped_and_sealed);
        sets.reusable.append(&mut dropped_and_sealed);
    }

    /// Takes all blocks, so that there are none.
    pub(super) fn take(&self) -> DroppedBlocks {
        let BlockSets { unwritten, written: pinned, .. } = mem::take(&mut *self.0.lock());
        DroppedBlocks { free: unwritten.difference(&pinned).copied().collect(), pinned }
    }

    /// Returns a lower bound of the number of blocks that the commit frees.
    pub(super) fn freeable(&self) -> u64 {
        self.0.lock().written.len() as u64
    }
}

/// The source of blocks for log trees.
pub(super) struct LogSource<'a> {
    pub(super) space: &'a Space,
    pub(super) blocks: &'a LogBlocks,
    pub(super) generation: u64,
    pub(super) nodesize: u64,
}

impl BlockSource for LogSource<'_> {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn allocate(&self, _tree: TreeId, _level: u8, near: Logical) -> Result<Logical, NoSpace> {
        let mut sets = self.blocks.0.lock();
        let logical = match sets.reusable.pop_first() {
            Some(logical) => logical,
            None => self.space.allocate_block(SpaceKind::Metadata, near)?,
        };
        sets.unwritten.insert(logical);
        Ok(logical)
    }

    fn free(&self, _tree: TreeId, block: &Header) {
        let mut sets = self.blocks.0.lock();
        let is_unwritten = sets.unwritten.remove(&block.logical);
        match (is_unwritten, sets.written.contains(&block.logical)) {
            (true, true) => assert!(sets.reusable.insert(block.logical), "it was allocated"),
            (true, false) => {
                let freed = self.space.give_back(block.logical, self.nodesize);
                freed.expect("it was allocated by this transaction");
            }
            (false, was_written) => {
                assert!(was_written && sets.dropped.insert(block.logical), "it was allocated");
            }
        }
    }

    fn sharing(&self, _block: Logical) -> Option<BlockRefs> {
        Some(BlockRefs::ALONE)
    }

    fn load_refs(&self, _block: Logical, _level: u8) -> Result<(), SourceError> {
        Ok(())
    }

    fn reference(&self, _change: RefChange) {
        unreachable!("logs are not shared");
    }

    fn drop_if_shared(&self, _change: RefChange) -> Option<BlockRefs> {
        unreachable!("logs are not shared");
    }

    fn set_full_backref(&self, _block: Logical, _level: u8) {
        unreachable!("logs are not shared");
    }

    fn root_changed(&self, _tree: &Tree) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Logical = Logical(1 << 20);

    #[test]
    fn block_that_a_group_sealed_counts_as_submitted() {
        let blocks = LogBlocks::new();
        blocks.0.lock().unwritten.insert(AT);
        assert_eq!(blocks.seal(), BTreeSet::from([AT]));
        blocks.assert_submitted(AT);
    }

    #[test]
    #[should_panic(expected = "which is not written")]
    fn block_that_was_never_submitted_panics() {
        let blocks = LogBlocks::new();
        blocks.0.lock().unwritten.insert(AT);
        blocks.assert_submitted(AT);
    }

    #[test]
    #[should_panic(expected = "which is not written")]
    fn block_that_may_be_reused_panics() {
        let blocks = LogBlocks::new();
        blocks.0.lock().written.insert(AT);
        blocks.0.lock().reusable.insert(AT);
        blocks.assert_submitted(AT);
    }
}
