//! Writing to a damaged image: it succeeds and makes no damage worse, or it fails, aborts the
//! filesystem, and leaves the image as it was.
//!
//! 1. Each damage is combined with each change, on a fresh copy of an image that Linux made.
//! 2. After a failed commit every tree block that the superblock leads to is as it was.
//! 3. After a successful commit `btrfs check` finds no more than before, and everything outside of
//!    the paths of the change reads the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use userbtrfs::{
    FileKind, Filesystem, Inode, ItemKind, Key, Logical, OpenOptions, PathResult, Physical, Quoted,
    TreeId,
};
use userbtrfs_image_builder::{ImageEditor, ItemPlace, put_u32, put_u64, u64_at};

use crate::support::forging::{Items, edit_leaf, find, inode};
use crate::support::golden::Unpacked;

/// A directory of the image, with 100 files of long names, and one of its files.
const MANY: u64 = 473;
const DIR: u64 = 257;

/// Free ranges of the image, according to its free space tree.
const HOLE: u64 = 30_416_896;
const REST: (u64, u64) = (31_522_816, 32_440_320);
const BLOCK: u64 = 4096;

/// A kind of damage.
struct Damage {
    name: &'static str,
    /// The [`Outcome`] of each change in turn: R, F or D. A single R is for all changes.
    comes: &'static str,
    make: fn(&mut ImageEditor),
}

/// A change, and the start of the paths that it may change.
struct Change {
    name: &'static str,
    about: &'static str,
    make: fn(&Filesystem) -> PathResult<()>,
}

const CHANGES: [Change; 6] = [
    Change {
        name: "a new directory",
        about: "/new",
        make: |fs| fs.create_dir("/new", 0o755).map(drop),
    },
    Change {
        name: "new files",
        about: "/empty",
        make: |fs| (0..300).try_for_each(|n| fs.write(format!("/empty/{n}"), vec![1; 700])),
    },
    Change {
        name: "a rename",
        about: "/many/2",
        make: |fs| fs.rename(format!("/many/2/079 {}", "x".repeat(60)), "/many/2/renamed"),
    },
    Change { name: "a removal of data", about: "/dir", make: |fs| fs.remove_dir_all("/dir") },
    Change { name: "a removal of files", about: "/many", make: |fs| fs.remove_dir_all("/many") },
    Change { name: "a removal of all", about: "/", make: remove_all },
];

fn remove_all(filesystem: &Filesystem) -> PathResult<()> {
    ["/dir", "/empty", "/large", "/many"].iter().try_for_each(|dir| filesystem.remove_dir_all(dir))
}

/// Returns the tree block that holds an inode of the top-level subvolume.
fn leaf_of(editor: &ImageEditor, number: u64) -> Logical {
    find(editor, TreeId::FS, inode(number)).logical
}

fn block_key(logical: Logical) -> Key {
    Key::new(logical.0, ItemKind::METADATA_ITEM, 0)
}

/// Removes the extent item of the tree block that holds an inode.
fn forget_block(editor: &mut ImageEditor, number: u64) {
    let key = block_key(leaf_of(editor, number));
    edit_leaf(editor, TreeId::EXTENT, key, |items| drop(items.remove(&key).unwrap()));
}

/// Sets the reference count of the tree block that holds an inode to `refs`.
fn miscount_block(editor: &mut ImageEditor, number: u64, refs: u64) {
    let key = block_key(leaf_of(editor, number));
    let place = find(editor, TreeId::EXTENT, key);
    editor.edit_item(&place, |item| put_u64(item, 0, refs));
}

/// Returns the item of the first data extent that only the directory "/dir" uses.
fn data_extent(editor: &ImageEditor) -> ItemPlace {
    find(editor, TreeId::EXTENT, Key::new(13_643_776, ItemKind::EXTENT_ITEM, BLOCK))
}

/// Moves a data extent so that it reaches beyond its block group, consistently in all items that
/// refer to it.
fn outgrow_group(editor: &mut ImageEditor) {
    let old = data_extent(editor).key;
    let mut groups = editor.items(TreeId::EXTENT).into_iter().map(|item| item.key);
    let holds = |key: &Key| {
        key.kind == ItemKind::BLOCK_GROUP_ITEM
            && (key.objectid..key.objectid + key.offset).contains(&old.objectid)
    };
    let end = groups.find(holds).map(|group| group.objectid + group.offset).unwrap();
    let start = end - BLOCK;
    let len = 2 * BLOCK;
    edit_leaf(editor, TreeId::EXTENT, old, |items| {
        let item = items.remove(&old).unwrap();
        items.insert(Key { objectid: start, offset: len, ..old }, item);
    });
    let files = editor.items(TreeId::FS).into_iter();
    for place in files.filter(|item| item.key.kind == ItemKind::EXTENT_DATA) {
        editor.edit_item(&place, |item| {
            if item.len() == 53 && u64_at(item, 21) == old.objectid {
                // The fields ram_bytes, disk_bytenr and disk_num_bytes.
                for (at, n) in [(8, len), (21, start), (29, len)] {
                    put_u64(item, at, n);
                }
            }
        });
    }
}

/// Damages the first `copies` copies of a tree block.
fn spoil(editor: &mut ImageEditor, logical: Logical, copies: usize) {
    let places: Vec<Physical> = editor.copies(logical).into_iter().take(copies).collect();
    for physical in places {
        editor.edit_raw(physical, 4096, |bytes| bytes[200] ^= 0xff);
    }
}

/// Changes the free space tree.
fn free_space(editor: &mut ImageEditor, edit: impl FnOnce(&mut Items)) {
    let first = editor.items(TreeId::FREE_SPACE)[0].key;
    edit_leaf(editor, TreeId::FREE_SPACE, first, edit);
}

fn free_range(start: u64, len: u64) -> Key {
    Key::new(start, ItemKind::FREE_SPACE_EXTENT, len)
}

/// Changes the number of free extents in the FREE_SPACE_INFO of the metadata block group.
fn recount(items: &mut Items, more: i32) {
    let key = Key::new(30_408_704, ItemKind::FREE_SPACE_INFO, 33_554_432);
    put_u32(items.get_mut(&key).unwrap(), 0, 17_u32.checked_add_signed(more).unwrap());
}

/// Returns the first entry of this kind in a directory that is not the first item of its leaf.
fn entry(editor: &ImageEditor, dir: u64, kind: ItemKind) -> ItemPlace {
    let is_entry = |item: &ItemPlace| item.key.objectid == dir && item.key.kind == kind;
    let items = editor.items(TreeId::FS);
    items.into_iter().find(|item| is_entry(item) && item.slot > 0).expect("it has some")
}

fn remove(editor: &mut ImageEditor, tree: TreeId, key: Key) {
    edit_leaf(editor, tree, key, |items| drop(items.remove(&key).unwrap()));
}

fn remove_entry(editor: &mut ImageEditor, dir: u64, kind: ItemKind) {
    let key = entry(editor, dir, kind).key;
    remove(editor, TreeId::FS, key);
}

/// Makes an entry lead to another inode than its counterpart.
fn mislead(editor: &mut ImageEditor, dir: u64, kind: ItemKind) {
    let place = entry(editor, dir, kind);
    editor.edit_item(&place, |item| put_u64(item, 0, u64_at(item, 0) + 1));
}

/// Damage to extents.
const EXTENTS: [Damage; 10] = [
    Damage { name: "none", comes: "DDDDDD", make: |_| {} },
    Damage {
        name: "extent of the first leaf missing",
        comes: "FFDFFF",
        make: |e| forget_block(e, 256),
    },
    Damage { name: "extent of a leaf missing", comes: "DDDDFF", make: |e| forget_block(e, 489) },
    Damage {
        name: "first leaf counted twice",
        comes: "FFDFFF",
        make: |e| miscount_block(e, 256, 2),
    },
    Damage { name: "leaf counted twice", comes: "DDDDFF", make: |e| miscount_block(e, 489, 2) },
    Damage { name: "leaf without references", comes: "R", make: |e| miscount_block(e, 489, 0) },
    Damage {
        name: "extent of data missing",
        comes: "DDDFDF",
        make: |e| {
            let key = data_extent(e).key;
            remove(e, TreeId::EXTENT, key);
        },
    },
    Damage {
        name: "extent of data counted twice",
        comes: "DDDFDF",
        make: |e| {
            let place = data_extent(e);
            e.edit_item(&place, |item| put_u64(item, 0, 2));
        },
    },
    Damage {
        name: "extent of data of another file",
        comes: "DDDFDF",
        make: |e| {
            let place = data_extent(e);
            e.edit_item(&place, |item| put_u64(item, 24 + 1 + 8, 999));
        },
    },
    Damage { name: "extent of data beyond its block group", comes: "DDDFDF", make: outgrow_group },
];

/// Damage to free space.
const FREE_SPACE: [Damage; 6] = [
    Damage {
        name: "free range missing",
        comes: "R",
        make: |e| {
            free_space(e, |items| {
                items.remove(&free_range(HOLE, BLOCK)).unwrap();
                recount(items, -1);
            });
        },
    },
    Damage {
        name: "free range over another",
        comes: "R",
        make: |e| {
            free_space(e, |items| {
                items.insert(free_range(REST.0 + BLOCK, BLOCK), vec![]);
                recount(items, 1);
            });
        },
    },
    Damage {
        name: "free ranges miscounted",
        comes: "R",
        make: |e| free_space(e, |items| recount(items, 1)),
    },
    Damage {
        name: "free range in use",
        comes: "FFFFFF",
        make: |e| {
            free_space(e, |items| {
                items.remove(&free_range(HOLE, BLOCK)).unwrap();
                items.insert(free_range(HOLE - BLOCK, BLOCK), vec![]);
            });
        },
    },
    Damage {
        name: "blocks in use called free",
        comes: "FFFFFF",
        make: |e| {
            free_space(e, |items| {
                items.remove(&free_range(REST.0, REST.1)).unwrap();
                items.insert(free_range(REST.0 - 30 * BLOCK, REST.1), vec![]);
                let within = free_range(31_358_976, 53_248);
                items.remove(&within).unwrap();
                items.insert(free_range(30_605_312, 53_248), vec![]);
            });
        },
    },
    Damage {
        name: "free space tree unreadable",
        comes: "R",
        make: |e| {
            let root = e.root(TreeId::FREE_SPACE).unwrap();
            spoil(e, root, 2);
        },
    },
];

/// Damage to checksums, and blocks that cannot be read.
const BLOCKS: [Damage; 6] = [
    Damage {
        name: "checksums missing",
        comes: "DDDDDD",
        make: |e| {
            let key = e.items(TreeId::CSUM)[1].key;
            remove(e, TreeId::CSUM, key);
        },
    },
    Damage {
        name: "checksums wrong",
        comes: "DDDDDD",
        make: |e| {
            let place = e.items(TreeId::CSUM)[0].clone();
            e.edit_item(&place, |item| item[13] ^= 1);
        },
    },
    Damage {
        name: "checksums twice",
        comes: "R",
        make: |e| {
            let key = e.items(TreeId::CSUM)[1].key;
            let twice = Key { offset: key.offset + 4 * BLOCK, ..key };
            edit_leaf(e, TreeId::CSUM, key, |items| drop(items.insert(twice, vec![7; 16])));
        },
    },
    Damage {
        name: "leaf unreadable",
        comes: "DDDDFF",
        make: |e| {
            let at = leaf_of(e, 489);
            spoil(e, at, 2);
        },
    },
    Damage {
        name: "leaf spoiled in one copy",
        comes: "DDDDDD",
        make: |e| {
            let at = leaf_of(e, 489);
            spoil(e, at, 1);
        },
    },
    Damage {
        name: "leaf of the extent tree unreadable",
        comes: "R",
        make: |e| {
            let at = data_extent(e).logical;
            spoil(e, at, 2);
        },
    },
];

/// Damage to names and inodes.
const NAMES: [Damage; 7] = [
    Damage {
        name: "name without index",
        comes: "DDDDDD",
        make: |e| remove_entry(e, MANY, ItemKind::DIR_INDEX),
    },
    Damage {
        name: "name without hash",
        comes: "DDDDDD",
        make: |e| remove_entry(e, MANY, ItemKind::DIR_ITEM),
    },
    Damage {
        name: "hash of another inode",
        comes: "DDDDDD",
        make: |e| mislead(e, MANY, ItemKind::DIR_ITEM),
    },
    Damage {
        name: "index of another inode",
        comes: "DDDDDD",
        make: |e| mislead(e, MANY, ItemKind::DIR_INDEX),
    },
    Damage {
        name: "inode without a name",
        comes: "DDDDDD",
        make: |e| {
            let place = entry(e, 490, ItemKind::INODE_REF);
            remove(e, TreeId::FS, place.key);
        },
    },
    Damage {
        name: "size of a directory wrong",
        comes: "DDDDDD",
        make: |e| {
            let place = find(e, TreeId::FS, inode(DIR));
            e.edit_item(&place, |item| put_u64(item, 16, 3));
        },
    },
    Damage {
        name: "links of a file miscounted",
        comes: "DDDDDD",
        make: |e| {
            let place = find(e, TreeId::FS, inode(264));
            e.edit_item(&place, |item| put_u32(item, 40, 0));
        },
    },
];

/// The visible content of a filesystem, including errors.
type Seen = BTreeMap<String, String>;

fn seen(filesystem: &Filesystem) -> Seen {
    let mut seen = Seen::new();
    let Ok(walk) = filesystem.walk("/") else { return seen };
    for (number, met) in walk.enumerate() {
        match met {
            Ok(met) => seen.insert(Quoted(&met.path).to_string(), describe(&met.inode)),
            Err(error) => seen.insert(format!("{error} {number}"), "error".into()),
        };
    }
    seen
}

fn describe(inode: &Inode) -> String {
    let content = || -> userbtrfs::Result<String> {
        let metadata = inode.metadata()?;
        let data = match metadata.kind {
            FileKind::Regular => inode.open()?.read_all()?,
            FileKind::Symlink => inode.read_link()?,
            _ => Vec::new(),
        };
        Ok(format!(
            "{metadata:?} {:?} {:?}",
            inode.xattrs()?,
            userbtrfs_codec::hash::name_hash(&data)
        ))
    };
    content().unwrap_or_else(|error| format!("error: {error}"))
}

fn seen_in(image: &Path) -> Seen {
    seen(&Filesystem::open(image).expect("what can be written can be read"))
}

/// Returns the blocks of every tree that the superblock leads to, and the superblock.
fn reached(image: &Path) -> Vec<(Logical, Vec<u8>)> {
    let editor = ImageEditor::open(image).unwrap();
    let mut blocks: Vec<_> =
        editor.trees().into_iter().flat_map(|tree| editor.tree_blocks(tree)).collect();
    blocks.push((Logical(0), editor.superblock()));
    blocks
}

/// Returns the errors that `btrfs check` finds; none if it is not installed.
fn findings(image: &Path) -> Vec<String> {
    userbtrfs_testkit::time_limit::limit_time();
    let check = Command::new("btrfs").args(["check", "--readonly"]).arg(image).output();
    let Ok(check) = check else { return Vec::new() };
    let said = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
    let ordinary = [
        "[",
        "Opening ",
        "Checking ",
        "UUID: ",
        "found ",
        "total ",
        "btree space",
        "file data",
        " referenced",
        "cache and super",
        "ERROR: errors found",
    ];
    // If it cannot read a block, it reports the inodes below that as missing.
    let blind = said.contains("is corrupted in tree");
    let of_inode = |line: &str| line.starts_with("root ") || line.starts_with("\tunresolved ref");
    let is_ordinary = |line: &str| ordinary.iter().any(|start| line.starts_with(start));
    let finding = |line: &&str| !(is_ordinary(line) || blind && of_inode(line));
    said.lines().filter(finding).map(str::to_owned).collect()
}

/// The outcome of a change to a damaged image.
#[derive(Clone, Copy)]
enum Outcome {
    /// The image is not opened for writing.
    Refused,
    /// The change or the commit fails.
    Failed,
    /// The commit succeeds, whether the change was made or refused.
    Done,
}

/// Makes an image with damage.
fn damaged(damage: &Damage) -> Unpacked {
    let unpacked = Unpacked::new("nodesize-4k");
    (damage.make)(&mut unpacked.editor());
    unpacked
}

/// The state of an image.
struct State {
    reached: Vec<(Logical, Vec<u8>)>,
    seen: Seen,
    findings: Vec<String>,
}

impl State {
    fn of(image: &Path) -> Self {
        Self { reached: reached(image), seen: seen_in(image), findings: findings(image) }
    }
}

fn meet(damage: &Damage, change: &Change, before: &State) -> Outcome {
    let what = format!("{}, {}", damage.name, change.name);
    let unpacked = damaged(damage);
    let image = unpacked.path();
    let opened = OpenOptions::new().write(true).open(&image);
    let Ok(filesystem) = opened else {
        assert!(reached(&image) == before.reached, "{what}: nothing is written");
        return Outcome::Refused;
    };
    // Its result does not matter: the image is checked.
    let _ = (change.make)(&filesystem);
    if filesystem.commit().is_ok() {
        filesystem.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_no_worse(&what, change, &image, before);
        return Outcome::Done;
    }
    assert_is_over(&what, filesystem);
    assert!(reached(&image) == before.reached, "{what}: the superblock leads to the same");
    assert!(seen_in(&image) == before.seen, "{what}: all shows as before");
    Outcome::Failed
}

#[track_caller]
fn assert_is_over(what: &str, filesystem: Filesystem) {
    assert!(!filesystem.is_writable(), "{what}");
    let again = filesystem.create_dir("/again", 0o755).expect_err("it is over");
    assert_eq!(again.errno(), 30, "{what}");
    assert!(filesystem.close().is_err(), "{what}: who closes is told");
}

#[track_caller]
fn assert_no_worse(what: &str, change: &Change, image: &Path, before: &State) {
    let found = &before.findings;
    let now = findings(image);
    assert!(now.len() <= found.len(), "{what}: found {found:#?}, and now {now:#?}");
    let apart = |seen: &Seen| -> Seen {
        let apart = |path: &str| path != "/" && !path.starts_with(change.about);
        seen.iter().filter(|(path, _)| apart(path)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    assert_eq!(apart(&seen_in(image)), apart(&before.seen), "{what}");
}

/// Combines each damage with each change, and checks the outcomes.
fn meet_all(damages: &[Damage]) {
    for damage in damages {
        let before = State::of(&damaged(damage).path());
        let count = damage.comes.len();
        let came = CHANGES[..count].iter().map(|change| match meet(damage, change, &before) {
            Outcome::Refused => 'R',
            Outcome::Failed => 'F',
            Outcome::Done => 'D',
        });
        assert_eq!(came.collect::<String>(), damage.comes, "{}", damage.name);
    }
}

#[test]
fn damage_of_extents_is_not_made_worse() {
    meet_all(&EXTENTS);
}

#[test]
fn damage_of_free_space_is_not_made_worse() {
    meet_all(&FREE_SPACE);
}

#[test]
fn damage_of_blocks_is_not_made_worse() {
    meet_all(&BLOCKS);
}

#[test]
fn damage_of_names_is_not_made_worse() {
    meet_all(&NAMES);
}
