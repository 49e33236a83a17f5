//! The label of an open filesystem.

use std::thread;

use userbtrfs_testkit::devices::PausedDevice;

use super::*;

/// The next superblock is not made from the one that the commit in flight leaves alone.
#[test]
fn label_set_beside_a_commit_is_kept() {
    const SUPERBLOCK: u64 = 64 << 10;
    let device = Arc::new(MemoryDevice::new(128 << 20));
    userbtrfs_mkfs::make(&*device, &Options::default()).unwrap();
    let paused = Arc::new(PausedDevice::new(device.clone() as _));
    let mut options = OpenOptions::new();
    options.write(true).commit_seconds(0);
    let filesystem = options.open_devices(vec![paused.clone() as _]).unwrap();
    filesystem.root().create(b"file", 0o644).unwrap();
    paused.hold_write_of(SUPERBLOCK);
    thread::scope(|scope| {
        scope.spawn(|| filesystem.commit().unwrap());
        while paused.waiting() < 1 {
            thread::yield_now();
        }
        scope.spawn(|| filesystem.set_label(b"new").unwrap());
        let transactions = filesystem.inner.transactions.as_ref().unwrap();
        while transactions.volume().new_label().is_none() {
            thread::yield_now();
        }
        paused.release();
    });
    assert_eq!(filesystem.superblock().label, b"new");
    filesystem.close().unwrap();
    let reopened = OpenOptions::new().open_devices(vec![device as _]).unwrap();
    assert_eq!(reopened.superblock().label, b"new");
}
