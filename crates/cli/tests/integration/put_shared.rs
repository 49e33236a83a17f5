//! `put --reflink`: data that files of the host share.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::ioctl_ficlone;
use userbtrfs::{ExtentKind, Filesystem, InodeFlags};
use userbtrfs_testkit::linux::{Linux, Mount, available_or_skip, btrfs_check};

use crate::support::made::Made;
use crate::support::pattern;

/// The length of the files that share data: no whole sectors.
const LEN: usize = 1_000_100;

/// The range of one of them that is written again, in whole sectors.
const CHANGED: std::ops::Range<usize> = 409_600..491_520;

/// A time after which the coarse clock has advanced.
const TICK: Duration = Duration::from_millis(50);

/// Makes a file that is a clone of another one.
fn clone(from: &Path, to: &Path) {
    ioctl_ficlone(File::create(to).unwrap(), File::open(from).unwrap()).unwrap();
}

/// Mounts a filesystem of Linux with a tree: `first`, `second`, a clone of it, and `third`, another
/// one that was overwritten in its middle.
fn host(linux: &Linux, made: &Made) -> Mount {
    btrfs_check(&made.image()).unwrap();
    let mount = linux.mount(&made.image(), "noatime").unwrap();
    let tree = mount.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("first"), pattern(LEN)).unwrap();
    clone(&tree.join("first"), &tree.join("second"));
    clone(&tree.join("first"), &tree.join("third"));
    let third = File::options().write(true).open(tree.join("third")).unwrap();
    third.write_all_at(&vec![7; CHANGED.len()], CHANGED.start as u64).unwrap();
    third.sync_all().unwrap();
    mount
}

/// Returns the addresses of the extents of a file of an image.
fn addresses(filesystem: &Filesystem, path: &str) -> BTreeSet<u64> {
    let extents = filesystem.open_file(path).unwrap().extents().unwrap();
    let address = |kind| match kind {
        ExtentKind::Data { logical, .. } => Some(logical),
        _ => None,
    };
    extents.into_iter().filter_map(|extent| address(extent.kind)).collect()
}

/// Asserts that the files of a copy of the tree have the contents of their sources.
fn assert_contents(filesystem: &Filesystem, tree: &str) {
    let mut third = pattern(LEN);
    third[CHANGED].fill(7);
    for (name, content) in [("first", pattern(LEN)), ("second", pattern(LEN)), ("third", third)] {
        assert!(filesystem.read(format!("{tree}/{name}")).unwrap() == content, "{tree}/{name}");
    }
}

#[test]
fn files_share_data_as_on_the_host_if_asked_to() {
    if !available_or_skip() {
        return;
    }
    let made = Made::new();
    let on_host = Made::new();
    let linux = Linux::lock().unwrap();
    let mount = host(&linux, &on_host);
    thread::sleep(TICK);
    let tree = mount.path().join("tree");
    made.does("put", &[tree.to_str().unwrap(), "/apart"]);
    made.does("put --reflink", &[tree.to_str().unwrap(), "/shared"]);
    drop((mount, linux));
    let filesystem = made.open();
    assert_contents(&filesystem, "/apart");
    assert_contents(&filesystem, "/shared");
    let of = |path: &str| addresses(&filesystem, path);
    assert!(of("/apart/first").is_disjoint(&of("/apart/second")));
    assert!(of("/apart/first").is_disjoint(&of("/apart/third")));
    assert_eq!(of("/shared/first"), of("/shared/second"));
    assert!(!of("/shared/first").is_disjoint(&of("/shared/third")));
    assert!(!of("/shared/third").is_subset(&of("/shared/first")));
    drop(filesystem);
    made.judge();
}

/// Files without checksums cannot share data with files that have some.
#[test]
fn data_that_the_image_cannot_share_is_copied() {
    if !available_or_skip() {
        return;
    }
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let plain = filesystem.create_dir("/plain", 0o755).unwrap();
    plain.inode().set_flags(InodeFlags::NODATACOW).unwrap();
    drop(plain);
    filesystem.create_dir("/other", 0o755).unwrap();
    filesystem.close().unwrap();
    let on_host = Made::new();
    let linux = Linux::lock().unwrap();
    let mount = host(&linux, &on_host);
    thread::sleep(TICK);
    // A second tree with clones of the same files, for the directory with checksums.
    let root = mount.path().join("root");
    for dir in ["plain", "other"] {
        fs::create_dir_all(root.join(dir)).unwrap();
        for name in ["first", "second", "third"] {
            clone(&mount.path().join("tree").join(name), &root.join(dir).join(name));
        }
    }
    thread::sleep(TICK);
    let source = root.join(".");
    made.does("put --reflink", &[source.to_str().unwrap(), "/"]);
    drop((mount, linux));
    let filesystem = made.open();
    assert_contents(&filesystem, "/plain");
    assert_contents(&filesystem, "/other");
    let of = |path: &str| addresses(&filesystem, path);
    assert_eq!(of("/plain/first"), of("/plain/second"));
    assert!(of("/plain/first").is_disjoint(&of("/other/first")));
    let flags = filesystem.metadata("/plain/first").unwrap().flags;
    assert!(flags.contains(InodeFlags::NODATASUM));
    drop(filesystem);
    made.judge();
}
