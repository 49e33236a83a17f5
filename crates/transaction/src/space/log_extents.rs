//! Space that is taken where it is, not where there is room: what a tree log names.
//!
//! 1. Nothing else was allocated before: what a log names was free when the log was written, as
//!    far as the trees know, and must not be given to anybody else.
//! 2. A block of a log is in no tree. It is pinned: free once the superblock is durable that no
//!    longer leads to it.
//! 3. An extent that a log names is allocated as if it had been asked for.

use userbtrfs_format::Logical;

use super::Space;
use super::block_groups::BlockGroups;
use super::damage::SpaceDamage;
use super::load::{self, Wanted};
use super::space_info::SpaceKind;
use crate::error::Result;
use crate::roots::TreeRoots;

impl Space {
    /// Pins a block of a log.
    pub fn pin_log_block(&self, tree_roots: &TreeRoots, logical: Logical) -> Result<()> {
        let len = u64::from(self.nodesize);
        self.load_group_of(tree_roots, logical)?;
        let mut block_groups = self.block_groups.lock();
        match block_groups.take_at(SpaceKind::Metadata, logical, len) {
            true => Ok(block_groups.pin(logical, len)?),
            false => Err(SpaceDamage::NotFree { logical, len }.into()),
        }
    }

    /// Takes `len` bytes for data at `logical`; says no, and takes nothing, where not all of it is
    /// free. No lock is held, and no tree of the books is being edited.
    pub fn take_data_at(&self, tree_roots: &TreeRoots, logical: Logical, len: u64) -> Result<bool> {
        self.load_group_of(tree_roots, logical)?;
        Ok(self.block_groups.lock().take_at(SpaceKind::Data, logical, len))
    }

    /// Reads the free space of the block group that an address lies in.
    fn load_group_of(&self, tree_roots: &TreeRoots, logical: Logical) -> Result<()> {
        loop {
            let next = self.block_groups.lock().unloaded_at(logical).map(|group| {
                let wanted =
                    Wanted { start: group.start(), len: group.chunk.len, unit: group.unit() };
                (wanted, group.version())
            });
            let Some((wanted, version)) = next else { return Ok(()) };
            let free = load::free_ranges(tree_roots, wanted)?;
            self.block_groups.lock().load(wanted.start, version, free)?;
        }
    }
}

impl BlockGroups {
    /// Takes a range of a group of this kind; says no where not all of it is free.
    fn take_at(&mut self, kind: SpaceKind, logical: Logical, len: u64) -> bool {
        let Some(start) = self.start_of_group(kind, logical, len) else { return false };
        self.change(start, |group| group.take_at(logical, len))
    }
}
