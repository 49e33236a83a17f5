//! An image with a subvolume and snapshots of it, made by Linux.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::manifest::Manifest;
use userbtrfs_testkit::walk_linux;

use crate::open;

/// The subvolumes of the image: their ids and names.
pub(super) const SUBVOLUMES: [(u64, &str); 5] =
    [(256, "origin"), (257, "early"), (258, "early2"), (259, "late"), (260, "same")];

/// Makes the first subvolume, whose tree has three levels: inline files, regular and preallocated
/// ones, extents with several references, attributes and many directories.
const ORIGIN: &str = r#"
btrfs -q subvolume create origin && cd origin
mkdir d{1..200}
for i in {1..900}; do printf "%0600d" $i > d$((i % 200 + 1))/inline$i; done
for i in {1..150}; do head -c $((i * 97 % 60000 + 3000)) /dev/urandom > file$i; done
for i in {1..20}; do fallocate -l 200000 ahead$i; printf x | dd of=ahead$i bs=1 seek=70000 \
    conv=notrunc status=none; done
for i in {1..40}; do cp --reflink=always file$((i + 50)) clone$i; done
for i in {1..40}; do ln file$i d$i/link$i; done
find . -name 'inline*7' -exec setfattr -n user.note -v "$(printf '%0300d' 7)" {} +
sync -f .
"#;

/// Makes snapshots, and changes all of them after that but one, which shares all nodes below the
/// root with its source.
const SNAPSHOTS: &str = r#"
change() { # subvolume, each
    for i in $(seq $2 $2 900); do printf "%0500d" $2 > $1/d$((i % 200 + 1))/inline$i; done
    for i in $(seq $2 $2 150); do printf "$1 $i" | dd of=$1/file$i bs=1 seek=4096 \
        conv=notrunc status=none; done
    rm $1/clone$2; mkdir $1/new$2; cp --reflink=always $1/file$(($2 + 7)) $1/new$2/copy
    sync -f .
}
btrfs -q subvolume snapshot origin early
change origin 13
change early 31
btrfs -q subvolume snapshot early early2
change early2 17
change early 29
btrfs -q subvolume snapshot origin late
change late 37
change origin 19
btrfs -q subvolume snapshot origin same
sync -f .
"#;

/// The image, and what Linux shows of it.
pub(super) struct Family {
    _folder: TempDir,
    pub(super) image: PathBuf,
    pub(super) manifest: Manifest,
    /// The used bytes of the filesystem before it had subvolumes.
    pub(super) bytes_used_empty: u64,
}

/// Runs a script in a folder; fails if any of its commands does.
pub(super) fn script(folder: &Path, text: &str) {
    let text = format!("set -euo pipefail\n{text}");
    run(Command::new("bash").arg("-c").arg(text).current_dir(folder)).unwrap();
}

impl Family {
    /// Makes the image.
    pub(super) fn make(linux: &Linux) -> Self {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        script(folder.path(), "truncate -s 400M image; mkfs.btrfs -q -n 4096 image");
        let bytes_used_empty = open(&image).unwrap().volume().superblock().bytes_used;
        let mount = linux.mount(&image, "noatime").unwrap();
        script(mount.path(), ORIGIN);
        script(mount.path(), SNAPSHOTS);
        let manifest = walk_linux::walk(mount.path()).unwrap();
        drop(mount);
        Self { _folder: folder, image, manifest, bytes_used_empty }
    }
}
