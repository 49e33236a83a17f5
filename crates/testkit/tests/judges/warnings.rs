//! Warnings at opening an image, and the start of paths.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use userbtrfs::{Filesystem, PendingLog, Warning};
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::{walk_linux, walk_ours};

use super::{Unpacked, assert_same, open, shown};

/// The offset of the primary superblock, in bytes.
const PRIMARY: u64 = 64 << 10;

#[test]
fn a_log_that_stays_is_told_and_nothing_else() {
    for (golden, _) in shown() {
        let unpacked = Unpacked::new(&golden);
        let options = userbtrfs::OpenOptions::new().pending_log(PendingLog::Leave).clone();
        let filesystem = options.open(&unpacked.image).unwrap();
        let generation = filesystem.superblock().generation;
        let log = Warning::PendingLog { generation };
        let expected = if golden.has_log() { vec![log] } else { Vec::new() };
        assert_eq!(filesystem.warnings(), expected, "{}", golden.name());
    }
}

#[test]
fn a_damaged_primary_superblock_is_told_and_the_mirror_shows_the_same() {
    let golden = Golden::named("basic");
    let unpacked = Unpacked::new(&golden);
    let file = OpenOptions::new().write(true).open(&unpacked.image).unwrap();
    file.write_all_at(b"damage", PRIMARY + 200).unwrap();
    let filesystem = open(&unpacked.image, 256).unwrap();
    let [Warning::Mirror { used, .. }] = filesystem.warnings() else {
        panic!("{:?}", filesystem.warnings())
    };
    assert_eq!(used.0, 64 << 20);
    let ours = walk_ours::walk(&filesystem).unwrap();
    assert_same("basic", &golden.manifest().unwrap().unwrap(), &ours);
}

#[test]
fn paths_start_at_the_default_subvolume_as_those_of_a_mount() {
    skip_unless_linux!();
    let unpacked = Unpacked::new(&Golden::named("subvolumes"));
    let filesystem = Filesystem::open(&unpacked.image).unwrap();
    assert_ne!(filesystem.default_subvolume().unwrap(), userbtrfs::TreeId::FS);
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&unpacked.image, "ro,noatime").unwrap();
    let expected = walk_linux::walk(mount.path()).unwrap();
    assert_same("subvolumes", &expected, &walk_ours::walk(&filesystem).unwrap());
    linux.assert_no_complaints().unwrap();
}
