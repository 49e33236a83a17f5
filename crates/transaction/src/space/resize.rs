//! The size of the device of an open filesystem.
//!
//! 1. Space beyond the end is taken from the free space of the device under the lock that all
//!    chunks are made under: no chunk is made there any more.
//! 2. The size in memory changes in a transaction whose commit writes it: see
//!    [`Volume::set_device_size`](userbtrfs_volume::Volume::set_device_size).

use std::ops::Range;

use userbtrfs_format::Logical;

use super::nocow::RangeExclusion;
use super::{SYSTEM_BLOCKS, Space, SpaceKind};

impl Space {
    /// Returns the size of the device.
    pub(crate) fn device_len(&self) -> u64 {
        self.block_groups.lock().device_len()
    }

    /// Sets the size of the device; returns false, without effect, if chunks take
    /// space beyond that.
    pub(crate) fn set_device_len(&self, len: u64) -> bool {
        self.block_groups.lock().set_device_len(len)
    }

    /// Returns the block groups that take space of the device beyond `len`, by address.
    pub(crate) fn groups_beyond(&self, len: u64) -> Vec<Logical> {
        self.block_groups.lock().groups_beyond(len)
    }

    /// Returns the bytes of these block groups that are used.
    pub(crate) fn used_beyond(&self, len: u64) -> u64 {
        self.block_groups.lock().used_beyond(len)
    }

    /// Keeps new chunks below `limit`.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.block_groups.lock().set_limit(limit);
    }

    /// Allows chunks up to the end of the device again.
    pub(crate) fn clear_limit(&self) {
        self.block_groups.lock().clear_limit();
    }

    /// Excludes a block group from allocation; returns false if a reservation relies on it.
    pub(crate) fn freeze(&self, start: Logical) -> bool {
        self.block_groups.lock().freeze(start)
    }

    /// Allows allocation in a block group again.
    pub(crate) fn unfreeze(&self, start: Logical) {
        self.block_groups.lock().unfreeze(start);
    }

    /// Returns true if all that is allocated in a block group is in the extent tree.
    pub(crate) fn is_all_counted(&self, start: Logical) -> bool {
        self.block_groups.lock().is_all_counted(start)
    }

    /// Returns true if there is a block group at this address.
    pub(crate) fn has(&self, start: Logical) -> bool {
        self.block_groups.lock().has(start)
    }

    /// Returns the kind and the length of a block group.
    pub(crate) fn kind_and_len(&self, start: Logical) -> Option<(SpaceKind, u64)> {
        self.block_groups.lock().kind_and_len(start)
    }

    /// Returns true if there are blocks enough to copy `copied` of the chunk tree, and for other
    /// chunks to be made.
    pub(crate) fn has_system_blocks(&self, copied: u64) -> bool {
        self.free_blocks(SpaceKind::System) >= SYSTEM_BLOCKS.saturating_add(copied)
    }

    /// Makes a chunk of a kind, as allocations make theirs; returns true if there was space. The
    /// caller is in the running transaction, whose commit writes it.
    pub(crate) fn make_chunk_of(&self, kind: SpaceKind) -> bool {
        let mut block_groups = self.block_groups.lock();
        let made = self.make_chunk(&mut block_groups, kind);
        made.map(|chunk| block_groups.keep_planned(chunk)).is_ok()
    }

    /// Excludes that extents in a range are overwritten in place, and waits until none is.
    pub(crate) fn exclude_nocow_in(&self, range: Range<u64>) -> RangeExclusion {
        self.held.exclude_range(range)
    }
}
