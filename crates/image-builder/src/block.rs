//! Tree blocks: builders of leaves and nodes, and an unchecked view of blocks.

use std::ops::Range;

use userbtrfs_codec::ChecksumKind;
use userbtrfs_format::{Expectation, Geometry, ItemKind, Key, Logical, TreeId};

use crate::bytes::{Bytes, put_u32, put_u64, u32_at, u64_at};
use crate::{GENERATION, geometry};

/// The offsets of the fields of a block's header.
pub mod header {
    /// The checksum, 32 bytes.
    pub const CSUM: usize = 0;
    /// The filesystem id, 16 bytes.
    pub const FSID: usize = 0x20;
    /// The block's own address.
    pub const BYTENR: usize = 0x30;
    /// The flags, 7 bytes.
    pub const FLAGS: usize = 0x38;
    /// The revision of back references, one byte.
    pub const REVISION: usize = 0x3f;
    /// The chunk tree's UUID, 16 bytes.
    pub const CHUNK_TREE_UUID: usize = 0x40;
    /// The generation.
    pub const GENERATION: usize = 0x50;
    /// The tree.
    pub const OWNER: usize = 0x58;
    /// The number of items, 4 bytes.
    pub const NRITEMS: usize = 0x60;
    /// The level, one byte.
    pub const LEVEL: usize = 0x64;
    /// The header's size, which is the offset of the first item head or pointer.
    pub const SIZE: usize = 0x65;
}

const KEY_SIZE: usize = 17;
const ITEM_SIZE: usize = 25;
const POINTER_SIZE: usize = 33;

/// The address, owner and generation of a block.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its address.
    pub logical: Logical,
    /// Its tree.
    pub owner: TreeId,
    /// The transaction that wrote it.
    pub generation: u64,
}

impl Default for Place {
    fn default() -> Self {
        Self { logical: Logical(0x20_0000), owner: TreeId::FS, generation: GENERATION }
    }
}

impl Place {
    /// The expectation of a block with this level.
    pub fn expected(&self, level: u8, first_key: Option<Key>) -> Expectation {
        let Self { owner, generation, .. } = *self;
        Expectation { owner, level, generation, first_key, end: None }
    }

    fn header(&self, geometry: &Geometry, nritems: usize, level: u8) -> Vec<u8> {
        let header = Bytes::new()
            .zeros(32)
            .raw(geometry.fsid.as_bytes())
            .u64(self.logical.0)
            .u64(1 | 1 << 56)
            .raw(geometry.fsid.as_bytes())
            .u64(self.generation)
            .u64(self.owner.0)
            .u32(u32::try_from(nritems).expect("a block is small"))
            .u8(level);
        let mut block = header.build();
        block.resize(size(geometry), 0);
        block
    }
}

fn size(geometry: &Geometry) -> usize {
    usize::try_from(geometry.nodesize).expect("a node size fits")
}

/// Sets the checksum of a tree block.
pub fn seal_block(block: &mut [u8], kind: ChecksumKind) {
    let checksum = kind.compute(&block[32..]);
    block[..32].fill(0);
    block[..kind.size()].copy_from_slice(checksum.as_bytes());
}

/// A builder of a leaf.
#[derive(Clone, Debug)]
pub struct LeafBuilder {
    geometry: Geometry,
    place: Place,
    items: Vec<(Key, Vec<u8>)>,
}

impl Default for LeafBuilder {
    fn default() -> Self {
        Self::new(&geometry())
    }
}

impl LeafBuilder {
    /// Creates a builder of an empty leaf of the top-level subvolume.
    pub fn new(geometry: &Geometry) -> Self {
        Self { geometry: geometry.clone(), place: Place::default(), items: Vec::new() }
    }

    /// Sets the place of the leaf.
    #[must_use]
    pub fn place(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// Adds an item at the end; its key should follow the others.
    #[must_use]
    pub fn item(mut self, key: Key, content: impl Into<Vec<u8>>) -> Self {
        self.items.push((key, content.into()));
        self
    }

    /// The expectation of the leaf.
    pub fn expected(&self) -> Expectation {
        self.place.expected(0, self.items.first().map(|(key, _)| *key))
    }

    /// Builds the leaf, sealed.
    pub fn build(&self) -> Vec<u8> {
        let mut block = self.place.header(&self.geometry, self.items.len(), 0);
        let mut end = block.len();
        for (slot, (key, content)) in self.items.iter().enumerate() {
            let start = end - content.len();
            block[start..end].copy_from_slice(content);
            end = start;
            let head = Bytes::new()
                .key(*key)
                .u32(u32::try_from(start - header::SIZE).expect("a block is small"))
                .u32(u32::try_from(content.len()).expect("an item is small"))
                .build();
            let at = header::SIZE + slot * ITEM_SIZE;
            assert!(at + ITEM_SIZE <= start, "the items do not fit into the leaf");
            block[at..at + ITEM_SIZE].copy_from_slice(&head);
        }
        seal_block(&mut block, self.geometry.checksum_kind);
        block
    }
}

/// A builder of a node.
#[derive(Clone, Debug)]
pub struct NodeBuilder {
    geometry: Geometry,
    place: Place,
    level: u8,
    pointers: Vec<(Key, Logical, u64)>,
}

impl NodeBuilder {
    /// Creates a builder of a node without pointers, at this level of the top-level subvolume.
    pub fn new(geometry: &Geometry, level: u8) -> Self {
        let geometry = geometry.clone();
        Self { geometry, place: Place::default(), level, pointers: Vec::new() }
    }

    /// Sets the place of the node.
    #[must_use]
    pub fn place(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// Adds a pointer at the end; its key should follow the others.
    #[must_use]
    pub fn pointer(mut self, key: Key, child: Logical, generation: u64) -> Self {
        self.pointers.push((key, child, generation));
        self
    }

    /// The expectation of the node.
    pub fn expected(&self) -> Expectation {
        self.place.expected(self.level, self.pointers.first().map(|(key, ..)| *key))
    }

    /// Builds the node, sealed.
    pub fn build(&self) -> Vec<u8> {
        let mut block = self.place.header(&self.geometry, self.pointers.len(), self.level);
        for (slot, (key, child, generation)) in self.pointers.iter().enumerate() {
            let pointer = Bytes::new().key(*key).u64(child.0).u64(*generation).build();
            let at = header::SIZE + slot * POINTER_SIZE;
            block[at..at + POINTER_SIZE].copy_from_slice(&pointer);
        }
        seal_block(&mut block, self.geometry.checksum_kind);
        block
    }
}

/// An unchecked view of a tree block; slots past its end do not exist.
#[derive(Clone, Copy, Debug)]
pub struct RawBlock<'a>(pub &'a [u8]);

impl RawBlock<'_> {
    /// Its level.
    pub fn level(&self) -> u8 {
        self.0[header::LEVEL]
    }

    /// The number of items or pointers in its header.
    pub fn nritems(&self) -> usize {
        usize::try_from(u32_at(self.0, header::NRITEMS)).expect("32 bits fit")
    }

    /// The number of items or pointers, limited to those that fit in the block.
    pub fn slots(&self) -> usize {
        self.nritems().min((self.0.len() - header::SIZE) / self.unit())
    }

    /// The offset of the head or pointer of a slot in the block.
    pub fn slot_at(&self, slot: usize) -> usize {
        header::SIZE + slot * self.unit()
    }

    /// The key in a slot.
    pub fn key(&self, slot: usize) -> Key {
        let at = self.slot_at(slot);
        Key::new(u64_at(self.0, at), ItemKind(self.0[at + 8]), u64_at(self.0, at + 9))
    }

    /// The address in a slot of a node.
    pub fn child(&self, slot: usize) -> Logical {
        Logical(u64_at(self.0, self.slot_at(slot) + KEY_SIZE))
    }

    /// The range of the content of a slot of a leaf; `None` if it reaches past the block.
    pub fn item(&self, slot: usize) -> Option<Range<usize>> {
        let at = self.slot_at(slot) + KEY_SIZE;
        let start = usize::try_from(u32_at(self.0, at)).ok()?.checked_add(header::SIZE)?;
        let end = usize::try_from(u32_at(self.0, at + 4)).ok()?.checked_add(start)?;
        (end <= self.0.len()).then_some(start..end)
    }

    fn unit(&self) -> usize {
        if self.level() == 0 { ITEM_SIZE } else { POINTER_SIZE }
    }
}

/// Setters of the fields of a slot; they do not seal the block.
impl RawBlock<'_> {
    /// Sets the key of a slot.
    pub fn set_key(block: &mut [u8], slot: usize, key: Key) {
        let at = RawBlock(block).slot_at(slot);
        block[at..at + KEY_SIZE].copy_from_slice(&Bytes::new().key(key).build());
    }

    /// Sets the start of the data of a slot of a leaf, counted from the end of the header.
    pub fn set_item_offset(block: &mut [u8], slot: usize, offset: u32) {
        let at = RawBlock(block).slot_at(slot) + KEY_SIZE;
        put_u32(block, at, offset);
    }

    /// Sets the length of the data of a slot of a leaf.
    pub fn set_item_size(block: &mut [u8], slot: usize, size: u32) {
        let at = RawBlock(block).slot_at(slot) + KEY_SIZE + 4;
        put_u32(block, at, size);
    }

    /// Sets the address in a slot of a node.
    pub fn set_child(block: &mut [u8], slot: usize, child: u64) {
        let at = RawBlock(block).slot_at(slot) + KEY_SIZE;
        put_u64(block, at, child);
    }

    /// Sets the generation in a slot of a node.
    pub fn set_child_generation(block: &mut [u8], slot: usize, generation: u64) {
        let at = RawBlock(block).slot_at(slot) + KEY_SIZE + 8;
        put_u64(block, at, generation);
    }
}
