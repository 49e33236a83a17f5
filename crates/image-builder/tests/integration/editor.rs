//! The editor changes and seals every copy, and can undo all edits.

use userbtrfs_codec::ChecksumKind;
use userbtrfs_format::{
    Expectation, ItemKind, Key, Physical, SUPERBLOCK_OFFSETS, Superblock, TreeBlock, TreeId,
};
use userbtrfs_image_builder::{ImageEditor, RawBlock, field, header, put_u64, small_image, u64_at};

const ROOT_DIR: Key = Key::new(256, ItemKind::INODE_ITEM, 0);

fn editor() -> ImageEditor {
    ImageEditor::from_bytes(small_image()).expect("the image is sound")
}

#[test]
fn find_item_returns_its_location() {
    let editor = editor();
    let key = Key::new(257, ItemKind::EXTENT_DATA, 0);
    let place = editor.find_item(TreeId::FS, key).unwrap();
    let leaf = editor.block(place.logical).unwrap();
    assert!(leaf[place.range.clone()].ends_with(b"hello\n"));
    assert_eq!(editor.find_item(TreeId::FS, Key::new(9, ItemKind::INODE_ITEM, 0)), None);
    assert_eq!(editor.tree_blocks(TreeId::FS).len(), 3);
}

#[test]
fn an_edit_reaches_and_seals_every_copy() {
    let mut editor = editor();
    let place = editor.find_item(TreeId::FS, ROOT_DIR).unwrap();
    editor.edit_item(&place, |inode| put_u64(inode, 0x10, 77));
    let image = editor.image().unwrap();
    let copies = editor.copies(place.logical);
    assert_eq!(copies.len(), 2);
    for Physical(at) in copies {
        let block = &image[usize::try_from(at).unwrap()..][..4096];
        assert_eq!(u64_at(&block[place.range.clone()], 0x10), 77);
        let expected = Expectation {
            owner: TreeId::FS,
            level: 0,
            generation: u64_at(block, header::GENERATION),
            first_key: Some(ROOT_DIR),
            end: None,
        };
        TreeBlock::verify(block, place.logical, editor.geometry(), &expected).unwrap();
    }
}

#[test]
fn items_added_to_and_removed_from_a_leaf_are_there_in_order() {
    let mut editor = editor();
    let place = editor.find_item(TreeId::FS, ROOT_DIR).unwrap();
    let before = editor.items(TreeId::FS).len();
    let first = Key::new(255, ItemKind(1), 0);
    let last = Key::new(256, ItemKind(84), u64::MAX);
    editor.edit_items(place.logical, |items| {
        items.retain(|(key, _)| *key != ROOT_DIR);
        items.extend([(last, b"last".to_vec()), (first, b"first".to_vec())]);
    });
    let items = editor.items(TreeId::FS);
    assert_eq!(items.len(), before + 1);
    assert!(items.is_sorted_by_key(|item| item.key));
    assert_eq!(editor.find_item(TreeId::FS, ROOT_DIR), None);
    let added = editor.find_item(TreeId::FS, last).unwrap();
    assert_eq!(editor.block(added.logical).unwrap()[added.range], *b"last");
}

#[test]
fn an_edited_superblock_is_sealed() {
    let mut editor = editor();
    editor.edit_superblock(|bytes| put_u64(bytes, field::BYTES_USED, 5));
    let superblock = Superblock::parse(&editor.superblock(), SUPERBLOCK_OFFSETS[0]).unwrap();
    assert_eq!((superblock.bytes_used, superblock.checksum_kind), (5, ChecksumKind::Crc32c));
}

/// A leaf whose items are all empty contains no roots, and does not cause a panic.
#[test]
fn root_of_empty_root_item_is_none() {
    let mut editor = editor();
    let root_tree = editor.root(TreeId::ROOT).unwrap();
    editor.edit_block(root_tree, |block| {
        for slot in 0..RawBlock(block).slots() {
            RawBlock::set_item_size(block, slot, 0);
        }
    });
    assert_eq!(editor.root(TreeId::FS), None);
    assert_eq!(editor.find_item(TreeId::FS, ROOT_DIR), None);
}

#[test]
fn everything_edited_can_be_put_back() {
    let mut editor = editor();
    for value in 0..3 {
        editor.edit_superblock(|bytes| bytes[200] = value);
        editor.edit_raw(Physical(65536), 5000, |bytes| bytes.fill(value));
    }
    assert_ne!(editor.image().unwrap(), small_image());
    editor.revert();
    assert_eq!(editor.image().unwrap(), small_image());
}
