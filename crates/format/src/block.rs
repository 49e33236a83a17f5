//! Tree blocks, which are verified once and then read without further checks.
//!
//! A block of `nodesize` bytes starts with a header. In a leaf (level 0), item heads that grow up
//! and item data that grows down follow; in a node (any other level), key pointers follow.
//!
//! Invariants of a [`TreeBlock`]:
//!
//! 1. Its checksum is right, its WRITTEN flag is set, and its header holds its own address and
//!    filesystem id. Level, owner, generation and first key are those that its parent expects.
//! 2. Its keys strictly ascend.
//! 3. In a leaf, the data of item 0 ends at the end of the block, the data of each other item ends
//!    where that of the item before it starts, and no data reaches into the item heads.
//! 4. In a node, each child has an aligned address and a generation no newer than the node's.
//! 5. The content of each item was accepted by the check of its kind.
//!
//! Since a child's level is its parent's less one, no walk down a tree can loop.

mod edit;

use std::cmp::Ordering;

use bitflags::bitflags;
use thiserror::Error;
use userbtrfs_codec::checksum::Checksum;
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use edit::{NewBlock, item_len_max, item_space};

use crate::check::Context;
use crate::geometry::Geometry;
use crate::item::Item;
use crate::key::RawKey;
use crate::{ItemError, Key, Logical, MAX_LEVEL, SECTOR_SIZE, TreeId};

const CSUM_AREA: usize = 32;
const BACKREF_REVISION: u8 = 1;
const HEADER_SIZE: usize = size_of::<RawHeader>();

/// The properties of a block according to the pointer to it.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// The tree through which it is reached.
    pub owner: TreeId,
    /// Its level.
    pub level: u8,
    /// The transaction that wrote it.
    pub generation: u64,
    /// Its first key; `None` for a root.
    pub first_key: Option<Key>,
    /// The first key of the next block, if known.
    pub end: Option<Key>,
}

/// A failed check of a tree block.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    /// A size other than the node size of the filesystem.
    #[error("{have} bytes, a tree block has {need}")]
    Size {
        /// The size of a block in bytes.
        need: u32,
        /// The number of bytes given.
        have: usize,
    },
    /// The checksum does not match.
    #[error("checksum is {found}, the block says {expected}")]
    Checksum {
        /// The checksum in the block.
        expected: Checksum,
        /// The checksum of its bytes.
        found: Checksum,
    },
    /// The header names another address.
    #[error("the header says that this is block {0}")]
    Address(Logical),
    /// The header names another filesystem.
    #[error("the header says that this belongs to filesystem {0}")]
    Fsid(Uuid),
    /// The block was never written, or has the format without back references.
    #[error("flags {flags:#x} with back reference revision {revision} are impossible")]
    Flags {
        /// The flags.
        flags: u64,
        /// The revision.
        revision: u8,
    },
    /// The header names another level.
    #[error("level is {found}, expected {expected}")]
    Level {
        /// The level according to the parent.
        expected: u8,
        /// The level in the header.
        found: u8,
    },
    /// The header names another tree.
    #[error("owner is tree {found}, expected {expected}")]
    Owner {
        /// The tree through which the block was reached.
        expected: TreeId,
        /// The tree in the header.
        found: TreeId,
    },
    /// The header names another transaction.
    #[error("generation is {found}, expected {expected}")]
    Generation {
        /// The generation according to the parent.
        expected: u64,
        /// The generation in the header.
        found: u64,
    },
    /// The first key differs from the one in the parent.
    #[error("first key is {found:?}, expected {expected}")]
    FirstKey {
        /// The key in the parent.
        expected: Key,
        /// The first key of the block; `None` if the block is empty.
        found: Option<Key>,
    },
    /// A key that belongs to a later block.
    #[error("last key {last} is not before {end}, where the next block starts")]
    PastEnd {
        /// The last key.
        last: Key,
        /// The first key after the block.
        end: Key,
    },
    /// More items than fit in the block, or none in a block that must not be empty.
    #[error("{0} items are impossible")]
    ItemCount(u32),
    /// Keys do not ascend.
    #[error("slot {slot}: key {key} does not follow {before}")]
    KeyOrder {
        /// The slot.
        slot: usize,
        /// Its key.
        key: Key,
        /// The key of the slot before.
        before: Key,
    },
    /// The data of an item does not end at the required offset.
    #[error("slot {slot}: item data ends at {found}, expected {expected}")]
    ItemEnd {
        /// The slot.
        slot: usize,
        /// The required end.
        expected: u32,
        /// The actual end.
        found: u64,
    },
    /// The data of an item reaches into the item heads.
    #[error("slot {slot}: item data at {offset} reaches into the item heads")]
    ItemStart {
        /// The slot.
        slot: usize,
        /// The start of its data.
        offset: u32,
    },
    /// A child whose address is 0 or not aligned.
    #[error("slot {slot}: child address {child} is impossible")]
    ChildAddress {
        /// The slot.
        slot: usize,
        /// The address.
        child: Logical,
    },
    /// A child that is newer than its parent.
    #[error("slot {slot}: child generation {child} is newer than the block's {own}")]
    ChildGeneration {
        /// The slot.
        slot: usize,
        /// The generation of the child.
        child: u64,
        /// The generation of the block.
        own: u64,
    },
    /// The content of an item is wrong.
    #[error("slot {slot}, key {key}: {error}")]
    Item {
        /// The slot.
        slot: usize,
        /// The key.
        key: Key,
        /// The check that failed.
        error: ItemError,
    },
}

bitflags! {
    /// Flags of a tree block.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BlockFlags: u64 {
        /// The block was written.
        const WRITTEN = 1 << 0;
        /// The block belongs to a running relocation.
        const RELOC = 1 << 1;
    }
}

/// The header of a tree block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its checksum.
    pub checksum: Checksum,
    /// The filesystem it belongs to.
    pub fsid: Uuid,
    /// Its address.
    pub logical: Logical,
    /// Its flags, without the back reference revision.
    pub flags: BlockFlags,
    /// The back reference revision: 1.
    pub backref_revision: u8,
    /// The chunk tree's UUID.
    pub chunk_tree_uuid: Uuid,
    /// The transaction that wrote it.
    pub generation: u64,
    /// The tree that owns it.
    pub owner: TreeId,
    /// The number of items or pointers.
    pub nritems: u32,
    /// Its level; 0 is a leaf.
    pub level: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    csum: [u8; CSUM_AREA],
    fsid: [u8; 16],
    bytenr: U64,
    flags: [u8; 7],
    backref_revision: u8,
    chunk_tree_uuid: [u8; 16],
    generation: U64,
    owner: U64,
    nritems: U32,
    level: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawItem {
    key: RawKey,
    offset: U32,
    size: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPointer {
    key: RawKey,
    blockptr: U64,
    generation: U64,
}

const _: () = assert!(size_of::<RawHeader>() == 101);
const _: () = assert!(size_of::<RawItem>() == 25);
const _: () = assert!(size_of::<RawPointer>() == 33);

/// A pointer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildPointer {
    /// The first key of the child.
    pub key: Key,
    /// The address of the child.
    pub logical: Logical,
    /// The transaction that wrote it.
    pub generation: u64,
}

/// A tree block that passed every check or was created by this crate.
#[derive(Clone, Debug)]
pub struct TreeBlock<B> {
    header: Header,
    count: usize,
    bytes: B,
}

impl<B: AsRef<[u8]>> TreeBlock<B> {
    /// Verifies the block at `logical` and that it matches `expected`.
    pub fn verify(
        bytes: B,
        logical: Logical,
        geometry: &Geometry,
        expected: &Expectation,
    ) -> Result<Self, BlockError> {
        let header = parse_header(bytes.as_ref(), geometry)?;
        check_place(&header, logical, geometry)?;
        check_count(&header, geometry)?;
        let count = to_usize(header.nritems);
        let block = Self { header, count, bytes };
        block.check_expected(expected)?;
        block.check_keys()?;
        if block.is_leaf() {
            block.check_item_bounds(geometry)?;
            block.check_items(geometry)?;
        } else {
            block.check_children()?;
        }
        Ok(block)
    }

    /// Checks a block, which was verified for one parent, against the expectation of another.
    pub fn check_expected(&self, expected: &Expectation) -> Result<(), BlockError> {
        check_identity(&self.header, expected)?;
        let found = (!self.is_empty()).then(|| self.key(0));
        if let Some(expected) = expected.first_key.filter(|&expected| found != Some(expected)) {
            return Err(BlockError::FirstKey { expected, found });
        }
        let last = self.count.checked_sub(1).map(|slot| self.key(slot));
        match (last, expected.end) {
            (Some(last), Some(end)) if last >= end => Err(BlockError::PastEnd { last, end }),
            _ => Ok(()),
        }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns true if the block holds items, not pointers.
    pub fn is_leaf(&self) -> bool {
        self.header.level == 0
    }

    /// The number of items or pointers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if the block has no items or pointers.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The key in a slot, which must be less than [`Self::len`].
    pub fn key(&self, slot: usize) -> Key {
        if self.is_leaf() {
            self.raw_items()[slot].key.get()
        } else {
            self.raw_pointers()[slot].key.get()
        }
    }

    /// The item in a slot of a leaf.
    pub fn item(&self, slot: usize) -> Item<'_> {
        let raw = &self.raw_items()[slot];
        let start = to_usize(raw.offset.get());
        let area = &self.bytes.as_ref()[HEADER_SIZE..];
        let data = area.get(start..).and_then(|rest| rest.get(..to_usize(raw.size.get())));
        Item {
            key: raw.key.get(),
            offset: raw.offset.get(),
            data: data.expect("item bounds were checked when the block was read"),
        }
    }

    /// The pointer in a slot of a node.
    pub fn child(&self, slot: usize) -> ChildPointer {
        let raw = &self.raw_pointers()[slot];
        ChildPointer {
            key: raw.key.get(),
            logical: Logical(raw.blockptr.get()),
            generation: raw.generation.get(),
        }
    }

    /// The key of the pointer after `slot`, where the next child starts.
    pub fn next_child_key(&self, slot: usize) -> Option<Key> {
        let next = slot.checked_add(1)?;
        (next < self.count).then(|| self.key(next))
    }

    /// Returns the slot of `key`, or as an error the slot at which it would be inserted.
    pub fn search(&self, key: &Key) -> Result<usize, usize> {
        let compare = |raw: &RawKey| raw.get().cmp(key);
        if self.is_leaf() {
            self.raw_items().binary_search_by(|raw| compare(&raw.key))
        } else {
            self.raw_pointers().binary_search_by(|raw| compare(&raw.key))
        }
    }

    /// The slot of the child whose subtree covers `key`.
    pub fn child_slot(&self, key: &Key) -> usize {
        assert!(!self.is_leaf(), "a leaf has no children");
        self.search(key).unwrap_or_else(|next| next.saturating_sub(1))
    }

    /// The buffer that holds the block.
    pub fn as_bytes(&self) -> &B {
        &self.bytes
    }

    /// The whole block, as on disk.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    fn body(&self) -> &[u8] {
        &self.bytes.as_ref()[HEADER_SIZE..]
    }

    fn raw_items(&self) -> &[RawItem] {
        assert!(self.is_leaf(), "a node has no items");
        let (items, _) = <[RawItem]>::ref_from_prefix_with_elems(self.body(), self.count)
            .expect("the count was checked when the block was read");
        items
    }

    fn raw_pointers(&self) -> &[RawPointer] {
        assert!(!self.is_leaf(), "a leaf has no pointers");
        let (pointers, _) = <[RawPointer]>::ref_from_prefix_with_elems(self.body(), self.count)
            .expect("the count was checked when the block was read");
        pointers
    }

    fn check_keys(&self) -> Result<(), BlockError> {
        let mut before: Option<Key> = None;
        for slot in 0..self.count {
            let key = self.key(slot);
            match before {
                Some(before) if before.cmp(&key) != Ordering::Less => {
                    return Err(BlockError::KeyOrder { slot, key, before });
                }
                _ => before = Some(key),
            }
        }
        Ok(())
    }

    fn check_item_bounds(&self, geometry: &Geometry) -> Result<(), BlockError> {
        let area = geometry.nodesize.checked_sub(to_u32(HEADER_SIZE)).expect("checked");
        let heads = self.count.checked_mul(size_of::<RawItem>()).expect("the count was checked");
        let mut expected = area;
        for (slot, raw) in self.raw_items().iter().enumerate() {
            let offset = raw.offset.get();
            let size = raw.size.get();
            let found = u64::from(offset).checked_add(u64::from(size)).expect("32 bits each");
            if found != u64::from(expected) {
                return Err(BlockError::ItemEnd { slot, expected, found });
            }
            if to_usize(offset) < heads {
                return Err(BlockError::ItemStart { slot, offset });
            }
            expected = offset;
        }
        Ok(())
    }

    fn check_items(&self, geometry: &Geometry) -> Result<(), BlockError> {
        let context = Context { newest: self.header.generation, geometry };
        let mut before: Option<Item<'_>> = None;
        for slot in 0..self.count {
            let item = self.item(slot);
            let key = item.key;
            context.check(&item, before.as_ref()).map_err(|error| BlockError::Item {
                slot,
                key,
                error,
            })?;
            before = Some(item);
        }
        Ok(())
    }

    fn check_children(&self) -> Result<(), BlockError> {
        let own = self.header.generation;
        for slot in 0..self.count {
            let child = self.child(slot);
            if child.logical.0 == 0 || !child.logical.is_aligned(SECTOR_SIZE) {
                return Err(BlockError::ChildAddress { slot, child: child.logical });
            }
            if child.generation > own {
                return Err(BlockError::ChildGeneration { slot, child: child.generation, own });
            }
        }
        Ok(())
    }
}

fn parse_header(bytes: &[u8], geometry: &Geometry) -> Result<Header, BlockError> {
    let need = geometry.nodesize;
    let have = bytes.len();
    if to_usize(need) != have {
        return Err(BlockError::Size { need, have });
    }
    let (raw, _) =
        RawHeader::ref_from_prefix(bytes).map_err(|_| BlockError::Size { need, have })?;
    let kind = geometry.checksum_kind;
    let expected = Checksum::from_slice(&raw.csum[..kind.size()]).expect("it fits its area");
    let found = kind.compute(&bytes[CSUM_AREA..]);
    if found != expected {
        return Err(BlockError::Checksum { expected, found });
    }
    let mut flags = [0; 8];
    flags[..7].copy_from_slice(&raw.flags);
    Ok(Header {
        checksum: expected,
        fsid: Uuid::from_bytes(raw.fsid),
        logical: Logical(raw.bytenr.get()),
        flags: BlockFlags::from_bits_retain(u64::from_le_bytes(flags)),
        backref_revision: raw.backref_revision,
        chunk_tree_uuid: Uuid::from_bytes(raw.chunk_tree_uuid),
        generation: raw.generation.get(),
        owner: TreeId(raw.owner.get()),
        nritems: raw.nritems.get(),
        level: raw.level,
    })
}

fn check_place(header: &Header, logical: Logical, geometry: &Geometry) -> Result<(), BlockError> {
    if header.logical != logical {
        return Err(BlockError::Address(header.logical));
    }
    if header.fsid != geometry.fsid {
        return Err(BlockError::Fsid(header.fsid));
    }
    let flags = header.flags.bits();
    let revision = header.backref_revision;
    if !header.flags.contains(BlockFlags::WRITTEN) || revision != BACKREF_REVISION {
        return Err(BlockError::Flags { flags, revision });
    }
    Ok(())
}

fn check_identity(header: &Header, expected: &Expectation) -> Result<(), BlockError> {
    if header.level != expected.level || header.level > MAX_LEVEL {
        return Err(BlockError::Level { expected: expected.level, found: header.level });
    }
    if header.generation != expected.generation {
        let expected = expected.generation;
        let found = header.generation;
        return Err(BlockError::Generation { expected, found });
    }
    // A snapshot shares blocks with its source, and those have the source as their owner.
    let shared = expected.owner.is_shareable() && header.owner.is_subvolume();
    if header.owner != expected.owner && !shared {
        return Err(BlockError::Owner { expected: expected.owner, found: header.owner });
    }
    Ok(())
}

fn check_count(header: &Header, geometry: &Geometry) -> Result<(), BlockError> {
    let leaf = header.level == 0;
    let unit = if leaf { size_of::<RawItem>() } else { size_of::<RawPointer>() };
    let room = to_usize(geometry.nodesize).checked_sub(HEADER_SIZE).expect("a block has room");
    let most = room.checked_div(unit).expect("an item has bytes");
    let count = to_usize(header.nritems);
    if count > most || (count == 0 && !(leaf && may_be_empty(header.owner))) {
        return Err(BlockError::ItemCount(header.nritems));
    }
    Ok(())
}

/// Returns true if a tree may have no items.
fn may_be_empty(tree: TreeId) -> bool {
    let never = [TreeId::ROOT, TreeId::EXTENT, TreeId::CHUNK, TreeId::DEV, TreeId::DATA_RELOC];
    !tree.is_subvolume() && !never.contains(&tree)
}

fn to_usize(n: u32) -> usize {
    usize::try_from(n).expect("a usize holds 32 bits")
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).expect("sizes within a block fit in 32 bits")
}
