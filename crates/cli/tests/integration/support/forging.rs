//! Changes to leaves item by item, and to data with its checksums.

use std::collections::BTreeMap;

use userbtrfs::{ItemKind, Key, Logical, Physical, TreeId};
use userbtrfs_codec::ChecksumKind;
use userbtrfs_codec::hash::name_hash;
use userbtrfs_image_builder::{
    ImageEditor, InodeSpec, LeafBuilder, Place, RawBlock, dir_entry, header, inode_ref, u64_at,
};

/// The inode number of the file "large" of the small image, and the address of its data.
pub(crate) const LARGE: u64 = 258;
pub(crate) const LARGE_DATA: Logical = Logical(0x40_0000);

/// The bytes of a sector.
pub(crate) const SECTOR: usize = 4096;

/// The items of a leaf.
pub(crate) type Items = BTreeMap<Key, Vec<u8>>;

/// Changes the items of the leaf of `tree` that holds `key`, as far as they fit.
pub(crate) fn edit_leaf(
    editor: &mut ImageEditor,
    tree: TreeId,
    key: Key,
    edit: impl FnOnce(&mut Items),
) {
    let logical = find(editor, tree, key).logical;
    edit_leaf_at(editor, logical, edit);
}

/// Changes the items of the leaf at an address, as far as they fit.
pub(crate) fn edit_leaf_at(
    editor: &mut ImageEditor,
    logical: Logical,
    edit: impl FnOnce(&mut Items),
) {
    let block = editor.block(logical).expect("there is a leaf");
    let raw = RawBlock(&block);
    let item = |slot| (raw.key(slot), block[raw.item(slot).expect("sound")].to_vec());
    let mut items: Items = (0..raw.slots()).map(item).collect();
    edit(&mut items);
    let place = Place {
        logical,
        owner: TreeId(u64_at(&block, header::OWNER)),
        generation: u64_at(&block, header::GENERATION),
    };
    let leaf = LeafBuilder::new(editor.geometry()).place(place);
    let leaf = items.into_iter().fold(leaf, |leaf, (key, content)| leaf.item(key, content));
    let bytes = leaf.build();
    editor.edit_block(logical, |block| block.copy_from_slice(&bytes));
}

/// Returns the place of an item, which must exist.
pub(crate) fn find(
    editor: &ImageEditor,
    tree: TreeId,
    key: Key,
) -> userbtrfs_image_builder::ItemPlace {
    editor.find_item(tree, key).unwrap_or_else(|| panic!("{key} is not in {tree:?}"))
}

/// Changes the content of an item of the top-level subvolume; its size stays the same.
pub(crate) fn edit_item(editor: &mut ImageEditor, key: Key, edit: impl FnMut(&mut [u8])) {
    let place = find(editor, TreeId::FS, key);
    editor.edit_item(&place, edit);
}

/// Returns the key of an inode.
pub(crate) fn inode(number: u64) -> Key {
    Key::new(number, ItemKind::INODE_ITEM, 0)
}

/// Returns the key of an extent of a file.
pub(crate) fn extent(number: u64, offset: u64) -> Key {
    Key::new(number, ItemKind::EXTENT_DATA, offset)
}

/// Puts a name into a directory: both of its entries.
pub(crate) fn put_name(items: &mut Items, dir: u64, index: u64, name: &[u8], to: (Key, u8)) {
    let entry = dir_entry(to.0, to.1, name, b"");
    let hash = Key::new(dir, ItemKind::DIR_ITEM, u64::from(name_hash(name)));
    items.entry(hash).or_default().extend_from_slice(&entry);
    items.insert(Key::new(dir, ItemKind::DIR_INDEX, index), entry);
}

/// Makes a directory whose one name is in `parent`.
pub(crate) fn put_dir(items: &mut Items, number: u64, parent: u64, index: u64, name: &[u8]) {
    items.insert(inode(number), InodeSpec::directory(0).build());
    items.insert(Key::new(number, ItemKind::INODE_REF, parent), inode_ref(index, name));
}

/// Returns the bytes of the first copy of a sector.
pub(crate) fn sector(editor: &ImageEditor, logical: Logical) -> Vec<u8> {
    let at = copies(editor, logical)[0];
    editor.device().read(at.0, SECTOR).expect("it is on the device").to_vec()
}

/// Returns the physical addresses of the copies of a sector of data.
pub(crate) fn copies(editor: &ImageEditor, logical: Logical) -> Vec<Physical> {
    let filesystem = super::open(editor).expect("the image opens");
    let mapping = filesystem.volume().map(logical, 4096).expect("a chunk holds it");
    mapping.copies().collect()
}

/// Overwrites whole sectors of data in each copy, and updates their checksums.
pub(crate) fn write_data(editor: &mut ImageEditor, logical: Logical, bytes: &[u8]) {
    let starts = (logical.0..).step_by(SECTOR).map(Logical);
    for (at, sector) in starts.zip(bytes.chunks_exact(SECTOR)) {
        for physical in copies(editor, at) {
            editor.edit_raw(physical, SECTOR, |place| place.copy_from_slice(sector));
        }
        let checksum = ChecksumKind::Crc32c.compute(sector);
        let item = editor
            .items(TreeId::CSUM)
            .into_iter()
            .rfind(|item| item.key.offset <= at.0)
            .expect("the sector has a checksum");
        let index = usize::try_from(at.0 - item.key.offset).expect("near") / SECTOR;
        editor.edit_item(&item, |sums| sums[index * 4..][..4].copy_from_slice(checksum.as_bytes()));
    }
}

/// Flips a bit of a sector in one copy of it, and does not update its checksum.
pub(crate) fn flip(editor: &mut ImageEditor, logical: Logical, copy: usize) {
    let physical = copies(editor, logical)[copy];
    editor.edit_raw(physical, SECTOR, |bytes| bytes[10] ^= 1);
}
