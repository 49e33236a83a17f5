//! The blocks of logs.
//!
//! 1. A block that is not on its way to the device is free at once when its tree leaves it, any
//!    other when the transaction is durable.
//! 2. Nobody shares a log, and its blocks are in no extent tree: there are no references to count.

use std::collections::BTreeSet;
use std::mem;

use userbtrfs_btree::{BlockSource, NoSpace, RefChange, Sharing, SourceError, Tree};
use userbtrfs_format::{Header, Logical, TreeId};
use userbtrfs_sync::{Class, Mutex};

use crate::space::{Kind, Space};

/// Which blocks the logs of the running transaction have.
pub(super) struct LogBlocks(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    unwritten: BTreeSet<Logical>,
    written: BTreeSet<Logical>,
}

impl LogBlocks {
    pub(super) fn new() -> Self {
        // As delayed references tell of the blocks of other trees.
        Self(Mutex::new(Class::DelayedRefs, Taken::default()))
    }

    pub(super) fn is_empty(&self) -> bool {
        let taken = self.0.lock();
        taken.unwritten.is_empty() && taken.written.is_empty()
    }

    /// The blocks that are to be written, by address. From now on they count as written.
    pub(super) fn take_unwritten(&self) -> BTreeSet<Logical> {
        let mut taken = self.0.lock();
        let unwritten = mem::take(&mut taken.unwritten);
        taken.written.extend(&unwritten);
        unwritten
    }

    /// All blocks: those that are not written, and the others. There are none from now on.
    pub(super) fn take(&self) -> (BTreeSet<Logical>, BTreeSet<Logical>) {
        let Taken { unwritten, written } = mem::take(&mut *self.0.lock());
        (unwritten, written)
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
        let logical = self.space.allocate_block(Kind::Metadata, near)?;
        self.blocks.0.lock().unwritten.insert(logical);
        Ok(logical)
    }

    fn free(&self, _tree: TreeId, block: &Header) {
        let mut taken = self.blocks.0.lock();
        let unwritten = taken.unwritten.remove(&block.logical);
        assert!(unwritten || taken.written.remove(&block.logical), "it was taken");
        drop(taken);
        let freed = match unwritten {
            true => self.space.give_back(block.logical, self.nodesize),
            false => self.space.pin(block.logical, self.nodesize),
        };
        freed.expect("it was allocated by this transaction");
    }

    fn sharing(&self, _block: Logical) -> Option<Sharing> {
        Some(Sharing::ALONE)
    }

    fn learn_sharing(&self, _block: Logical, _level: u8) -> Result<(), SourceError> {
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
