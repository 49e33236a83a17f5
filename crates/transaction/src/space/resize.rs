//! The size of the device of an open filesystem.
//!
//! 1. Space beyond the end is taken from the free space of the device under the lock that all
//!    chunks are made under: no chunk is made there any more.
//! 2. The size in memory changes in a transaction whose commit writes it: see
//!    [`Volume::set_device_size`](userbtrfs_volume::Volume::set_device_size).

use super::Space;

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
}
