//! Removal of a new filesystem.

use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_format::{Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use userbtrfs_mkfs::{Options, Uuid, make, unmake};

/// A device size with one mirror of the superblock.
const LEN: usize = 65 << 20;

fn is_zero(device: &MemoryDevice, at: Physical) -> bool {
    device.read(at.0, SUPERBLOCK_SIZE).unwrap().iter().all(|byte| *byte == 0)
}

#[test]
fn unmake_clears_all_superblock_copies() {
    let device = MemoryDevice::new(LEN);
    let made = make(&device, &Options::default()).unwrap();
    let [primary, mirror, _] = SUPERBLOCK_OFFSETS;
    assert!(!is_zero(&device, primary) && !is_zero(&device, mirror));
    assert!(unmake(&device, made.fsid).unwrap());
    assert!(is_zero(&device, primary) && is_zero(&device, mirror));
    assert!(!unmake(&device, made.fsid).unwrap(), "it was gone");
    make(&device, &Options::default()).unwrap();
}

#[test]
fn unmake_other_fsid_changes_nothing() {
    let device = MemoryDevice::new(LEN);
    make(&device, &Options::default()).unwrap();
    let before = device.snapshot();
    assert!(!unmake(&device, Uuid::from_u128(1)).unwrap());
    assert!(device.snapshot() == before);
    let none = MemoryDevice::new(5000);
    assert!(!unmake(&none, Uuid::from_u128(1)).unwrap());
}
