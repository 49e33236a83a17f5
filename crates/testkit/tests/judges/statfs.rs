//! The free space of one filesystem, as reported by us and by Linux.

use userbtrfs::mkfs::Options;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::skip_unless_linux;

use super::made::{MIB, Made};
use super::open_to_write;

const LEN: u64 = 256 * MIB;
const FILES: u64 = 4000;
/// The tolerance in bytes; Linux counts the global reserve of mixed block groups.
const MARGIN: u64 = 2 * MIB;

#[test]
fn space_left_after_many_small_files_is_what_linux_says() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    for (name, options) in [("default", Options::default()), ("mixed", Options::mixed())] {
        let device = Arc::new(Made::new(name, LEN, options).image().to_device());
        let filesystem = open_to_write(device.clone());
        let before = filesystem.space_left().unwrap().available;
        let mut least = before;
        for number in 0..FILES {
            filesystem.write(format!("/{number}"), vec![1; 4096]).unwrap();
            least = least.min(filesystem.space_left().unwrap().available);
        }
        let spent = before.saturating_sub(least);
        assert!(spent < 4 * FILES * 4096, "{name}: {spent} bytes for files that wait");
        filesystem.commit().unwrap();
        let ours = filesystem.space_left().unwrap().available;
        filesystem.close().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        device.image().write_to(&file).unwrap();
        let mount = linux.mount(&file, "noatime").unwrap();
        let shown = rustix::fs::statvfs(mount.path()).unwrap();
        let theirs = shown.f_bavail * shown.f_frsize;
        assert!(ours.abs_diff(theirs) < MARGIN, "{name}: {ours} by us, {theirs} by Linux");
    }
}

#[test]
fn space_is_left_while_writes_succeed() {
    for (name, options) in [("default", Options::default()), ("mixed", Options::mixed())] {
        let device = Arc::new(Made::new(name, 128 * MIB, options).image().to_device());
        let filesystem = open_to_write(device);
        let mut number = 0_u64;
        loop {
            let left = filesystem.space_left().unwrap().available;
            if filesystem.write(format!("/{number}"), vec![1; 64 << 10]).is_err() {
                break;
            }
            if left == 0 {
                // The last files may use space that is freed meanwhile. Dirty data, of which there
                // may be any amount, is free before it is written back.
                filesystem.commit().unwrap();
                let free = filesystem.space_left().unwrap().free;
                assert!(free < 16 * MIB, "{name}: nothing was left for file {number}, of {free}");
            }
            number += 1;
        }
        assert!(number * (64 << 10) > 64 * MIB, "{name}: {number} files");
        filesystem.abandon();
    }
}
