//! Tree blocks: each check is tested with damage that no other check detects.

use userbtrfs::{
    BlockError, Error, Key, Logical, MirrorError, OpenError, Quoted, ReadError, TreeId,
};
use userbtrfs_image_builder::{ImageEditor, RawBlock, header, put_u32, put_u64, u32_at};

use crate::support::command::{Bench, verb};
use crate::support::golden::Unpacked;
use crate::support::shown::{Shown, shown};
use crate::support::{assert_says, open, small};

/// Damage to a block, and the error that it must cause.
struct Damage {
    name: &'static str,
    edit: fn(&mut [u8]),
    found: fn(&BlockError) -> bool,
    said: &'static str,
}

const fn damage(
    name: &'static str,
    edit: fn(&mut [u8]),
    found: fn(&BlockError) -> bool,
    said: &'static str,
) -> Damage {
    Damage { name, edit, found, said }
}

/// Damage to any block.
const HEADERS: &[Damage] = &[
    damage(
        "address",
        |block| put_u64(block, header::BYTENR, 0x77_0000),
        |error| matches!(error, BlockError::Address(Logical(0x77_0000))),
        "the header says that this is block 7798784",
    ),
    damage(
        "filesystem",
        |block| block[header::FSID] ^= 1,
        |error| matches!(error, BlockError::Fsid(_)),
        "belongs to filesystem",
    ),
    damage(
        "never written",
        |block| block[header::FLAGS] = 0,
        |error| matches!(error, BlockError::Flags { flags: 0, .. }),
        "are impossible",
    ),
    damage(
        "time before back references",
        |block| block[header::REVISION] = 0,
        |error| matches!(error, BlockError::Flags { revision: 0, .. }),
        "back reference revision 0",
    ),
    damage(
        "level",
        |block| block[header::LEVEL] += 1,
        |error| matches!(error, BlockError::Level { expected, found } if *found == expected + 1),
        "level is",
    ),
    damage(
        "level beyond all",
        |block| block[header::LEVEL] = 255,
        |error| matches!(error, BlockError::Level { found: 255, .. }),
        "level is 255",
    ),
    damage(
        "owner",
        |block| put_u64(block, header::OWNER, 42),
        |error| matches!(error, BlockError::Owner { found: TreeId(42), .. }),
        "owner is tree 42",
    ),
    damage(
        "generation",
        |block| put_u64(block, header::GENERATION, 6),
        |error| matches!(error, BlockError::Generation { expected: 7, found: 6 }),
        "generation is 6, expected 7",
    ),
    damage(
        "too many items",
        |block| put_u32(block, header::NRITEMS, u32::MAX),
        |error| matches!(error, BlockError::ItemCount(u32::MAX)),
        "4294967295 items are impossible",
    ),
];

/// Damage to any leaf.
const LEAVES: &[Damage] = &[
    damage(
        "item offset",
        |block| RawBlock::set_item_offset(block, 0, 1),
        |error| matches!(error, BlockError::ItemEnd { slot: 0, .. }),
        "slot 0: item data ends at",
    ),
    damage(
        "item offset and size overflow",
        |block| {
            RawBlock::set_item_offset(block, 0, u32::MAX);
            RawBlock::set_item_size(block, 0, u32::MAX);
        },
        |error| matches!(error, BlockError::ItemEnd { slot: 0, found: 0x1_ffff_fffe, .. }),
        "item data ends at 8589934590",
    ),
    damage(
        "item size",
        |block| RawBlock::set_item_size(block, 0, 0),
        |error| matches!(error, BlockError::ItemEnd { slot: 0, .. }),
        "item data ends at",
    ),
    damage(
        "item in the heads",
        |block| {
            let last = RawBlock(block).slots() - 1;
            let end = RawBlock(block).item(last).expect("sound").end - header::SIZE;
            RawBlock::set_item_offset(block, last, 0);
            RawBlock::set_item_size(block, last, u32::try_from(end).expect("small"));
        },
        |error| matches!(error, BlockError::ItemStart { offset: 0, .. }),
        "reaches into the item heads",
    ),
];

/// Damage to a leaf of several items.
const SEVERAL: &[Damage] = &[
    damage(
        "key order",
        |block| RawBlock::set_key(block, 1, Key::MIN),
        |error| matches!(error, BlockError::KeyOrder { slot: 1, key: Key::MIN, .. }),
        "slot 1: key (0 UNKNOWN.0 0) does not follow",
    ),
    damage(
        "key twice",
        |block| {
            let key = RawBlock(block).key(0);
            RawBlock::set_key(block, 1, key);
        },
        |error| matches!(error, BlockError::KeyOrder { slot: 1, .. }),
        "does not follow",
    ),
];

/// Damage to a node.
const NODES: &[Damage] = &[
    damage(
        "no pointers",
        |block| put_u32(block, header::NRITEMS, 0),
        |error| matches!(error, BlockError::ItemCount(0)),
        "0 items are impossible",
    ),
    damage(
        "unaligned child",
        |block| RawBlock::set_child(block, 0, 0x20_4001),
        |error| matches!(error, BlockError::ChildAddress { slot: 0, child: Logical(0x20_4001) }),
        "slot 0: child address 2113537 is impossible",
    ),
    damage(
        "child at 0",
        |block| RawBlock::set_child(block, 1, 0),
        |error| matches!(error, BlockError::ChildAddress { slot: 1, child: Logical(0) }),
        "slot 1: child address 0 is impossible",
    ),
    damage(
        "newer child",
        |block| RawBlock::set_child_generation(block, 0, 8),
        |error| matches!(error, BlockError::ChildGeneration { slot: 0, child: 8, own: 7 }),
        "child generation 8 is newer than the block's 7",
    ),
    damage(
        "key order",
        |block| RawBlock::set_key(block, 1, Key::MIN),
        |error| matches!(error, BlockError::KeyOrder { slot: 1, .. }),
        "slot 1",
    ),
];

/// Damage to the content of the first item of a leaf of each tree.
const CONTENTS: &[(TreeId, Damage)] = &[
    (TreeId::FS, content("mode", |block| first(block)[0x34..0x38].fill(0), "mode 0 has no")),
    (TreeId::FS, content("times ten", |block| first(block)[0..8].fill(0xff), "is newer than")),
    (TreeId::ROOT, content("root level", |block| first(block)[0xee] = 9, "level")),
    (TreeId::ROOT, content("root address", |block| first(block)[0xb0] = 1, "not aligned")),
    (TreeId::EXTENT, content("flags", |block| first(block)[0x10] = 3, "is impossible")),
    (
        TreeId::CSUM,
        content(
            "object",
            |block| RawBlock::set_key(block, 0, Key { objectid: 1, ..RawBlock(block).key(0) }),
            "object id 1 is out of range",
        ),
    ),
    (TreeId::CHUNK, content("device", |block| first(block)[0] = 2, "key offset 1 is out of range")),
];

const fn content(name: &'static str, edit: fn(&mut [u8]), said: &'static str) -> Damage {
    damage(name, edit, |error| matches!(error, BlockError::Item { slot: 0, .. }), said)
}

/// Returns the content of the first item of a leaf.
fn first(block: &mut [u8]) -> &mut [u8] {
    let range = RawBlock(block).item(0).expect("sound");
    &mut block[range]
}

/// Returns the trees that reading needs, each with its first leaf.
fn leaves(editor: &ImageEditor) -> Vec<(TreeId, Logical)> {
    let trees = [TreeId::FS, TreeId::ROOT, TreeId::EXTENT, TreeId::CSUM, TreeId::CHUNK];
    let leaf = |tree| {
        let blocks = editor.tree_blocks(tree);
        let leaf = blocks.iter().find(|(_, block)| RawBlock(block).level() == 0);
        (tree, leaf.expect("a tree has a leaf").0)
    };
    trees.map(leaf).to_vec()
}

/// Does an operation that needs a tree, and returns its error.
fn provoke(editor: &ImageEditor, tree: TreeId) -> Error {
    let filesystem = match open(editor) {
        Ok(filesystem) => filesystem,
        Err(error) => return error,
    };
    let failed = match tree {
        TreeId::EXTENT => filesystem.usage().err(),
        TreeId::CSUM => filesystem.read("/large").err().map(|failed| failed.error),
        _ => filesystem.metadata("/small").err().map(|failed| failed.error),
    };
    failed.unwrap_or_else(|| panic!("damage to {tree:?} was not noticed"))
}

/// Returns the address and the tree of a block error, and the errors of each copy.
fn block_error(error: &Error) -> (Logical, TreeId, Vec<&BlockError>) {
    let (Error::Read(read) | Error::Open(OpenError::ChunkTree(read))) = error else {
        panic!("{error}");
    };
    let ReadError::Block { logical, tree, copies } = read else { panic!("{error}") };
    let copies = copies.iter().map(|(_, copy)| match copy {
        MirrorError::Block(error) => error,
        MirrorError::Device(error) => panic!("{error}"),
    });
    (*logical, *tree, copies.collect())
}

/// Damages every copy of a block, and asserts that the error names the block and the damage.
fn assert_found(tree: TreeId, logical: Logical, damage: &Damage) {
    let mut editor = small();
    editor.edit_block(logical, damage.edit);
    let error = provoke(&editor, tree);
    let (at, through, copies) = block_error(&error);
    assert_eq!((at, through), (logical, tree), "{}: {error}", damage.name);
    assert!(copies.iter().all(|error| (damage.found)(error)), "{}: {error}", damage.name);
    assert_eq!(copies.len(), 2, "{}: {error}", damage.name);
    assert_says(&error, &[&format!("tree block {logical} of tree"), damage.said]);
}

#[test]
fn damage_to_leaves_is_named_with_block_and_check() {
    for (tree, logical) in leaves(&small()) {
        for damage in HEADERS.iter().chain(LEAVES) {
            assert_found(tree, logical, damage);
        }
        for damage in SEVERAL.iter().filter(|_| tree != TreeId::CSUM) {
            assert_found(tree, logical, damage);
        }
        for (_, damage) in CONTENTS.iter().filter(|(damaged, _)| *damaged == tree) {
            assert_found(tree, logical, damage);
        }
    }
}

#[test]
fn damage_to_nodes_is_named_with_block_and_check() {
    let root = small().root(TreeId::FS).unwrap();
    for damage in HEADERS.iter().chain(NODES) {
        assert_found(TreeId::FS, root, damage);
    }
}

#[test]
fn a_wrong_checksum_is_named_with_both_values() {
    for (tree, logical) in leaves(&small()) {
        let mut editor = small();
        for copy in editor.copies(logical) {
            editor.edit_raw(copy, 4096, |block| block[4000] ^= 1);
        }
        let error = provoke(&editor, tree);
        let (at, _, copies) = block_error(&error);
        assert_eq!(at, logical);
        for error in copies {
            let BlockError::Checksum { expected, found } = error else { panic!("{error}") };
            assert_ne!(expected, found);
        }
        assert_says(&error, &["checksum is", "the block says"]);
    }
}

/// Returns the small image after an edit of the root node of the top-level subvolume, and the
/// address of that node.
fn with_node(edit: impl FnMut(&mut [u8])) -> (ImageEditor, Logical) {
    let mut editor = small();
    let root = editor.root(TreeId::FS).unwrap();
    editor.edit_block(root, edit);
    (editor, root)
}

#[test]
fn a_node_that_is_its_own_child_is_found_by_its_level() {
    let root = small().root(TreeId::FS).unwrap();
    let (editor, _) = with_node(|block| RawBlock::set_child(block, 0, root.0));
    let error = provoke(&editor, TreeId::FS);
    let (logical, _, copies) = block_error(&error);
    assert_eq!(logical, root);
    assert!(copies.iter().all(|e| **e == BlockError::Level { expected: 0, found: 1 }), "{error}");
}

#[test]
fn a_child_that_is_its_ancestor_is_found_by_its_level() {
    let golden = Unpacked::new("nodesize-4k");
    let mut editor = golden.editor();
    let blocks = editor.tree_blocks(TreeId::FS);
    let [(root, top), (child, below), ..] = &blocks[..] else { panic!("a tree of one block") };
    assert_eq!((RawBlock(top).level(), RawBlock(below).level()), (2, 1));
    editor.edit_block(*child, |block| RawBlock::set_child(block, 0, root.0));
    let error = open(&editor).unwrap().metadata("/dir").unwrap_err().error;
    let (logical, _, copies) = block_error(&error);
    assert_eq!(logical, *root);
    assert!(copies.iter().all(|e| **e == BlockError::Level { expected: 0, found: 2 }), "{error}");
}

#[test]
fn a_child_outside_every_chunk_is_named() {
    let (editor, _) = with_node(|block| RawBlock::set_child(block, 0, 0x900_0000));
    let error = provoke(&editor, TreeId::FS);
    let unmapped = ReadError::Unmapped { logical: Logical(0x900_0000), len: 4096 };
    assert!(matches!(&error, Error::Read(e) if e.to_string() == unmapped.to_string()), "{error}");
    assert_says(&error, &["150994944", "lies in no chunk"]);
}

/// The pointer leads to a sound block of another tree, or to a later block of the same tree.
#[test]
fn child_that_is_another_block_is_refused() {
    let other = small().root(TreeId::CSUM).unwrap();
    let (editor, _) = with_node(|block| RawBlock::set_child(block, 0, other.0));
    let error = provoke(&editor, TreeId::FS);
    assert!(matches!(block_error(&error).2[0], BlockError::Owner { .. }), "{error}");

    let (editor, _) = with_node(|block| {
        let right = RawBlock(block).child(1);
        RawBlock::set_child(block, 0, right.0);
    });
    let error = provoke(&editor, TreeId::FS);
    assert!(matches!(block_error(&error).2[0], BlockError::FirstKey { .. }), "{error}");
}

#[test]
fn child_beyond_its_key_range_is_named() {
    // The left leaf holds the root directory's entries, up to an index.
    let (editor, _) = with_node(|block| {
        let key = Key { offset: 3, ..Key::new(256, userbtrfs::ItemKind::DIR_INDEX, 0) };
        RawBlock::set_key(block, 1, key);
    });
    let error = provoke(&editor, TreeId::FS);
    assert!(matches!(block_error(&error).2[0], BlockError::PastEnd { .. }), "{error}");
    assert_says(&error, &["where the next block starts"]);
}

/// The leaf with all inodes but the root directory is damaged in both copies.
#[test]
fn items_outside_a_bad_leaf_are_still_read() {
    let mut editor = small();
    let blocks = editor.tree_blocks(TreeId::FS);
    let (right, _) = *blocks.last().as_ref().expect("it has blocks");
    editor.edit_block(*right, |block| put_u64(block, header::GENERATION, 6));
    let filesystem = open(&editor).unwrap();
    assert_eq!(block_error(&filesystem.read("/small").unwrap_err().error).0, *right);
    assert_eq!(filesystem.read("/sub/inner").unwrap(), b"world\n");
    let names = filesystem.root().entries().filter_map(Result::ok);
    assert_eq!(names.count(), 6, "all that comes before the bad leaf is listed");

    let bench = Bench::new(&editor);
    let found = bench.verb("find", &["/"]);
    let listed = String::from_utf8(found.stdout.clone()).unwrap();
    assert!(listed.contains("/sub/inner\n") && listed.contains("/small\n"), "{listed}");
    assert_says(&found.bad(), &[&format!("tree block {right} of tree"), "generation is 6"]);

    let said = bench.get_all("copy").bad();
    assert_says(&said, &["/small: ", &format!("tree block {right}")]);
    assert_eq!(std::fs::read(bench.at("copy/sub/inner")).unwrap(), b"world\n");
    assert!(!bench.at("copy/small").exists());
}

/// Changes every seventh used byte of each tree block, one at a time, with the checksum made right.
#[test]
fn no_byte_of_a_block_makes_reading_panic() {
    let sound = shown(&open(&small()).unwrap()).unwrap();
    let mut editor = small();
    let blocks: Vec<_> = editor.trees().iter().flat_map(|tree| editor.tree_blocks(*tree)).collect();
    for (logical, block) in blocks {
        let used = (0..block.len()).filter(|at| *at < 1000 || block[*at] != 0);
        for at in used.step_by(7) {
            editor.edit_block(logical, |block| block[at] ^= 0x81);
            let _ = read_everything(&editor);
            editor.revert();
        }
    }
    assert_eq!(read_everything(&editor).unwrap(), sound);
}

fn read_everything(editor: &ImageEditor) -> Result<Shown, Error> {
    let filesystem = open(editor)?;
    let _ = filesystem.usage();
    let _ = filesystem.subvolumes();
    for entry in filesystem.walk("/")?.take(1000) {
        let Ok(entry) = entry else { continue };
        let _ = entry.inode.xattrs();
        let _ = entry.inode.read_link();
        let _ = entry.inode.open().map(|file| {
            let mut start = [0; 100];
            let _ = file.read_at(&mut start, 0);
            let _ = file.extents();
            let mut reader = file.reader();
            while let Ok(Some(_)) = reader.next_chunk() {}
        });
    }
    shown(&filesystem)
}

/// Flips a bit in one copy of every block of every tree.
fn damage_copies(editor: &mut ImageEditor, copy: usize) {
    let nodesize = usize::try_from(editor.geometry().nodesize).unwrap();
    for tree in editor.trees() {
        for (logical, block) in editor.tree_blocks(tree) {
            let at = editor.copies(logical)[copy];
            assert_eq!(u32_at(&block, header::NRITEMS) as usize, RawBlock(&block).nritems());
            editor.edit_raw(at, nodesize, |bytes| bytes[nodesize - 1] ^= 1);
        }
    }
}

#[test]
fn one_good_copy_of_each_block_is_enough() {
    let sound = shown(&open(&small()).unwrap()).unwrap();
    for copy in 0..2 {
        let mut editor = small();
        damage_copies(&mut editor, copy);
        let filesystem = open(&editor).unwrap();
        assert_eq!(shown(&filesystem).unwrap(), sound);
        filesystem.usage().unwrap();
    }
}

#[test]
fn one_good_copy_of_each_block_of_a_golden_image_is_enough() {
    for name in ["dup", "nodesize-4k", "sha256"] {
        let golden = Unpacked::new(name);
        let mut editor = golden.editor();
        let sound = shown(&open(&editor).unwrap()).unwrap();
        for copy in 0..2 {
            damage_copies(&mut editor, copy);
            let filesystem = open(&editor).unwrap();
            let now = shown(&filesystem).unwrap();
            let path = sound.iter().find(|(path, what)| now.get(*path) != Some(what));
            assert!(path.is_none(), "{}", Quoted(path.unwrap().0));
            editor.revert();
        }
    }
}

/// A tree whose ROOT_ITEM cannot be read may exist.
#[test]
fn dump_of_tree_reports_damage_of_root_tree_that_hides_it() {
    let mut editor = small();
    let dump = |editor: &ImageEditor, tree: &str| {
        verb("dump tree", &Bench::new(editor).image(), &["-t", tree]).bad()
    };
    assert_says(&dump(&editor, "4000"), &["there is no tree 4000"]);
    let root = editor.root(TreeId::ROOT).unwrap();
    editor.edit_block(root, |block| block[header::FSID] ^= 1);
    for (tree, name) in [("5", "FS_TREE"), ("4000", "4000")] {
        let lost = format!("tree {name} was not found: the root tree is damaged");
        let damage = format!("tree block {root} of tree");
        assert_says(&dump(&editor, tree), &[&damage, "belongs to filesystem", &lost]);
    }
}
