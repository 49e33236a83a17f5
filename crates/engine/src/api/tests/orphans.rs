//! Orphans: inodes without a name that an earlier run left.

use super::device::Failing;
use super::*;
use crate::inode::ops;

/// Leaves an orphan of `bytes` bytes, as a crash does; returns the bytes of data in use before.
fn left(lab: Lab, bytes: usize) -> (Lab, InodeId, u64) {
    let used = lab.data_in_use();
    let file = lab.create("file");
    file.write_all_at(&pattern(1, bytes), 0).unwrap();
    let id = file.inode().id();
    lab.fs.commit().unwrap();
    lab.fs.root().remove_file(b"file").unwrap();
    lab.fs.commit().unwrap();
    lab.fs.clone().abandon();
    drop(file);
    let Lab { device, memory, fs } = lab;
    drop(fs);
    let device = Arc::new(MemoryDevice::from_bytes(device.snapshot()));
    // A handle in a writable filesystem would delete it when dropped.
    let reading = OpenOptions::new().open_devices(vec![Arc::clone(&device) as Arc<dyn Device>]);
    assert_eq!(reading.unwrap().inode(id).metadata().unwrap().nlink, 0);
    (Lab::open(device, memory), id, used)
}

#[test]
fn orphan_of_a_crash_is_deleted_after_the_next_run() {
    // The second one is deleted in steps.
    for bytes in [100_000, 9 << 20] {
        let (lab, id, used) = left(Lab::new(), bytes);
        assert_eq!(lab.data_in_use(), used + (bytes as u64).next_multiple_of(4096));
        let lab = lab.reopened();
        assert!(matches!(lab.fs.inode(id).metadata(), Err(Error::NoInode(_))));
        assert_eq!(lab.data_in_use(), used);
        lab.close();
    }
}

#[test]
fn failed_deletion_is_retried_later_or_on_close() {
    for closes in [false, true] {
        let device = Failing::new(256);
        let fs = device.open(32 << 20);
        let used = data_in_use(&fs);
        let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
        // Many leaves, and more extents than one step deletes.
        (0..1500).for_each(|n| file.write_all_at(&[1; 4096], 8192 * n).unwrap());
        let id = file.inode().id();
        drop(file);
        fs.close().unwrap();

        let fs = device.open(32 << 20);
        let file = fs.open_file("file").unwrap();
        fs.remove_file("file").unwrap();
        fs.commit().unwrap();
        device.allow_reads(0);
        drop(file);
        device.allow_all_reads();
        fs.commit().unwrap();
        assert!(data_in_use(&fs) > used, "it could not be deleted");
        if !closes {
            fs.create_dir("other", 0o755).unwrap();
            fs.commit().unwrap();
            ops::delete_later(&fs.inner.namespace);
            fs.commit().unwrap();
            assert_eq!(data_in_use(&fs), used);
        }
        fs.close().unwrap();
        check(&device.memory);
        let reading = OpenOptions::new().open_devices(vec![Arc::clone(&device) as Arc<dyn Device>]);
        let reading = reading.unwrap();
        assert!(matches!(reading.inode(id).metadata(), Err(Error::NoInode(_))));
        assert_eq!(data_in_use(&reading), used);
    }
}
