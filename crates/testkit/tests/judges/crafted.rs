//! Filesystems that mkfs does not make: old, damaged or restored ones, edited from a new one.
//!
//! 1. If Linux refuses to mount an image for writing, we refuse to write it, with a specific error,
//!    but can read it.
//! 2. If Linux mounts an image, we write it, and Linux and `btrfs check` accept the result.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use userbtrfs::mkfs::{Options, Profile};
use userbtrfs::{Error, Filesystem, OpenOptions, PathError, RenameMode, TreeId};
use userbtrfs_codec::hash::name_hash;
use userbtrfs_device::Device;
use userbtrfs_format::{ItemKind, Key, Logical, Physical};
use userbtrfs_image_builder::{
    Bytes, ImageEditor, Sample, device_extent, dir_entry, field, inode_ref, put_u32, put_u64,
    u64_at,
};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::SparseDevice;
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_file};
use super::open_to_write;
use super::ours::{judge_by_linux, use_by_linux};

const LEN: u64 = 256 * MIB;
const FILE_LEN: usize = 200_000;
/// Offsets in bytes: the lengths in a chunk and its device extent, and the size and usage of the
/// device in a DEV_ITEM.
const CHUNK_LEN: usize = 0;
const CHUNK_PHYSICAL: usize = 48 + 8;
const DEVICE_TOTAL: usize = 8;
const DEVICE_USED: usize = 16;
const EXTENT_LEN: usize = 24;
/// The offset of the size in an INODE_ITEM; nbytes follows.
const INODE_SIZE: usize = 16;
/// The object id of an inode cache (-12).
const INODE_CACHE: u64 = u64::MAX - 11;
/// An offset in a ROOT_ITEM or a block that is neither a key nor an address.
const IN_BLOCK: usize = 200;

/// Returns a filesystem with one file, each of its tree blocks stored once.
fn made(free_space_tree: bool) -> Arc<SparseDevice> {
    let metadata = Profile::Single;
    let options = Options { metadata, nodesize: 4096, free_space_tree, ..Options::default() };
    let device = Arc::new(Made::new("single", LEN, options).image().to_device());
    let filesystem = open_to_write(device.clone());
    let file = filesystem.root().create(b"file", 0o644).unwrap().open().unwrap();
    file.write_at(&content(), 0).unwrap();
    filesystem.close().unwrap();
    device
}

fn content() -> Vec<u8> {
    pattern::bytes(1, 0, FILE_LEN)
}

fn edited(edit: impl FnOnce(&mut ImageEditor)) -> Arc<SparseDevice> {
    let device = made(true);
    edit(&mut ImageEditor::over(device.clone()).unwrap());
    device
}

fn read(device: &Arc<SparseDevice>) -> Vec<u8> {
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    OpenOptions::new().open_devices(devices).unwrap().read("/file").unwrap()
}

fn refusal(device: &Arc<SparseDevice>) -> Error {
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    let opened = OpenOptions::new().write(true).open_devices(devices);
    opened.expect_err("it is refused")
}

fn change_u64(bytes: &mut [u8], at: usize, change: impl Fn(u64) -> u64) {
    let value = change(u64_at(bytes, at));
    put_u64(bytes, at, value);
}

fn superblock(at: usize, change: impl Fn(u64) -> u64 + 'static) -> Edit {
    Box::new(move |editor| {
        editor.edit_superblock(|bytes| change_u64(bytes, at, &change));
    })
}

fn stripesize(value: u32) -> Edit {
    Box::new(move |editor| {
        editor.edit_superblock(|bytes| put_u32(bytes, field::STRIPESIZE, value));
    })
}

/// Returns an edit of the items of a tree root that is a leaf.
fn items(tree: TreeId, change: impl Fn(&mut Vec<Sample>) + 'static) -> Edit {
    Box::new(move |editor| {
        let root = editor.root(tree).expect("the tree is there");
        editor.edit_items(root, &change);
    })
}

fn no_root(tree: TreeId) -> Edit {
    items(TreeId::ROOT, move |items| {
        items.retain(|(key, _)| (key.objectid, key.kind) != (tree.0, ItemKind::ROOT_ITEM));
    })
}

/// Returns an edit that damages the root of a tree without updating its checksum.
fn damaged_root(tree: TreeId) -> Edit {
    Box::new(move |editor| {
        let root = editor.root(tree).expect("the tree is there");
        for Physical(at) in editor.copies(root) {
            editor.edit_raw(Physical(at), 4096, |block| block[IN_BLOCK] ^= 0xff);
        }
    })
}

fn last_device_extent(items: &mut [Sample]) -> &mut Sample {
    items.iter_mut().rfind(|(key, _)| key.kind == ItemKind::DEV_EXTENT).expect("there is one")
}

fn device_size(change: impl Fn(u64) -> u64 + 'static) -> Edit {
    items(TreeId::CHUNK, move |items| {
        let device = items.iter_mut().find(|(key, _)| key.kind == ItemKind::DEV_ITEM);
        let (_, item) = device.expect("the device is listed");
        change_u64(item, DEVICE_TOTAL, &change);
    })
}

/// Makes the chunk tree and the superblock count bytes that the device does not have.
fn larger_device() -> Edit {
    let edit = device_size(|n| n + 64 * MIB);
    Box::new(move |editor| {
        edit(editor);
        superblock(field::TOTAL_BYTES, |n| n + 64 * MIB)(editor);
    })
}

/// Edits the last item of this kind in the root of a tree.
fn last_item(tree: TreeId, kind: ItemKind, edit: impl Fn(&mut [u8]) + 'static) -> Edit {
    items(tree, move |items| {
        let found = items.iter_mut().rfind(|(key, _)| key.kind == kind);
        edit(&mut found.expect("there is one").1);
    })
}

/// Edits the item of this key in the root of a tree.
fn item(tree: TreeId, of: Key, edit: impl Fn(&mut [u8]) + 'static) -> Edit {
    items(tree, move |items| {
        let found = items.iter_mut().find(|(key, _)| *key == of);
        edit(&mut found.expect("it is there").1);
    })
}

fn block_group(edit: impl Fn(&mut [u8]) + 'static) -> Edit {
    last_item(TreeId::EXTENT, ItemKind::BLOCK_GROUP_ITEM, edit)
}

fn inode(number: u64, edit: impl Fn(&mut [u8]) + 'static) -> Edit {
    item(TreeId::FS, Key::new(number, ItemKind::INODE_ITEM, 0), edit)
}

/// Returns the items of an inode cache, of the feature that Linux has removed.
fn inode_cache(generation: u64) -> [Sample; 2] {
    let inode = Bytes::new().u64(generation).u64(generation).u64(8192).u64(0).u64(0);
    let inode = inode.u32(1).u64(0).u32(0o100_600).u64(0).u64(0x1b).zeros(88);
    let extent = Bytes::new().u64(generation).u64(8192).u32(0).u8(1).u64(0).u64(0).u64(0).u64(8192);
    let key = |kind| Key::new(INODE_CACHE, kind, 0);
    [(key(ItemKind::INODE_ITEM), inode.build()), (key(ItemKind::EXTENT_DATA), extent.build())]
}

type Edit = Box<dyn Fn(&mut ImageEditor)>;

/// Returns damage that Linux does not mount: name, edit, and text of our error.
fn refused() -> Vec<(&'static str, Edit, &'static str)> {
    let stray = |chunk| {
        items(TreeId::DEV, move |items| {
            let extent = device_extent(Logical(chunk), MIB);
            items.push((Key::new(1, ItemKind::DEV_EXTENT, 200 * MIB), extent));
        })
    };
    let overlap = items(TreeId::CSUM, |items| {
        let (key, sums) = items[0].clone();
        let next = Key::new(key.objectid, key.kind, key.offset + 4096);
        items.push((next, sums[4..].to_vec()));
    });
    let root = Key::new(TreeId::FS.0, ItemKind::ROOT_ITEM, 0);
    let root_flags = item(TreeId::ROOT, root, |item| put_u64(item, 208, 1 << 5));
    let no_top = items(TreeId::FS, |items| {
        items.retain(|(key, _)| (key.objectid, key.kind) != (256, ItemKind::INODE_ITEM));
    });
    // The remainder of an inode cache that was removed incompletely.
    let stray_extent = items(TreeId::FS, |items| {
        let extent = Bytes::new().u64(7).u64(8192).u32(0).u8(2).u64(0).u64(0).u64(0).u64(8192);
        items.push((Key::new(INODE_CACHE, ItemKind::EXTENT_DATA, 0), extent.build()));
    });
    let no_device_extent = items(TreeId::DEV, |items| {
        let gone = last_device_extent(items).0;
        items.retain(|(key, _)| *key != gone);
    });
    let short_device_extent = items(TreeId::DEV, |items| {
        let (_, extent) = last_device_extent(items);
        change_u64(extent, EXTENT_LEN, |len| len - (64 << 10));
    });
    vec![
        ("total bytes", superblock(field::TOTAL_BYTES, |n| n - 65536), "total_bytes"),
        ("device size", device_size(|n| n + 65536), "the chunk tree lists"),
        ("stray device extent", stray(1 << 40), "has no stripe there"),
        ("second device extent", stray(MIB), "has no stripe there"),
        ("no device extent", no_device_extent, "has no device extent"),
        ("short device extent", short_device_extent, "its device extent"),
        ("checksums that overlap", overlap, "overlaps"),
        ("inode cache without inode", stray_extent, "has no inode"),
        ("stripesize 0", stripesize(0), "invalid stripesize 0"),
        ("stripesize 5000", stripesize(5000), "invalid stripesize 5000"),
        ("bytes used", superblock(field::BYTES_USED, |_| 4096), "invalid bytes_used 4096"),
        ("no checksum tree", no_root(TreeId::CSUM), "CSUM_TREE"),
        ("no relocation tree", no_root(TreeId::DATA_RELOC), "DATA_RELOC_TREE"),
        ("listed device too large", larger_device(), "the chunk tree lists"),
        ("type of block group", block_group(|item| put_u64(item, 16, 4)), "of type"),
        ("owner of block group", block_group(|item| put_u64(item, 8, 255)), "255"),
        ("usage of block group", block_group(|item| put_u64(item, 0, 1 << 40)), "out of range"),
        (
            "sector size of chunk",
            last_item(TreeId::CHUNK, ItemKind::CHUNK_ITEM, |item| put_u32(item, 40, 512)),
            "has a sector size of 512 bytes",
        ),
        ("flags of tree", root_flags, "FS_TREE: unknown root flags 0x20"),
        ("flags of inode", inode(257, |item| put_u64(item, 64, 1 << 40)), "of inode 257"),
        ("no root directory", no_top, "the top level has no root directory"),
        ("root is a file", inode(256, |item| put_u32(item, 52, 0o100_755)), "no directory"),
        ("METADATA_ITEMs", superblock(field::INCOMPAT, |n| n & !(1 << 8)), "skinny-metadata"),
        ("damaged UUID tree", damaged_root(TreeId::UUID), "UUID_TREE"),
        ("damaged checksum tree", damaged_root(TreeId::CSUM), "CSUM_TREE"),
        ("damaged relocation tree", damaged_root(TreeId::DATA_RELOC), "DATA_RELOC_TREE"),
        ("damaged free space tree", damaged_root(TreeId::FREE_SPACE), "FREE_SPACE_TREE"),
    ]
}

#[test]
fn damage_that_linux_refuses_is_refused_for_writing_and_names_are_read() {
    for (name, edit, expected) in refused() {
        let device = edited(edit);
        let before = device.image().to_bytes();
        let error = refusal(&device).to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(device.image().to_bytes() == before, "{name}: something was written");
        let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
        let filesystem = OpenOptions::new().open_devices(devices).unwrap();
        if name.contains("root") {
            continue;
        }
        let metadata = filesystem.metadata("/file").unwrap();
        assert_eq!(metadata.size, u64::try_from(FILE_LEN).unwrap(), "{name}");
        if !name.contains("checksum") {
            assert!(read(&device) == content(), "{name}");
        }
    }
}

#[test]
fn damage_that_is_refused_for_writing_is_refused_by_linux() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    for (name, edit, _) in refused() {
        edited(edit).image().write_to(&file).unwrap();
        assert!(linux.mount(&file, "noatime").is_err(), "{name}: Linux mounts it");
    }
    linux.complaints().unwrap();
}

/// The superblock and the chunk tree may have any sizes that Linux accepts.
#[test]
fn sizes_that_linux_accepts_are_written_and_linux_mounts_what_is_left() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let smaller = |n: u64| n - 64 * MIB;
    let total = field::DEV_ITEM + DEVICE_TOTAL;
    let smaller_device: Edit = Box::new(move |editor| {
        device_size(smaller)(editor);
        superblock(field::TOTAL_BYTES, smaller)(editor);
    });
    for (name, edit) in [
        ("smaller device in superblock", superblock(total, smaller)),
        ("smaller device in chunk tree", smaller_device),
        ("inode cache", items(TreeId::FS, |items| items.extend(inode_cache(2)))),
    ] {
        let device = edited(edit);
        write_much(&device);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        device.image().write_to(&file).unwrap();
        judge_by_linux(&linux, name, &file);
        use_by_linux(&linux, name, &file);
        linux.assert_no_complaints().unwrap();
    }
}

/// Creates files until there is no space.
fn write_much(device: &Arc<SparseDevice>) {
    let filesystem = open_to_write(device.clone());
    let content = pattern::bytes(2, 0, 8 << 20);
    for number in 0..64 {
        let file = filesystem.root().create(format!("f{number}").as_bytes(), 0o644);
        let Ok(file) = file else { break };
        if file.open().unwrap().write_at(&content, 0).is_err() {
            break;
        }
    }
    filesystem.close().unwrap();
}

/// Makes the system chunk start at 0, logically and on the device, as mkfs.btrfs did before it left
/// the first MiB unused.
fn move_system_chunk_to_zero(editor: &mut ImageEditor) {
    let chunk_tree = editor.root(TreeId::CHUNK).unwrap();
    let items = editor.items(TreeId::CHUNK);
    let system = items.iter().find(|item| item.key.kind == ItemKind::CHUNK_ITEM).unwrap();
    let chunk = editor.block(chunk_tree).unwrap()[system.range.clone()].to_vec();
    let start = system.key.offset;
    let len = u64_at(&chunk, CHUNK_LEN);
    assert_eq!((start, u64_at(&chunk, CHUNK_PHYSICAL)), (MIB, MIB), "the first chunk");
    let grow = |chunk: &mut [u8]| {
        put_u64(chunk, CHUNK_LEN, start + len);
        put_u64(chunk, CHUNK_PHYSICAL, 0);
    };
    editor.edit_items(editor.root(TreeId::CHUNK).unwrap(), |items| {
        for (key, item) in items {
            if (key.kind, key.offset) == (ItemKind::CHUNK_ITEM, start) {
                key.offset = 0;
                grow(item);
            }
            if key.kind == ItemKind::DEV_ITEM {
                change_u64(item, DEVICE_USED, |used| used + start);
            }
        }
    });
    editor.edit_items(editor.root(TreeId::DEV).unwrap(), |items| {
        let extent = (1, ItemKind::DEV_EXTENT, start);
        let of = |(key, _): &&mut Sample| (key.objectid, key.kind, key.offset) == extent;
        *items.iter_mut().find(of).unwrap() =
            (Key::new(1, ItemKind::DEV_EXTENT, 0), device_extent(Logical(0), start + len));
    });
    editor.edit_items(editor.root(TreeId::EXTENT).unwrap(), |items| {
        let group = Key::new(start, ItemKind::BLOCK_GROUP_ITEM, len);
        let (key, _) = items.iter_mut().find(|(key, _)| *key == group).unwrap();
        *key = Key::new(0, ItemKind::BLOCK_GROUP_ITEM, start + len);
    });
    editor.edit_superblock(|bytes| {
        put_u64(bytes, field::SYS_CHUNK_ARRAY + 9, 0);
        grow(&mut bytes[field::SYS_CHUNK_ARRAY + 17..]);
        let used = field::DEV_ITEM + DEVICE_USED;
        change_u64(bytes, used, |used| used + start);
    });
}

/// The byte value of the boot area.
const BOOT: u8 = 0xb0;

#[test]
fn system_chunk_at_zero_leaves_boot_area_and_superblock_alone() {
    skip_unless_linux!();
    let device = made(false);
    let mut editor = ImageEditor::over(device.clone()).unwrap();
    move_system_chunk_to_zero(&mut editor);
    editor.edit_raw(Physical(0), 64 << 10, |bytes| bytes.fill(BOOT));
    editor.edit_raw(Physical((64 << 10) + 4096), 60 << 10, |bytes| bytes.fill(BOOT));
    drop(editor);
    write_much(&device);
    let mut start = vec![0; 128 << 10];
    device.image().read(0, &mut start);
    start.drain(64 << 10..(64 << 10) + 4096);
    assert!(start.iter().all(|byte| *byte == BOOT), "what is before and behind the superblock");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    device.image().write_to(&file).unwrap();
    let linux = Linux::lock().unwrap();
    judge_by_linux(&linux, "chunk at zero", &file);
    use_by_linux(&linux, "chunk at zero", &file);
    let complaints = linux.complaints().unwrap();
    // Linux reports this for each such chunk.
    assert!(complaints.iter().all(|it| it.contains("inside the reserved space")), "{complaints:?}");
}

/// Gives a second inode the name of the first one in the same directory.
fn store_name_twice(editor: &mut ImageEditor) {
    let dir = 256;
    let first = 257;
    let second = 258;
    let inode = |number| Key::new(number, ItemKind::INODE_ITEM, 0);
    let hash = Key::new(dir, ItemKind::DIR_ITEM, u64::from(name_hash(b"file")));
    editor.edit_items(editor.root(TreeId::FS).unwrap(), |items| {
        assert!(items.iter().any(|(key, _)| *key == inode(first)));
        assert!(!items.iter().any(|(key, _)| *key == inode(second)));
        let content = |items: &[Sample], key| {
            items.iter().find(|(other, _)| *other == key).unwrap().1.clone()
        };
        let mut file = content(items, inode(first));
        // An empty file: both size and nbytes are 0.
        file[INODE_SIZE..INODE_SIZE + 16].fill(0);
        let entry = dir_entry(inode(second), 1, b"file", b"");
        let index = items.iter().filter(|(key, _)| key.kind == ItemKind::DIR_INDEX);
        let index = index.map(|(key, _)| key.offset).max().unwrap() + 1;
        for (key, item) in items.iter_mut() {
            if *key == hash {
                item.extend_from_slice(&entry);
            } else if *key == inode(dir) {
                change_u64(item, INODE_SIZE, |size| size + 2 * 4);
            }
        }
        items.push((inode(second), file));
        items.push((Key::new(second, ItemKind::INODE_REF, dir), inode_ref(index, b"file")));
        items.push((Key::new(dir, ItemKind::DIR_INDEX, index), entry));
    });
}

#[test]
fn unlink_of_name_stored_twice_removes_one_entry_and_its_index() {
    skip_unless_linux!();
    let device = edited(store_name_twice);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    let check = |what: &str| {
        device.image().write_to(&file).unwrap();
        check_file(what, &file);
    };
    check("twice");
    for left in [1, 0] {
        let filesystem = open_to_write(device.clone());
        filesystem.remove_file("/file").unwrap();
        filesystem.close().unwrap();
        check(&format!("{left} left"));
        let names = open_to_write(device.clone()).root().entries().count();
        assert_eq!(names, left);
    }
}

fn btrfs_image(args: &[&str], from: &Path, to: &Path) {
    run(Command::new("btrfs-image").args(args).arg(from).arg(to)).unwrap();
}

#[test]
fn restored_metadata_dump_is_read_and_written_as_by_linux() {
    skip_unless_linux!();
    if run(Command::new("btrfs-image").arg("--help")).is_err() {
        return;
    }
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [source, dump, file] = ["source", "dump", "image"].map(|name| folder.path().join(name));
    made(true).image().write_to(&source).unwrap();
    btrfs_image(&[], &source, &dump);
    btrfs_image(&["-r"], &dump, &file);
    let filesystem = OpenOptions::new().open(&file).unwrap();
    assert_eq!(filesystem.metadata("/file").unwrap().size, u64::try_from(FILE_LEN).unwrap());
    assert!(filesystem.read("/file").is_err(), "no dump holds data");
    drop(filesystem);
    let mounted = linux.mount(&file, "noatime").map(drop);
    let opened = OpenOptions::new().write(true).open(&file);
    assert_eq!(opened.is_ok(), mounted.is_ok(), "{mounted:?} {:?}", opened.as_ref().err());
    let filesystem: Filesystem = opened.unwrap();
    filesystem.root().create(b"new", 0o644).unwrap();
    filesystem.close().unwrap();
    linux.mount(&file, "noatime").unwrap();
    linux.complaints().unwrap();
}
/// The other inode of a name that is stored twice is found as soon as the first has lost the name,
/// as on Linux if it has to look.
#[test]
fn other_entry_of_name_stored_twice_is_found_after_unlink_and_rename() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    edited(store_name_twice).image().write_to(&file).unwrap();
    let mount = linux.mount(&file, "noatime").unwrap();
    let path = mount.path().join("file");
    let first = path.metadata().unwrap().ino();
    std::fs::remove_file(&path).unwrap();
    // Linux remembers that the name was removed.
    std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    let second = path.metadata().unwrap().ino();
    std::fs::remove_file(&path).unwrap();
    assert!(!path.exists());
    drop(mount);

    let device = edited(store_name_twice);
    let filesystem = open_to_write(device.clone());
    let number = |path: &str| filesystem.metadata(path).map(|found| found.id.number);
    assert_eq!(number("/file").unwrap(), first);
    filesystem.remove_file("/file").unwrap();
    assert_eq!(number("/file").unwrap(), second);
    let root = filesystem.root();
    root.rename(b"file", &root, b"renamed", RenameMode::Replace).unwrap();
    assert!(matches!(number("/file"), Err(PathError { error: Error::NotFound, .. })));
    assert_eq!(number("/renamed").unwrap(), second);
    filesystem.close().unwrap();
    device.image().write_to(&file).unwrap();
    check_file("removed", &file);

    let device = edited(store_name_twice);
    let filesystem = open_to_write(device.clone());
    let number = |path: &str| filesystem.metadata(path).map(|found| found.id.number);
    let root = filesystem.root();
    root.rename(b"file", &root, b"renamed", RenameMode::Replace).unwrap();
    assert_eq!(number("/renamed").unwrap(), first);
    assert_eq!(number("/file").unwrap(), second);
    filesystem.close().unwrap();
    device.image().write_to(&file).unwrap();
    check_file("renamed", &file);
}
