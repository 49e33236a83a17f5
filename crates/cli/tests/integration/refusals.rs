//! Images that must not be written are refused by name, and are not changed.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use userbtrfs::device::{Device, FileDevice, FileOptions, MemoryDevice};
use userbtrfs::{Error, ItemKind, Key, OpenOptions, TreeId};
use userbtrfs_image_builder::{ImageEditor, block_group, field, put_u64, u64_at};

use crate::support::forging::{Items, edit_leaf};
use crate::support::golden::Unpacked;
use crate::support::made::{Made, judge};
use crate::support::{assert_says, reason, refusal};

/// The object ids of the balance status item, and of relocation trees.
const BALANCE: u64 = u64::MAX - 3;
const TREE_RELOC: u64 = u64::MAX - 7;

/// The types of block groups.
const DATA: u64 = 1;
const SYSTEM: u64 = 2;
const METADATA: u64 = 4;

const FS_ROOT: Key = Key::new(5, ItemKind::ROOT_ITEM, 0);

/// Returns an editor of the image "fresh".
fn fresh() -> ImageEditor {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    let image = IMAGE.get_or_init(|| std::fs::read(Unpacked::new("fresh").path()).unwrap());
    ImageEditor::from_bytes(image.clone()).unwrap()
}

fn editor_of(image: &Path) -> ImageEditor {
    ImageEditor::from_bytes(std::fs::read(image).unwrap()).unwrap()
}

/// Returns the error of opening a device for writing, and asserts that it is not changed.
fn unwritable(device: &Arc<dyn Device>, what: &str) -> Error {
    let len = usize::try_from(device.len()).unwrap();
    let before = device.read(0, len).unwrap();
    let error = refusal(OpenOptions::new().write(true).open_devices(vec![Arc::clone(device)]));
    assert!(*device.read(0, len).unwrap() == *before, "{what}: nothing is written");
    error
}

/// Asserts that the image "fresh", forged, can be read, and is refused to a writer with this
/// message.
fn refused(what: &str, says: &str, forge: impl FnOnce(&mut ImageEditor)) {
    let mut editor = fresh();
    forge(&mut editor);
    let device = Arc::clone(editor.device());
    let read = OpenOptions::new().open_devices(vec![Arc::clone(&device)]);
    assert!(read.is_ok(), "{what}: {}", read.err().unwrap());
    assert_says(&unwritable(&device, what), &[says]);
}

/// Changes the first leaf of a tree.
fn first_leaf(editor: &mut ImageEditor, tree: TreeId, edit: impl FnOnce(&mut Items)) {
    let first = editor.items(tree)[0].key;
    edit_leaf(editor, tree, first, edit);
}

/// Changes the block group of this type.
fn group(editor: &mut ImageEditor, kind: u64, edit: impl FnOnce(&mut Items, Key)) {
    first_leaf(editor, TreeId::EXTENT, |items| {
        let is_group = |(key, item): &(&Key, &Vec<u8>)| {
            key.kind == ItemKind::BLOCK_GROUP_ITEM && u64_at(item, 16) & 7 == kind
        };
        let key = *items.iter().find(is_group).expect("there is one of each type").0;
        edit(items, key);
    });
}

#[test]
fn golden_images_that_must_not_be_written_are_refused_by_name() {
    for (name, says) in [
        ("seed", "cannot be written: state seeding"),
        ("simple-quotas", "cannot be written: simple-quota"),
        ("raid1", "2 devices, only one is supported"),
        ("sectorsize-16k", "sector size 16384 is not supported"),
        ("raid-stripe-tree", "unsupported feature: raid-stripe-tree"),
    ] {
        let image = std::fs::read(Unpacked::new(name).path()).unwrap();
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
        assert_says(&unwritable(&device, name), &[says]);
    }
}

/// A damaged primary superblock may be newer than the mirror, and is not overwritten.
#[test]
fn a_mirror_does_not_stand_in_for_a_damaged_primary() {
    refused("mirror", "the primary superblock is damaged", |editor| {
        editor.edit_raw(userbtrfs::Physical(64 << 10), 4096, |bytes| bytes[field::GENERATION] ^= 1);
    });
}

#[test]
fn features_and_states_are_refused_by_name() {
    for (at, bit, says) in [
        (field::COMPAT_RO, 50, "cannot be written: compat-ro bit 50"),
        (field::INCOMPAT, 16, "cannot be written: simple-quota"),
        (field::FLAGS, 32, "cannot be written: state seeding"),
        (field::FLAGS, 2, "cannot be written: state"),
    ] {
        refused(says, says, |editor| {
            editor.edit_superblock(|bytes| put_u64(bytes, at, u64_at(bytes, at) | 1 << bit));
        });
    }
}

/// The free space tree is rebuilt from the extent tree.
#[test]
fn invalid_free_space_tree_is_not_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["fresh", "dup"] {
        let image = folder.path().join(name);
        let mut editor = editor_of(&Unpacked::new(name).path());
        editor.edit_superblock(|bytes| bytes[field::COMPAT_RO] &= !2);
        first_leaf(&mut editor, TreeId::FREE_SPACE, |items| {
            let last = *items.keys().last().unwrap();
            items.remove(&last);
        });
        std::fs::write(&image, editor.image().unwrap()).unwrap();
        let filesystem = OpenOptions::new().write(true).open(&image).unwrap();
        let made = filesystem.root().create(b"made", 0o644).unwrap().open().unwrap();
        made.append(&[7; 10_000]).unwrap();
        made.close().unwrap();
        filesystem.close().unwrap();
        judge(&image);
        let superblock = editor_of(&image).superblock();
        assert_eq!(superblock[field::COMPAT_RO] & 3, 3, "it is valid");
    }
}

/// Images with an interrupted change by `btrfstune` cannot be read either.
#[test]
fn changes_of_the_whole_filesystem_are_refused_by_name() {
    for (bit, name) in [
        (35, "changing-fsid"),
        (36, "changing-fsid-v2"),
        (38, "changing-bg-tree"),
        (39, "changing-data-csum"),
        (40, "changing-meta-csum"),
    ] {
        let mut editor = fresh();
        editor.edit_superblock(|bytes| bytes[field::FLAGS + bit / 8] |= 1 << (bit % 8));
        assert_says(&unwritable(editor.device(), name), &["unsupported feature", name]);
    }
}

#[test]
fn operations_that_only_linux_can_resume_are_refused_by_name() {
    refused("balance", "a balance is running", |editor| {
        edit_leaf(editor, TreeId::ROOT, FS_ROOT, |items| {
            items.insert(Key::new(BALANCE, ItemKind::TEMPORARY_ITEM, 0), vec![0; 448]);
        });
    });
    refused("relocation", "a relocation is running", |editor| {
        edit_leaf(editor, TreeId::ROOT, FS_ROOT, |items| {
            let root = items[&FS_ROOT].clone();
            items.insert(Key::new(TREE_RELOC, ItemKind::ROOT_ITEM, 5), root);
        });
    });
}

/// Puts a device replacement of this state into an image.
fn put_replacement(editor: &mut ImageEditor, state: u64) {
    let mut item = vec![0; 72];
    put_u64(&mut item, 32, state);
    first_leaf(editor, TreeId::DEV, |items| {
        items.insert(Key::new(0, ItemKind::DEV_REPLACE, 0), item);
    });
}

/// Linux does not remove the item of a replacement that is done.
#[test]
fn a_device_replacement_is_refused_while_it_runs() {
    for state in [1, 4, 5] {
        refused("replacement", "a device is being replaced", |editor| {
            put_replacement(editor, state);
        });
    }
    for state in [0, 2, 3] {
        let unpacked = Unpacked::new("fresh");
        put_replacement(&mut unpacked.editor(), state);
        let filesystem = OpenOptions::new().write(true).open(unpacked.path()).unwrap();
        filesystem.create_dir("/a", 0o755).unwrap();
        filesystem.close().unwrap();
    }
}

#[test]
fn block_groups_that_contradict_their_chunks_are_refused_by_name() {
    for kind in [DATA, SYSTEM, METADATA] {
        refused("no group", "has no block group", |editor| {
            group(editor, kind, |items, key| drop(items.remove(&key)));
        });
        refused("another type", "its chunk has", |editor| {
            group(editor, kind, |items, key| {
                items.insert(key, block_group(0, DATA | METADATA));
            });
        });
    }
    refused("no chunk", "has no chunk", |editor| {
        group(editor, METADATA, |items, _| {
            let end = Key::new(1 << 40, ItemKind::BLOCK_GROUP_ITEM, 1 << 20);
            items.insert(end, block_group(0, METADATA));
        });
    });
}

/// The sum of free and used bytes shows that one of the two is wrong: an allocation could hand out
/// space that is in use.
#[test]
fn used_bytes_that_contradict_free_space_are_refused_by_name() {
    for kind in [SYSTEM, METADATA] {
        refused("used", "bytes are free and", |editor| {
            group(editor, kind, |items, key| {
                let item = items.get_mut(&key).unwrap();
                let used = u64_at(item, 0) + (16 << 10);
                put_u64(item, 0, used);
            });
        });
    }
}

#[test]
fn a_file_that_is_open_for_reading_is_refused() {
    let unpacked = Unpacked::new("fresh");
    let device = FileDevice::open(unpacked.path(), FileOptions::default()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    assert_says(&unwritable(&device, "fresh"), &["image", "open for reading only"]);
}

#[test]
fn a_second_writer_is_refused_while_the_first_is_open_and_waits_while_it_closes() {
    let made = Made::new();
    let first = made.open_for_writing();
    let second = reason(OpenOptions::new().write(true).open(made.image()));
    assert_says(&second, &["image", "is locked: open for writing or mounted"]);
    assert_eq!(second.errno(), 16);
    first.create_dir("/first", 0o755).unwrap();
    first.volume().mark_closing();
    let (opened, opens) = channel();
    let image = made.image();
    let waits = thread::spawn(move || {
        let filesystem = OpenOptions::new().write(true).open(image).unwrap();
        opened.send(()).unwrap();
        filesystem.metadata("/first").unwrap();
    });
    assert!(opens.recv_timeout(Duration::from_millis(100)).is_err(), "it waits for the end");
    first.close().unwrap();
    opens.recv_timeout(Duration::from_mins(1)).unwrap();
    waits.join().unwrap();
    made.judge();
}
