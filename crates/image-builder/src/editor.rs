//! Edits of an image that keep all checksums right.
//!
//! 1. The chunk map is that of the image when it was opened: the editor finds blocks even after it
//!    has damaged the chunk tree.
//! 2. An edit reaches every copy, and each copy is sealed on its own.
//! 3. All edits can be undone: [`ImageEditor::revert`].

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use userbtrfs_device::{Buffer, Device, DeviceError, FileDevice, FileOptions, MemoryDevice};
use userbtrfs_format::{
    Geometry, ItemKind, Key, Logical, Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, TreeId,
};
use userbtrfs_sync::Arc;
use userbtrfs_volume::{OpenError, Volume};

use crate::Sample;
use crate::block::{LeafBuilder, RawBlock, header, seal_block};
use crate::bytes::u64_at;
use crate::superblock::{field, seal_superblock};

/// The offset of the root block's address in a ROOT_ITEM.
const ROOT_BYTENR: usize = 0xb0;

/// The location of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemPlace {
    /// Its key.
    pub key: Key,
    /// Its leaf.
    pub logical: Logical,
    /// Its slot there.
    pub slot: usize,
    /// Its content, as a range of the leaf's bytes.
    pub range: Range<usize>,
}

/// An editor of an image.
pub struct ImageEditor {
    device: Arc<dyn Device>,
    volume: Volume,
    /// The original bytes of each edit, in the order of the edits.
    originals: Vec<(Physical, Buffer)>,
}

impl ImageEditor {
    /// Edits a copy of an image in memory.
    pub fn from_bytes(image: Vec<u8>) -> Result<Self, OpenError> {
        Self::over(Arc::new(MemoryDevice::from_bytes(image)))
    }

    /// Edits an image file in place.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let device =
            FileDevice::open(path, FileOptions { writable: true, ..FileOptions::default() })?;
        Self::over(Arc::new(device))
    }

    /// Edits the filesystem on a device; its superblock and its chunk tree must be valid.
    pub fn over(device: Arc<dyn Device>) -> Result<Self, OpenError> {
        let volume = Volume::open(vec![Arc::clone(&device)])?;
        Ok(Self { device, volume, originals: Vec::new() })
    }

    /// The device with the image, which contains all edits.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The properties that all tree blocks share.
    pub fn geometry(&self) -> &Geometry {
        self.volume.geometry()
    }

    /// The current bytes of the image.
    pub fn image(&self) -> Result<Vec<u8>, DeviceError> {
        let len = usize::try_from(self.device.len()).expect("an image to edit fits in memory");
        Ok(self.device.read(0, len)?.to_vec())
    }

    /// The physical offsets of the copies of a tree block; empty if no chunk contains it.
    pub fn copies(&self, logical: Logical) -> Vec<Physical> {
        let mapping = self.volume.map(logical, u64::from(self.geometry().nodesize));
        mapping.map(|mapping| mapping.copies().collect()).unwrap_or_default()
    }

    /// The first copy of a tree block, not verified; `None` if no chunk contains it.
    pub fn block(&self, logical: Logical) -> Option<Vec<u8>> {
        let at = self.copies(logical).into_iter().next()?;
        Some(self.read(at, self.nodesize()).to_vec())
    }

    /// The primary superblock, not verified.
    pub fn superblock(&self) -> Vec<u8> {
        self.read(SUPERBLOCK_OFFSETS[0], SUPERBLOCK_SIZE).to_vec()
    }

    /// Changes and seals each copy of a tree block.
    pub fn edit_block(&mut self, logical: Logical, mut edit: impl FnMut(&mut [u8])) {
        let copies = self.copies(logical);
        assert!(!copies.is_empty(), "no chunk holds the block at {logical}");
        let kind = self.geometry().checksum_kind;
        for physical in copies {
            self.edit_raw(physical, self.nodesize(), |bytes| {
                edit(bytes);
                seal_block(bytes, kind);
            });
        }
    }

    /// Changes and seals the primary superblock.
    pub fn edit_superblock(&mut self, edit: impl FnOnce(&mut [u8])) {
        self.edit_superblock_copy(0, edit);
    }

    /// Changes and seals a copy of the superblock, counted from 0, which must be on the device.
    pub fn edit_superblock_copy(&mut self, copy: usize, edit: impl FnOnce(&mut [u8])) {
        self.edit_raw(SUPERBLOCK_OFFSETS[copy], SUPERBLOCK_SIZE, |bytes| {
            edit(bytes);
            seal_superblock(bytes);
        });
    }

    /// Changes the content of an item, in each copy of its leaf.
    pub fn edit_item(&mut self, place: &ItemPlace, mut edit: impl FnMut(&mut [u8])) {
        self.edit_block(place.logical, |block| edit(&mut block[place.range.clone()]));
    }

    /// Changes the items of a leaf (keys, contents and number) in each copy of it. They are stored
    /// in key order.
    ///
    /// # Panics
    ///
    /// If the block is not a leaf, or the items do not fit into it.
    pub fn edit_items(&mut self, leaf: Logical, edit: impl FnOnce(&mut Vec<Sample>)) {
        let block = self.block(leaf).expect("a chunk holds the leaf");
        let raw = RawBlock(&block);
        assert_eq!(raw.level(), 0, "the block at {leaf} is a leaf");
        let content = |slot| block[raw.item(slot).expect("the item lies in the leaf")].to_vec();
        let mut items: Vec<_> =
            (0..raw.slots()).map(|slot| (raw.key(slot), content(slot))).collect();
        edit(&mut items);
        items.sort_by_key(|(key, _)| *key);
        let fresh = items.into_iter().fold(LeafBuilder::new(self.geometry()), add_item).build();
        self.edit_block(leaf, |copy| {
            copy[header::NRITEMS..header::LEVEL]
                .copy_from_slice(&fresh[header::NRITEMS..header::LEVEL]);
            copy[header::SIZE..].copy_from_slice(&fresh[header::SIZE..]);
        });
    }

    /// Changes bytes of the device without sealing them.
    pub fn edit_raw(&mut self, physical: Physical, len: usize, edit: impl FnOnce(&mut [u8])) {
        let mut buffer = self.read(physical, len);
        self.originals.push((physical, Buffer::from(&*buffer)));
        edit(&mut buffer);
        self.write(physical, buffer);
    }

    /// Undoes all edits.
    pub fn revert(&mut self) {
        while let Some((physical, original)) = self.originals.pop() {
            self.write(physical, original);
        }
    }

    /// The root block of a tree according to the superblock and the root tree; `None` if there is
    /// none.
    pub fn root(&self, tree: TreeId) -> Option<Logical> {
        let superblock = self.superblock();
        match tree {
            TreeId::ROOT => Some(Logical(u64_at(&superblock, field::ROOT))),
            TreeId::CHUNK => Some(Logical(u64_at(&superblock, field::CHUNK_ROOT))),
            _ => {
                let is_root = |item: &&ItemPlace| {
                    item.key.objectid == tree.0 && item.key.kind == ItemKind::ROOT_ITEM
                };
                let roots = self.items(TreeId::ROOT);
                let item = roots.iter().rfind(is_root)?;
                let leaf = self.block(item.logical)?;
                let content = &leaf[item.range.clone()];
                (content.len() >= ROOT_BYTENR + 8).then(|| Logical(u64_at(content, ROOT_BYTENR)))
            }
        }
    }

    /// Returns the first item of a tree with this key.
    pub fn find_item(&self, tree: TreeId, key: Key) -> Option<ItemPlace> {
        self.items(tree).into_iter().find(|item| item.key == key)
    }

    /// All items of a tree, in the order in which its blocks store them.
    pub fn items(&self, tree: TreeId) -> Vec<ItemPlace> {
        let mut items = Vec::new();
        for (logical, block) in self.tree_blocks(tree) {
            let raw = RawBlock(&block);
            if raw.level() == 0 {
                let place = |slot| {
                    Some(ItemPlace { key: raw.key(slot), logical, slot, range: raw.item(slot)? })
                };
                items.extend((0..raw.slots()).filter_map(place));
            }
        }
        items
    }

    /// The blocks of a tree, parents before children, each once.
    pub fn tree_blocks(&self, tree: TreeId) -> Vec<(Logical, Vec<u8>)> {
        let mut blocks = Vec::new();
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<_> = self.root(tree).into_iter().collect();
        while let Some(logical) = waiting.pop() {
            let Some(block) = self.block(logical).filter(|_| seen.insert(logical)) else {
                continue;
            };
            let raw = RawBlock(&block);
            if raw.level() > 0 {
                waiting.extend((0..raw.slots()).rev().map(|slot| raw.child(slot)));
            }
            blocks.push((logical, block));
        }
        blocks
    }

    /// The trees in the superblock and the root tree, except the log tree.
    pub fn trees(&self) -> Vec<TreeId> {
        let roots = self.items(TreeId::ROOT);
        let roots = roots.iter().filter(|item| item.key.kind == ItemKind::ROOT_ITEM);
        [TreeId::CHUNK, TreeId::ROOT]
            .into_iter()
            .chain(roots.map(|item| TreeId(item.key.objectid)))
            .collect()
    }

    fn nodesize(&self) -> usize {
        usize::try_from(self.geometry().nodesize).expect("a node size fits")
    }

    fn read(&self, physical: Physical, len: usize) -> Buffer {
        self.device.read(physical.0, len).expect("the device was read before")
    }

    fn write(&self, physical: Physical, buffer: Buffer) {
        let written = self.device.write(physical.0, Arc::new(buffer), false);
        written.expect("the device can be written");
    }
}

fn add_item(leaf: LeafBuilder, (key, content): Sample) -> LeafBuilder {
    leaf.item(key, content)
}
