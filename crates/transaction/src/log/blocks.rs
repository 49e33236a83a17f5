//! The blocks of logs.
//!
//! 1. A block that is not on its way to the device is free at once when its tree leaves it.
//! 2. Any other is *left*: the superblock may lead to it, until that of a group is durable which
//!    was sealed after. Then it is *spare*, and a log that wants a block gets it first: so the logs
//!    of a transaction go round in a few places, however often something is made durable.
//! 3. What was once on its way to the device is the log's until the commit, which pins all of it:
//!    so it is given back to the device, too, where freed space is.
//! 4. Nobody shares a log, and its blocks are in no extent tree: there are no references to count.

use std::collections::BTreeSet;
use std::mem;

use userbtrfs_btree::{BlockRefs, BlockSource, NoSpace, RefChange, SourceError, Tree};
use userbtrfs_format::{Header, Logical, TreeId};
use userbtrfs_sync::{Class, Mutex};

use crate::space::{Space, SpaceKind};

/// Which blocks the logs of the running transaction have.
pub(super) struct LogBlocks(Mutex<Taken>);

#[derive(Default, PartialEq, Eq)]
struct Taken {
    /// Not on their way, but maybe before.
    unwritten: BTreeSet<Logical>,
    /// All that ever were on their way.
    written: BTreeSet<Logical>,
    /// Left since a group was sealed last.
    left: BTreeSet<Logical>,
    /// Left before that.
    leaving: BTreeSet<Logical>,
    spare: BTreeSet<Logical>,
}

/// The blocks that logs had.
pub(super) struct Dropped {
    /// They were never written.
    pub(super) free: BTreeSet<Logical>,
    pub(super) pinned: BTreeSet<Logical>,
}

impl LogBlocks {
    pub(super) fn new() -> Self {
        // As delayed references tell of the blocks of other trees.
        Self(Mutex::new(Class::DelayedRefs, Taken::default()))
    }

    pub(super) fn is_empty(&self) -> bool {
        *self.0.lock() == Taken::default()
    }

    /// Seals a group: gives the blocks that are to be written, by address. From now on they count
    /// as written.
    pub(super) fn seal(&self) -> BTreeSet<Logical> {
        let mut taken = self.0.lock();
        let mut left = mem::take(&mut taken.left);
        taken.leaving.append(&mut left);
        let unwritten = mem::take(&mut taken.unwritten);
        taken.written.extend(&unwritten);
        unwritten
    }

    /// The superblock is durable of the group that was sealed last.
    pub(super) fn superblock_is_durable(&self) {
        let mut taken = self.0.lock();
        let mut leaving = mem::take(&mut taken.leaving);
        taken.spare.append(&mut leaving);
    }

    /// All blocks. There are none from now on.
    pub(super) fn take(&self) -> Dropped {
        let Taken { unwritten, written: pinned, .. } = mem::take(&mut *self.0.lock());
        Dropped { free: unwritten.difference(&pinned).copied().collect(), pinned }
    }

    /// How many blocks the commit frees, at least.
    pub(super) fn freeable(&self) -> u64 {
        self.0.lock().written.len() as u64
    }
}

/// How the trees of logs get their blocks.
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
        unreachable!("nobody shares a log");
    }

    fn set_full_backref(&self, _block: Logical, _level: u8) {
        unreachable!("nobody shares a log");
    }

    fn root_changed(&self, _tree: &Tree) {}
}
