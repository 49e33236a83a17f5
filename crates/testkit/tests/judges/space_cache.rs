//! The space caches of older kernels (`space_cache=v1`), which our first commit removes.
//!
//! 1. After a crash at any write of that commit the filesystem has all of them, or none. Linux
//!    accepts it, and allocates space in it.
//! 2. Linux does not find the cache of a removed block group for a new one at its address.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use userbtrfs::{Filesystem, ImageLength, NewSize, OpenOptions, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, states};
use userbtrfs_testkit::devices::{RecordingDevice, SparseImage};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::manifest::diff;
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_ours};

use super::made::MIB;
use super::ours::judge_by_linux;
use super::resize::commit_by_linux;
use super::{assert_none, is_torture, open_device};

const GIB: u64 = 1 << 30;
/// The number of large files of an image, and their length.
const FILES: u64 = 8;
const LEN: u64 = 40 * MIB;
/// One in this many states is mounted by Linux in CI.
const JUDGED: usize = 4;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(32 << 20);
    options
}

/// Has Linux create large files, and remove those that are not to be kept.
fn fill(linux: &Linux, image: &Path, options: &str, name: &str, keep: Range<u64>) {
    let mount = linux.mount(image, options).unwrap();
    let path = |number: u64| mount.path().join(format!("{name}-{number}"));
    let sync = || run(Command::new("sync").arg("-f").arg(mount.path())).unwrap();
    for number in 0..FILES {
        let len = LEN.to_string();
        run(Command::new("fallocate").args(["-l", &len]).arg(path(number))).unwrap();
        sync();
    }
    let removed = (0..FILES).filter(|number| !keep.contains(number));
    removed.for_each(|number| fs::remove_file(path(number)).unwrap());
    sync();
}

/// Returns an image of Linux with space caches.
fn with_caches(linux: &Linux) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::File::create(&image).unwrap().set_len(GIB).unwrap();
    run(Command::new("mkfs.btrfs").args(["-q", "-R", "^free-space-tree"]).arg(&image)).unwrap();
    fill(linux, &image, "noatime,space_cache=v1", "before", 6..FILES);
    btrfs_check(&image).unwrap();
    (folder, image)
}

/// Fails if Linux complains of anything but that the image has such caches.
fn assert_no_other_complaints(linux: &Linux) {
    let complaints = linux.complaints().unwrap();
    let is_usual = |line: &String| line.contains("space cache v1 is being deprecated");
    assert!(complaints.iter().all(is_usual), "{complaints:?}");
}

fn has_caches(filesystem: &Filesystem) -> bool {
    let superblock = filesystem.superblock();
    superblock.cache_generation == superblock.generation
}

#[test]
fn cut_removal_of_space_caches_leaves_all_or_none() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let (_folder, image) = with_caches(&linux);
    let device = Arc::new(RecordingDevice::on(&SparseImage::from_file(&image).unwrap()));
    let filesystem = options().open_devices(vec![device.clone()]).unwrap();
    assert!(has_caches(&filesystem));
    let before = walk_ours::walk(&filesystem).unwrap();
    let file = filesystem.root().create(b"new", 0o644).unwrap().open().unwrap();
    file.write_all_at(&pattern::bytes(1, 0, 1 << 20), 0).unwrap();
    drop(file);
    filesystem.commit().unwrap();
    assert!(!has_caches(&filesystem));
    let after = walk_ours::walk(&filesystem).unwrap();
    filesystem.abandon();
    let recording = device.recording();
    let mut were_removed = false;
    for (number, state) in states(&recording, Choice::EveryPrefix).enumerate() {
        let what = format!("{} of {} events", state.completed, recording.events.len());
        let opened = open_device(Arc::new(state.image.to_device()));
        let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        let are_removed = !has_caches(&opened);
        assert!(are_removed || !were_removed, "{what}: they are back");
        let expected = if are_removed { &after } else { &before };
        assert_none(&what, &diff(expected, &walk_ours::walk(&opened).unwrap(), &[]));
        state.image.write_to(&image).unwrap();
        btrfs_check(&image).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        if number % JUDGED == 0 || are_removed != were_removed || is_torture() {
            judge_by_linux(&linux, &what, &image);
            commit_by_linux(&linux, &image);
            fill(&linux, &image, "noatime", "after", 0..4);
            btrfs_check(&image).unwrap_or_else(|error| panic!("{what}, then Linux: {error:#}"));
            linux.scrub(&image).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        }
        were_removed = are_removed;
    }
    assert!(were_removed, "the last state has no caches");
    assert_no_other_complaints(&linux);
}

/// A block group that Linux makes where we removed one must not get the space cache of the old one.
#[test]
fn space_cache_of_linux_does_not_outlive_its_block_groups() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let (_folder, image) = with_caches(&linux);
    let filesystem = options().open(&image).unwrap();
    assert!(has_caches(&filesystem));
    filesystem.resize(NewSize::Bytes(600 * MIB), ImageLength::Keep).unwrap();
    assert_eq!(filesystem.superblock().cache_generation, 0);
    filesystem.close().unwrap();
    btrfs_check(&image).unwrap();
    fill(&linux, &image, "noatime", "after", 0..4);
    btrfs_check(&image).unwrap();
    assert_no_other_complaints(&linux);
}
