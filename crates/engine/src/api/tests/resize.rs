//! Resizing an open filesystem.

mod under_load;

use std::os::unix::fs::FileExt as _;

use userbtrfs_device::{FileDevice, FileOptions};
use userbtrfs_format::{ItemKind, Key};

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn errno<T>(result: Result<T>) -> i32 {
    result.err().expect("it is refused").errno()
}

/// A filesystem of 1 GiB in an image file.
fn image_of_1_gib() -> (tempfile::TempDir, PathBuf, Filesystem) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(GIB).unwrap();
    let device =
        FileDevice::open(&image, FileOptions { writable: true, ..FileOptions::default() }).unwrap();
    userbtrfs_mkfs::make(&device, &Options::default()).unwrap();
    drop(device);
    let filesystem = OpenOptions::new().write(true).open(&image).unwrap();
    (folder, image, filesystem)
}

fn len(image: &std::path::Path) -> u64 {
    image.metadata().unwrap().len()
}

#[test]
fn image_file_follows_the_filesystem_in_both_directions() {
    let (_folder, image, filesystem) = image_of_1_gib();
    let file = filesystem.root().create(b"file", 0o644).unwrap().open().unwrap();
    let written = vec![7; 100_000];
    file.write_all_at(&written, 0).unwrap();
    let half = filesystem.resize(NewSize::Less(GIB / 2), ImageLength::Follow).unwrap();
    assert_eq!((half, len(&image)), (GIB / 2, GIB / 2));
    let size = || {
        let superblock = filesystem.superblock();
        (superblock.total_bytes, superblock.device.total_bytes)
    };
    assert_eq!(size(), (GIB / 2, GIB / 2));
    assert_eq!(filesystem.resize(NewSize::Bytes(3 * GIB + 5000), ImageLength::Follow).unwrap(), {
        3 * GIB + 4096
    });
    assert_eq!(len(&image), 3 * GIB + 5000);
    assert_eq!(size(), (3 * GIB + 4096, 3 * GIB + 4096));
    // More than the filesystem had room for before.
    file.allocate(0, 2 * GIB, Allocate::Reserve { keep_size: false }).unwrap();
    filesystem.close().unwrap();
    let reopened = OpenOptions::new().open(&image).unwrap();
    assert_eq!(reopened.superblock().total_bytes, 3 * GIB + 4096);
    let mut content = vec![0; written.len()];
    let read = reopened.open_file("/file").unwrap().read_at(&mut content, 0).unwrap();
    assert_eq!(read, content.len());
    assert_eq!(content, written);
}

#[test]
fn filesystem_grows_to_a_file_that_was_extended_by_others() {
    let (_folder, image, filesystem) = image_of_1_gib();
    let beyond = filesystem.resize(NewSize::Bytes(2 * GIB), ImageLength::Keep);
    assert_eq!(errno(beyond), 27);
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(2 * GIB).unwrap();
    assert_eq!(filesystem.resize(NewSize::Max, ImageLength::Keep).unwrap(), 2 * GIB);
    filesystem.close().unwrap();
    let reopened = OpenOptions::new().write(true).open(&image).unwrap();
    assert_eq!(reopened.superblock().device.total_bytes, 2 * GIB);
}

#[test]
fn refused_sizes_change_nothing() {
    let (_folder, image, filesystem) = image_of_1_gib();
    let generation = filesystem.superblock().generation;
    let refused = [
        (NewSize::Bytes(256 * MIB - 1), 22),
        (NewSize::Less(GIB - 200 * MIB), 22),
        (NewSize::Less(GIB + 1), 22),
        (NewSize::More(u64::MAX), 34),
        (NewSize::Bytes(GIB + 1), 27),
        (NewSize::More(1), 27),
    ];
    for (size, expected) in refused {
        assert_eq!(errno(filesystem.resize(size, ImageLength::Keep)), expected, "{size:?}");
    }
    assert_eq!(filesystem.superblock().generation, generation);
    assert_eq!(len(&image), GIB);
    let read_only = OpenOptions::new().open_devices(vec![Arc::clone(filesystem.volume().device())]);
    let size = read_only.unwrap().resize(NewSize::Max, ImageLength::Keep);
    assert_eq!(errno(size), 30);
}

#[test]
fn sizes_are_parsed_as_linux_does() {
    let lab = Lab::new();
    let parse = |text| lab.fs.parse_size(text);
    for (text, size) in [
        ("max", NewSize::Max),
        ("1:max", NewSize::Max),
        ("1:300m", NewSize::Bytes(300 << 20)),
        ("+1G", NewSize::More(1 << 30)),
        ("1:-4096", NewSize::Less(4096)),
        ("0x20000000", NewSize::Bytes(512 << 20)),
        ("-010k", NewSize::Less(8 << 10)),
    ] {
        assert_eq!(parse(text).unwrap(), size, "{text}");
    }
    for (text, expected) in [
        ("2:max", 19),
        ("0:max", 22),
        ("x:max", 22),
        ("", 22),
        ("+", 22),
        ("0", 22),
        ("-0", 22),
        ("1x", 22),
        ("--1", 22),
        ("0x", 22),
        ("08", 22),
        ("16E", 22),
    ] {
        assert_eq!(errno(parse(text)), expected, "{text}");
    }
}

/// The number of files of a filled filesystem, and their length.
const FILES: u32 = 12;
const FILE_LEN: usize = 20 << 20;
/// The number of small files.
const SMALL: u32 = 3000;

/// The byte that a small file consists of.
fn byte(number: u32) -> u8 {
    u8::try_from(number % 251).unwrap()
}

fn content(number: u32) -> Vec<u8> {
    let word = u64::from(number) * 1_000_003;
    (0..FILE_LEN as u64 / 8)
        .flat_map(|at| (word ^ at.wrapping_mul(0x9e37_79b9)).to_le_bytes())
        .collect()
}

/// A filesystem of 1 GiB whose files, snapshots and small files lie in all of it, of which the
/// first part was then freed.
fn filled() -> (tempfile::TempDir, PathBuf, Filesystem) {
    let (folder, image, filesystem) = image_of_1_gib();
    let root = filesystem.root();
    let source = root.create_subvolume(b"source", 0o755).unwrap();
    let gone = vec![1; 10 << 20];
    for number in 0..40 {
        let file = root.create(format!("gone-{number}").as_bytes(), 0o644).unwrap();
        file.open().unwrap().write_all_at(&gone, 0).unwrap();
    }
    for number in 0..FILES {
        let file = source.create(format!("file-{number}").as_bytes(), 0o644).unwrap();
        file.open().unwrap().write_all_at(&content(number), 0).unwrap();
    }
    for number in 0..SMALL {
        let file = source.create(format!("small-{number}").as_bytes(), 0o644).unwrap();
        file.open().unwrap().write_all_at(&[byte(number); 3000], 0).unwrap();
    }
    let prealloc = source.create(b"prealloc", 0o644).unwrap().open().unwrap();
    prealloc.allocate(0, 8 << 20, Allocate::Reserve { keep_size: false }).unwrap();
    prealloc.write_all_at(&[9; 5000], 1 << 20).unwrap();
    filesystem.commit().unwrap();
    let id = source.inode().id().subvolume;
    for name in [&b"snap-1"[..], b"snap-2"] {
        root.snapshot(name, id, false).unwrap();
    }
    source.create(b"after", 0o644).unwrap();
    for number in 0..40 {
        root.remove_file(format!("gone-{number}").as_bytes()).unwrap();
    }
    filesystem.commit().unwrap();
    (folder, image, filesystem)
}

fn check_content(filesystem: &Filesystem) {
    for dir in ["source", "snap-1", "snap-2"] {
        for number in 0..FILES {
            let found = filesystem.read(format!("/{dir}/file-{number}")).unwrap();
            assert!(found == content(number), "{dir} {number}");
        }
        for number in 0..SMALL {
            let found = filesystem.read(format!("/{dir}/small-{number}")).unwrap();
            assert_eq!(found, [byte(number); 3000]);
        }
        let found = filesystem.read(format!("/{dir}/prealloc")).unwrap();
        assert_eq!((found.len(), &found[1 << 20..][..5000]), (8 << 20, &[9; 5000][..]));
    }
}

/// Returns the bytes that are used in block groups which lie beyond a size, or partly.
fn used_beyond(filesystem: &Filesystem, len: u64) -> u64 {
    let space = filesystem.inner.transactions.as_ref().unwrap().space();
    let used = space.chunk_usage().into_iter().map(|(chunk, used)| {
        let is_beyond = chunk.stripes.iter().any(|it| it.physical.0 + chunk.len > len);
        if is_beyond { used } else { 0 }
    });
    used.sum()
}

/// Asserts that all `used` bytes beyond the new end were moved. Some move twice: a block group may
/// take what another one had, and move afterwards itself. Commits move a few tree blocks besides.
fn assert_moved(filesystem: &Filesystem, used: u64) {
    let RelocationStats { moved, left } = filesystem.stats().relocation;
    assert_eq!(left, 0);
    assert!((used - 2 * MIB..2 * used).contains(&moved), "{moved} bytes are moved of {used}");
    assert!(used > 100 * MIB, "{used}");
}

#[test]
fn shrink_relocates_what_lies_beyond_and_keeps_sharing() {
    let (_folder, image, filesystem) = filled();
    let before = filesystem.superblock().bytes_used;
    let beyond = used_beyond(&filesystem, 500 * MIB);
    assert_eq!(filesystem.stats().relocation, RelocationStats::default());
    let new = filesystem.resize(NewSize::Bytes(500 * MIB), ImageLength::Follow).unwrap();
    assert_eq!((new, len(&image)), (500 * MIB, 500 * MIB));
    assert_moved(&filesystem, beyond);
    let after = filesystem.superblock().bytes_used;
    assert!(after.abs_diff(before) < MIB, "{before} and {after} bytes are used");
    check_content(&filesystem);
    filesystem.close().unwrap();
    assert_checks(&image);
    let reopened = OpenOptions::new().write(true).open(&image).unwrap();
    check_content(&reopened);
    for dir in ["source", "snap-1", "snap-2"] {
        let dir = reopened.open_dir(format!("/{dir}")).unwrap();
        for number in (0..SMALL).step_by(7) {
            dir.remove_file(format!("small-{number}").as_bytes()).unwrap();
        }
    }
    reopened.close().unwrap();
    let check = Command::new("btrfs").arg("check").arg(&image).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

fn assert_checks(image: &std::path::Path) {
    let check = Command::new("btrfs").args(["check", "--check-data-csum"]).arg(image).output();
    let check = check.unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    let errors = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(check.status.success(), "{said}{errors}");
}

/// With little memory, a commit moves a part of a block group only.
#[test]
fn shrink_takes_as_much_memory_as_is_allowed() {
    let (_folder, image, filesystem) = filled();
    filesystem.close().unwrap();
    let filesystem = OpenOptions::new().write(true).memory(8 << 20).open(&image).unwrap();
    let before = filesystem.superblock().generation;
    let beyond = used_beyond(&filesystem, 500 * MIB);
    filesystem.resize(NewSize::Bytes(500 * MIB), ImageLength::Follow).unwrap();
    // Data that is copied for a move that is too large is not counted.
    assert_moved(&filesystem, beyond);
    let commits = filesystem.superblock().generation - before;
    assert!(commits > 15, "{commits} commits");
    check_content(&filesystem);
    filesystem.close().unwrap();
    assert_checks(&image);
}

/// The tree of a deleted subvolume moves while a file in it is open, and is dropped afterwards.
#[test]
fn shrink_moves_deleted_subvolumes_that_are_in_use() {
    let (_folder, image, filesystem) = filled();
    let open = filesystem.open_file("/snap-1/file-7").unwrap();
    let id = filesystem.root().delete_subvolume(b"snap-1").unwrap();
    filesystem.commit().unwrap();
    filesystem.resize(NewSize::Bytes(500 * MIB), ImageLength::Follow).unwrap();
    let mut found = vec![0; FILE_LEN];
    assert_eq!(open.read_at(&mut found, 0).unwrap(), FILE_LEN);
    assert!(found == content(7));
    drop(open);
    assert!(filesystem.wait_for_deleted(&[id], || true).unwrap());
    filesystem.close().unwrap();
    assert_checks(&image);
    let reopened = OpenOptions::new().open(&image).unwrap();
    assert!(reopened.lookup("/snap-1").is_err());
    assert!(reopened.read("/snap-2/file-7").unwrap() == content(7));
}

#[test]
fn shrink_past_a_damaged_block_is_refused_and_changes_go_on() {
    let (_folder, image, filesystem) = filled();
    let source = filesystem.lookup("/source/small-1500").unwrap().id();
    let tree = filesystem.inner.tree_roots().tree(source.subvolume).unwrap();
    let key = Key::new(source.number, ItemKind::INODE_ITEM, 0);
    let path = tree.path_to(filesystem.inner.tree_roots().store(), &key).unwrap();
    let leaf = *path.last().unwrap();
    let mapping = filesystem.volume().map(leaf, 1).unwrap();
    let copies: Vec<_> = mapping.copies().collect();
    filesystem.close().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    for copy in copies {
        file.write_all_at(&[0; 16 << 10], copy.0).unwrap();
    }
    let filesystem = OpenOptions::new().write(true).open(&image).unwrap();
    let refused = filesystem.resize(NewSize::Bytes(500 * MIB), ImageLength::Follow);
    assert_eq!(errno(refused), 5);
    assert_eq!((filesystem.superblock().total_bytes, len(&image)), (GIB, GIB));
    filesystem.root().create(b"later", 0o644).unwrap();
    filesystem.commit().unwrap();
    let found = filesystem.read("/source/file-3").unwrap();
    assert!(found == content(3));
    filesystem.close().unwrap();
    let reopened = OpenOptions::new().open(&image).unwrap();
    reopened.lookup("/later").unwrap();
}

#[test]
fn shrink_below_what_is_stored_changes_nothing() {
    let (_folder, image, filesystem) = filled();
    let refused = filesystem.resize(NewSize::Bytes(256 * MIB), ImageLength::Follow);
    assert_eq!(errno(refused), 28);
    assert_eq!((filesystem.superblock().total_bytes, len(&image)), (GIB, GIB));
    check_content(&filesystem);
    // All space can still be used.
    let file = filesystem.root().create(b"more", 0o644).unwrap().open().unwrap();
    file.allocate(0, 300 * MIB, Allocate::Reserve { keep_size: false }).unwrap();
    filesystem.close().unwrap();
    let check = Command::new("btrfs").arg("check").arg(&image).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
