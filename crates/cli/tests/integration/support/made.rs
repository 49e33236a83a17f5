//! Filesystems that are made, changed and checked with the command.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use userbtrfs::{Filesystem, OpenOptions, Quoted, WalkEntry};
use userbtrfs_testkit::linux::{Linux, available_or_skip, btrfs_check};
use userbtrfs_testkit::manifest::diff;
use userbtrfs_testkit::{walk_linux, walk_ours};

use super::command::{Ran, verb};

/// A folder with a filesystem in an image file.
pub(crate) struct Made {
    folder: TempDir,
}

impl Made {
    /// Makes an empty filesystem.
    pub(crate) fn new() -> Self {
        Self::of_size("256M")
    }

    /// Makes an empty filesystem of this size.
    pub(crate) fn of_size(size: &str) -> Self {
        let made = Self { folder: tempfile::tempdir().expect("there is room") };
        made.format(size);
        made
    }

    /// Replaces it by an empty filesystem.
    pub(crate) fn format(&self, size: &str) {
        let _ = std::fs::remove_file(self.image());
        verb("mkfs -q", &self.image(), &["--size", size]).good();
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.at("image")
    }

    /// Returns a path in the folder.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a verb with its options on the image.
    pub(crate) fn verb(&self, words: &str, rest: &[&str]) -> Ran {
        verb(words, &self.image(), rest)
    }

    /// Runs a verb that must succeed and print nothing.
    #[track_caller]
    pub(crate) fn does(&self, words: &str, rest: &[&str]) {
        assert_eq!(self.verb(words, rest).good(), "");
    }

    pub(crate) fn open(&self) -> Filesystem {
        Filesystem::open(self.image()).expect("it is sound")
    }

    pub(crate) fn open_for_writing(&self) -> Filesystem {
        OpenOptions::new().write(true).open(self.image()).expect("it can be written")
    }

    /// Returns all paths below the root, sorted.
    pub(crate) fn paths(&self) -> Vec<String> {
        let filesystem = self.open();
        let walk = filesystem.walk("/").expect("the root is there").skip(1);
        let path = |met: Result<WalkEntry, _>| met.map(|met| Quoted(&met.path).to_string());
        let mut paths: Vec<_> = walk.map(path).collect::<Result<_, _>>().expect("it is sound");
        paths.sort();
        paths
    }

    /// Asserts that the image is sound, and that Linux shows the same as we do.
    #[track_caller]
    pub(crate) fn judge(&self) {
        judge(&self.image());
    }
}

/// Asserts that an image is sound, and that Linux shows the same as we do.
#[track_caller]
pub(crate) fn judge(image: &Path) {
    let ours = walk_ours::walk(&Filesystem::open(image).expect("it is sound"));
    let ours = ours.expect("everything can be read");
    if !available_or_skip() {
        return;
    }
    let linux = Linux::lock().expect("Linux is available");
    btrfs_check(image).expect("the image is sound");
    let mount = linux.mount(image, "ro,noatime").expect("Linux mounts it");
    let theirs = walk_linux::walk(mount.path()).expect("everything can be read");
    drop(mount);
    let differences = diff(&ours, &theirs, &[]);
    assert!(differences.is_empty(), "ours, and theirs: {differences:#?}");
    linux.assert_no_complaints().expect("Linux is content");
}
