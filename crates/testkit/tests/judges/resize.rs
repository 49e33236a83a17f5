//! Resizing a filesystem: a crash at every write, and the sizes that are refused.
//!
//! 1. A prefix of the writes of a resize shows the old size or the new one, all content, and
//!    subvolumes that still share; `btrfs check` and Linux accept it.
//! 2. A size that Linux refuses is refused with the same errno, and nothing is written.

mod under_load;

use std::fs;
use std::path::Path;
use std::process::Command;

use userbtrfs::mkfs::{Options, Profile};
use userbtrfs::{Allocate, Filesystem, ImageLength, NewSize, OpenOptions, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, states};
use userbtrfs_testkit::devices::{RecordingDevice, SparseImage};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::manifest::{Manifest, diff};
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_ours};

use super::made::{MIB, Made};
use super::ours::judge_by_linux;
use super::{assert_none, is_torture, open_device};

const GIB: u64 = 1 << 30;
/// One in this many states is checked by btrfs-progs in CI, and one is mounted by Linux.
const CHECKED: usize = 4;
const JUDGED: usize = 16;

/// Calls `BTRFS_IOC_RESIZE` with each size, and prints the errno, or 0.
const ASK: &str = r"
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for size in sys.argv[2:]:
    try:
        fcntl.ioctl(file, 0x50009403, bytearray(8) + size.encode().ljust(4088, b'\0'))
        print(0)
    except OSError as error:
        print(error.errno)
";

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(32 << 20);
    options
}

/// A filesystem of 1 GiB with files of `bytes` bytes in all, and a snapshot of them. `gap` bytes
/// before them are free.
fn filled(options_of_mkfs: &Options, gap: u64, bytes: usize) -> SparseImage {
    let made = Made::new("resized", GIB, options_of_mkfs.clone());
    let device = Arc::new(made.image().to_device());
    let filesystem = options().open_devices(vec![Arc::clone(&device) as _]).unwrap();
    let gone = filesystem.root().create(b"gone", 0o644).unwrap().open().unwrap();
    if gap > 0 {
        gone.allocate(0, gap, Allocate::Reserve { keep_size: false }).unwrap();
        filesystem.commit().unwrap();
    }
    drop(gone);
    let source = filesystem.root().create_subvolume(b"source", 0o755).unwrap();
    let count: u32 = 8;
    for number in 0..count {
        let file = source.create(format!("file-{number}").as_bytes(), 0o644).unwrap();
        let content = pattern::bytes(number, 0, bytes / count as usize);
        file.open().unwrap().write_all_at(&content, 0).unwrap();
    }
    for number in 0..500 {
        source.create(format!("small-{number}").as_bytes(), 0o644).unwrap();
    }
    let id = filesystem.lookup("/source").unwrap().metadata().unwrap().id.subvolume;
    filesystem.root().snapshot(b"snapshot", id, false).unwrap();
    drop(source);
    filesystem.root().remove_file(b"gone").unwrap();
    filesystem.close().unwrap();
    device.image()
}

fn shown(filesystem: &Filesystem) -> Manifest {
    walk_ours::walk(filesystem).unwrap()
}

/// Records a resize of an image, judges each prefix, and returns the image after it.
fn cut(linux: &Linux, base: &SparseImage, size: NewSize) -> SparseImage {
    let device = Arc::new(RecordingDevice::on(base));
    let filesystem = options().open_devices(vec![device.clone()]).unwrap();
    let content = shown(&filesystem);
    let before = filesystem.superblock().total_bytes;
    let used_before = filesystem.superblock().bytes_used;
    let after = filesystem.resize(size, ImageLength::Keep).unwrap();
    assert_ne!(before, after);
    let used = filesystem.superblock().bytes_used;
    assert!(used.abs_diff(used_before) < MIB, "{used_before} and {used} bytes are used");
    assert_eq!(filesystem.superblock().total_bytes, after);
    assert_none("after the resize", &diff(&content, &shown(&filesystem), &[]));
    filesystem.abandon();
    let recording = device.recording();
    assert!(!recording.events.is_empty());
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut is_resized = false;
    for (number, state) in states(&recording, Choice::EveryPrefix).enumerate() {
        let what = format!("{size:?}: {} events", state.completed);
        let opened = open_device(Arc::new(state.image.to_device()));
        let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        let total = opened.superblock().total_bytes;
        assert!(total == after || total == before && !is_resized, "{what}: {total}");
        is_resized = total == after;
        assert_none(&what, &diff(&content, &shown(&opened), &[]));
        if number % CHECKED != 0 && !is_torture() {
            continue;
        }
        state.image.write_to(&image).unwrap();
        btrfs_check(&image).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        if number % JUDGED == 0 {
            judge_by_linux(linux, &what, &image);
            commit_by_linux(linux, &image);
            linux.scrub(&image).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        }
        fs::remove_file(&image).unwrap();
    }
    assert!(is_resized, "the last state has the new size");
    recording.end()
}

/// Has Linux commit a change. A crash between the writes of the superblocks leaves different ones,
/// which a scrub reports; a commit writes all of them.
pub(crate) fn commit_by_linux(linux: &Linux, image: &Path) {
    let mount = linux.mount(image, "noatime").unwrap();
    fs::write(mount.path().join("committed"), b"by Linux").unwrap();
}

/// Checks that an image lies in its size, by the same bytes in a shorter file, and that Linux uses
/// it.
fn truncated(linux: &Linux, image: &SparseImage, len: u64) {
    let folder = tempfile::tempdir().unwrap();
    let [file, copy] = ["image", "copy"].map(|name| folder.path().join(name));
    image.write_to(&file).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_len(len).unwrap();
    let write = |root: &Path| fs::write(root.join("new"), vec![1; 1 << 20]).unwrap();
    linux.with_copy(&file, &copy, write).unwrap();
}

#[test]
fn cut_resize_shows_the_old_size_or_the_new_one() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let without_free_space_tree = Options { free_space_tree: false, ..Default::default() };
    let duplicated = Options { data: Profile::Dup, ..Default::default() };
    let cases = [
        (Options::default(), 500 * MIB),
        (without_free_space_tree, 500 * MIB),
        (Options::mixed(), 500 * MIB),
        (duplicated, 350 * MIB),
    ];
    for (options, gap) in cases {
        println!("{options:?}");
        let base = filled(&options, gap, 20 << 20);
        let shrunk = cut(&linux, &base, NewSize::Bytes(400 * MIB + 5000));
        truncated(&linux, &shrunk, 400 * MIB + 4096);
        let grown = cut(&linux, &shrunk, NewSize::Max);
        truncated(&linux, &grown, GIB);
        linux.assert_no_complaints().unwrap();
    }
}

#[test]
fn refused_sizes_have_the_errno_of_linux() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let base = filled(&Options::default(), 0, 400 << 20);
    let sizes = [
        "100m",
        "268435455",
        "2g",
        "1073741825",
        "+1",
        "2:max",
        "0:max",
        "x:max",
        "x",
        "",
        "0",
        "-2g",
        "+16e",
        "-0",
        "1:1073741824",
        "0x40000000",
        "010000000000",
        "0x",
        "0X1g2",
        "08",
        "99999999999G",
        "99999999999999999999",
        "0xfffffffffffffffff",
        "16e",
        "300m",
    ];
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    base.write_to(&image).unwrap();
    let mount = linux.mount(&image, "noatime").unwrap();
    let mut ask = Command::new("python3");
    let said = run(ask.args(["-c", ASK]).arg(mount.path()).args(sizes)).unwrap();
    drop(mount);
    let theirs: Vec<i32> =
        String::from_utf8(said.stdout).unwrap().lines().map(|it| it.parse().unwrap()).collect();
    let device = Arc::new(RecordingDevice::on(&base));
    let filesystem = options().open_devices(vec![device.clone()]).unwrap();
    let generation = filesystem.superblock().generation;
    let resize = |size: &str| {
        let size = filesystem.parse_size(size)?;
        filesystem.resize(size, ImageLength::Keep)
    };
    let errno = |size: &str| resize(size).map_or_else(|error| error.errno(), |_| 0);
    let (last, others) = sizes.split_last().unwrap();
    let mut ours: Vec<i32> = others.iter().map(|size| errno(size)).collect();
    assert_eq!(filesystem.superblock().generation, generation);
    assert_eq!(device.count(), 0, "nothing was written");
    let content = shown(&filesystem);
    ours.push(errno(last));
    assert_eq!(ours, theirs, "{sizes:?}");
    assert_eq!(ours.last(), Some(&28), "below what is stored");
    assert_eq!(filesystem.superblock().total_bytes, GIB);
    assert_none("after it was refused", &diff(&content, &shown(&filesystem), &[]));
    filesystem.close().unwrap();
    device.recording().end().write_to(&image).unwrap();
    btrfs_check(&image).unwrap();
}
