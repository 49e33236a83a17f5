//! The blocks of logs.
//!
//! 1. A block that was not submitted to the device is freed at once when its tree drops it.
//! 2. Any other dropped block is *left*: the superblock may lead to it until the superblock of a
//!    group that was sealed later is durable. Then it is *spare*, and a log allocates it first: so
//!    the logs of a transaction reuse a few places, however many syncs there are.
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
pub(super) struct LogBlocks(Mutex<Taken>);

#[derive(Default, PartialEq, Eq)]
struct Taken {
    /// Not submitted since they were allocated; some were before that.
    unwritten: BTreeSet<Logical>,
    /// All that were ever submitted to the device.
    written: BTreeSet<Logical>,
    /// Left since a group was last sealed.
    left: BTreeSet<Logical>,
    /// Left before that.
    leaving: BTreeSet<Logical>,
    spare: BTreeSet<Logical>,
}

/// The blocks that logs had.
pub(super) struct Dropped {
    /// Blocks that were never written.
    pub(super) free: BTreeSet<Logical>,
    pub(super) pinned: BTreeSet<Logical>,
}

impl LogBlocks {
    pub(super) fn new() -> Self {
        // The same class as for delayed references, which track the blocks of other trees.
        Self(Mutex::new(Class::DelayedRefs, Taken::default()))
    }

    pub(super) fn is_empty(&self) -> bool {
        *self.0.lock() == Taken::default()
    }

    /// Seals a group: returns the blocks to write, by address. From now on they count as written.
    pub(super) fn seal(&self) -> BTreeSet<Logical> {
        let mut taken = self.0.lock();
        let mut left = mem::take(&mut taken.left);
        taken.leaving.append(&mut left);
        let unwritten = mem::take(&mut taken.unwritten);
        taken.written.extend(&unwritten);
        unwritten
    }

    /// Records that the superblock of the group that was sealed last is durable.
    pub(super) fn superblock_is_durable(&self) {
        let mut taken = self.0.lock();
        let mut leaving = mem::take(&mut taken.leaving);
        taken.spare.append(&mut leaving);
    }

    /// Takes all blocks; none are left.
    pub(super) fn take(&self) -> Dropped {
        let Taken { unwritten, written: pinned, .. } = mem::take(&mut *self.0.lock());
        Dropped { free: unwritten.difference(&pinned).copied().collect(), pinned }
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
        let mut taken = self.blocks.0.lock();
        let logical = match taken.spare.pop_first() {
            Some(spare) => spare,
            None => self.space.allocate_block(SpaceKind::Metadata, near)?,
        };
        taken.unwritten.insert(logical);
        Ok(logical)
    }

    fn free(&self, _tree: TreeId, block: &Header) {
        let mut taken = self.blocks.0.lock();
        let is_unwritten = taken.unwritten.remove(&block.logical);
        match (is_unwritten, taken.written.contains(&block.logical)) {
            (true, true) => assert!(taken.spare.insert(block.logical), "it was taken"),
            (true, false) => {
                let freed = self.space.give_back(block.logical, self.nodesize);
                freed.expect("it was allocated by this transaction");
            }
            (false, was_written) => {
                assert!(was_written && taken.left.insert(block.logical), "it was taken");
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

    fn set_full_backref(&self, _block: Logical, _level: u8) {
        unreachable!("logs are not shared");
    }

    fn root_changed(&self, _tree: &Tree) {}
}
