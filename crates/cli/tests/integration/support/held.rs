//! A filesystem whose device is held: what takes more memory than there is for dirty data waits.

use std::sync::Arc;

use userbtrfs::device::{FileDevice, FileOptions};
use userbtrfs::{Filesystem, OpenOptions};
use userbtrfs_testkit::devices::PausedDevice;

use super::made::Made;

/// The memory of the filesystem, in bytes: far less than what is copied.
const MEMORY: u64 = 16 << 20;

/// Holds all writes to the device until it is dropped, also in a panic.
pub(crate) struct Held(Arc<PausedDevice>);

impl Held {
    /// Opens a filesystem for writing, and holds its device.
    pub(crate) fn open(made: &Made) -> (Filesystem, Self) {
        let options = FileOptions { writable: true, ..FileOptions::default() };
        let device = FileDevice::open(made.image(), options).expect("it can be written");
        let device = Arc::new(PausedDevice::new(Arc::new(device)));
        let mut options = OpenOptions::new();
        options.write(true).commit_seconds(0).memory(MEMORY);
        let filesystem = options.open_devices(vec![device.clone()]).expect("it is sound");
        device.hold();
        (filesystem, Self(device))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}
