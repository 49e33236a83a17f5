//! Space that is allocated at a given address: the blocks and extents of a tree log.
//!
//! 1. Nothing else was allocated before: the space of a log was free when the log was written, as
//!    far as the trees record, and must not be allocated for anything else.
//! 2. A block of a log is in no tree. It is pinned: free once the superblock is durable that no
//!    longer leads to it.
//! 3. An extent that a log refers to is allocated like any other.

use userbtrfs_format::Logical;

use super::Space;
use super::block_groups::BlockGroups;
use super::damage::SpaceDamage;
use super::load::{self, GroupRange};
use super::space_info::SpaceKind;
use crate::error::Result;
use crate::roots::TreeRoots;

impl Space {
    /// Pins a block of a log.
    pub fn pin_log_block(&self, tree_roots: &TreeRoots, logical: Logical) -> Result<()> {
        let len = u64::from(self.nodesize);
        self.load_group_of(tree_roots, logical)?;
        let mut block_groups = self.block_groups.lock();
        if block_groups.take_at(SpaceKind::Metadata, logical, len) {
            Ok(block_groups.pin(logical, len)?)
        } else {
            Err(SpaceDamage::NotFree { logical, len }.into())
        }
    }

    /// Takes `len` bytes for data at `logical`; returns false, and takes nothing, if not all of it
    /// is free. No lock is held, and neither the extent tree nor the free space tree is being
    /// edited.
    pub fn take_data_at(&self, tree_roots: &TreeRoots, logical: Logical, len: u64) -> Result<bool> {
        self.load_group_of(tree_roots, logical)?;
        Ok(self.block_groups.lock().take_at(SpaceKind::Data, logical, len))
    }

    /// Reads the free space of the block group that an address lies in.
    fn load_group_of(&self, tree_roots: &TreeRoots, logical: Logical) -> Result<()> {
        loop {
            let next = self.block_groups.lock().unloaded_at(logical).map(|group| {
                let wanted =
                    GroupRange { start: group.start(), len: group.chunk.len, unit: group.unit() };
                (wanted, group.version())
            });
            let Some((wanted, version)) = next else { return Ok(()) };
            let free = load::free_ranges(tree_roots, wanted)?;
            self.block_groups.lock().load(wanted.start, version, free)?;
        }
    }
}

impl BlockGroups {
    /// Takes a range of a group of this kind; returns false if not all of it is free.
    fn take_at(&mut self, kind: SpaceKind, logical: Logical, len: u64) -> bool {
        let Some(start) = self.start_of_group(kind, logical, len) else { return false };
        self.change(start, |group| group.take_at(logical, len))
    }
}
