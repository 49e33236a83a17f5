//! Allocated extents and their back references.
//!
//! 1. Inline references are sorted by ascending kind; within one kind by descending offset, or by
//!    descending hash for EXTENT_DATA_REF.
//! 2. The counts of inline references never exceed the count of the item, and none is 0.

use bitflags::bitflags;
use userbtrfs_codec::hash::extent_data_ref_hash;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::device::{exact, prefix};
use crate::inode::entries;
use crate::key::RawKey;
use crate::{ItemError, ItemKind, Key, Logical, MAX_LEVEL, TreeId};

bitflags! {
    /// Flags of an extent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExtentFlags: u64 {
        /// File data.
        const DATA = 1 << 0;
        /// A tree block.
        const TREE_BLOCK = 1 << 1;
        /// The extents that the block points to are referenced by the block's address.
        const FULL_BACKREF = 1 << 8;
    }
}

/// The level of a tree block, and the place where it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataLevel {
    /// The extent is data.
    None,
    /// In the item, with the block's first key (EXTENT_ITEM).
    InItem(Key, u8),
    /// In the offset of the key (METADATA_ITEM).
    InKey(u8),
}

/// An allocated extent: EXTENT_ITEM or METADATA_ITEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentItem {
    /// The number of references, inline and keyed.
    pub refs: u64,
    /// The transaction that allocated it.
    pub generation: u64,
    /// Its flags.
    pub flags: ExtentFlags,
    /// The level, if it is a tree block.
    pub level: MetadataLevel,
    /// The inline references.
    pub inline: Vec<InlineRef>,
}

/// A reference inside an extent item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineRef {
    /// The subvolume that the extent is accounted to (simple quotas).
    Owner(TreeId),
    /// A tree refers to the block.
    TreeBlock(TreeId),
    /// A file refers to the data.
    ExtentData {
        /// The tree of the file.
        root: TreeId,
        /// The inode number of the file.
        inode: u64,
        /// The file offset at which the whole extent would start.
        offset: u64,
        /// The number of file extent items with this reference.
        count: u32,
    },
    /// A tree block refers to the block.
    SharedBlock(Logical),
    /// A leaf refers to the data.
    SharedData {
        /// The address of the leaf.
        parent: Logical,
        /// The number of file extent items in the leaf that refer to it.
        count: u32,
    },
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtentItem {
    refs: U64,
    generation: U64,
    flags: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTreeBlockInfo {
    key: RawKey,
    level: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtentDataRef {
    root: U64,
    objectid: U64,
    offset: U64,
    count: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSharedDataRef {
    parent: U64,
    count: U32,
}

impl ExtentItem {
    /// Reads the content of an EXTENT_ITEM or METADATA_ITEM.
    pub fn parse(key: Key, bytes: &[u8]) -> Result<Self, ItemError> {
        let (raw, rest) = prefix::<RawExtentItem>(bytes)?;
        let flags = ExtentFlags::from_bits_retain(raw.flags.get());
        let data = flags.contains(ExtentFlags::DATA);
        let known = ExtentFlags::all().contains(flags);
        let misplaced = data && key.kind == ItemKind::METADATA_ITEM;
        if !known || misplaced || data == flags.contains(ExtentFlags::TREE_BLOCK) {
            return Err(ItemError::Flags { field: "extent flags", value: flags.bits() });
        }
        let (level, rest) = parse_level(key, data, rest)?;
        let inline = entries(rest, parse_inline_ref).collect::<Result<Vec<_>, _>>()?;
        check_order(&inline)?;
        check_fit(&inline, data)?;
        let listed = inline.iter().fold(0u64, |sum, r| sum.saturating_add(r.count()));
        let count = raw.refs.get();
        if listed > count || count == 0 {
            return Err(ItemError::ReferenceCount { count, listed });
        }
        Ok(Self { refs: count, generation: raw.generation.get(), flags, level, inline })
    }

    /// Writes the content of an EXTENT_ITEM or METADATA_ITEM.
    ///
    /// # Panics
    ///
    /// If the inline references are out of order.
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(check_order(&self.inline), Ok(()), "inline references are sorted");
        let raw = RawExtentItem {
            refs: self.refs.into(),
            generation: self.generation.into(),
            flags: self.flags.bits().into(),
        };
        let mut item = raw.as_bytes().to_vec();
        if let MetadataLevel::InItem(key, level) = self.level {
            let info = RawTreeBlockInfo { key: RawKey::new(key), level };
            item.extend_from_slice(info.as_bytes());
        }
        self.inline.iter().for_each(|inline| inline.encode_into(&mut item));
        item
    }
}

fn parse_level(key: Key, data: bool, rest: &[u8]) -> Result<(MetadataLevel, &[u8]), ItemError> {
    let checked = |level: u64| match u8::try_from(level) {
        Ok(level) if level <= MAX_LEVEL => Ok(level),
        _ => Err(ItemError::Range { field: "level", value: level }),
    };
    if key.kind == ItemKind::METADATA_ITEM {
        return Ok((MetadataLevel::InKey(checked(key.offset)?), rest));
    }
    if data {
        return Ok((MetadataLevel::None, rest));
    }
    let (info, rest) = prefix::<RawTreeBlockInfo>(rest)?;
    Ok((MetadataLevel::InItem(info.key.get(), checked(u64::from(info.level))?), rest))
}

fn parse_inline_ref(bytes: &[u8]) -> Result<(InlineRef, &[u8]), ItemError> {
    let (&kind, rest) = bytes.split_first().ok_or(ItemError::TooShort { need: 1, have: 0 })?;
    match ItemKind(kind) {
        ItemKind::EXTENT_DATA_REF => {
            let (raw, rest) = prefix::<RawExtentDataRef>(rest)?;
            Ok((raw.get(), rest))
        }
        ItemKind::SHARED_DATA_REF => {
            let (raw, rest) = prefix::<RawSharedDataRef>(rest)?;
            let parent = Logical(raw.parent.get());
            Ok((InlineRef::SharedData { parent, count: raw.count.get() }, rest))
        }
        kind => {
            let (number, rest) = prefix::<U64>(rest)?;
            let number = number.get();
            let inline = match kind {
                ItemKind::EXTENT_OWNER_REF => InlineRef::Owner(TreeId(number)),
                ItemKind::TREE_BLOCK_REF => InlineRef::TreeBlock(TreeId(number)),
                ItemKind::SHARED_BLOCK_REF => InlineRef::SharedBlock(Logical(number)),
                ItemKind(other) => return Err(ItemError::BackReference(other)),
            };
            Ok((inline, rest))
        }
    }
}

impl RawExtentDataRef {
    fn get(&self) -> InlineRef {
        InlineRef::ExtentData {
            root: TreeId(self.root.get()),
            inode: self.objectid.get(),
            offset: self.offset.get(),
            count: self.count.get(),
        }
    }
}

impl InlineRef {
    /// Appends the reference, with its kind, to the content of an extent item.
    pub fn encode_into(&self, item: &mut Vec<u8>) {
        item.push(self.kind().0);
        match self {
            Self::Owner(TreeId(number))
            | Self::TreeBlock(TreeId(number))
            | Self::SharedBlock(Logical(number)) => {
                item.extend_from_slice(&number.to_le_bytes());
            }
            Self::SharedData { parent, count } => {
                let raw = RawSharedDataRef { parent: parent.0.into(), count: (*count).into() };
                item.extend_from_slice(raw.as_bytes());
            }
            Self::ExtentData { root, inode, offset, count } => {
                let raw = RawExtentDataRef {
                    root: root.0.into(),
                    objectid: (*inode).into(),
                    offset: (*offset).into(),
                    count: (*count).into(),
                };
                item.extend_from_slice(raw.as_bytes());
            }
        }
    }

    /// The kind of the reference, which is that of the equivalent keyed reference.
    pub fn kind(&self) -> ItemKind {
        match self {
            Self::Owner(_) => ItemKind::EXTENT_OWNER_REF,
            Self::TreeBlock(_) => ItemKind::TREE_BLOCK_REF,
            Self::ExtentData { .. } => ItemKind::EXTENT_DATA_REF,
            Self::SharedBlock(_) => ItemKind::SHARED_BLOCK_REF,
            Self::SharedData { .. } => ItemKind::SHARED_DATA_REF,
        }
    }

    /// The number of references it counts as; 0 for the owner.
    pub fn count(&self) -> u64 {
        match self {
            Self::Owner(_) => 0,
            Self::TreeBlock(_) | Self::SharedBlock(_) => 1,
            Self::ExtentData { count, .. } | Self::SharedData { count, .. } => u64::from(*count),
        }
    }

    /// The sort key, descending, of references of one kind.
    pub fn sequence(&self) -> u64 {
        match *self {
            Self::Owner(tree) | Self::TreeBlock(tree) => tree.0,
            Self::SharedBlock(parent) | Self::SharedData { parent, .. } => parent.0,
            Self::ExtentData { root, inode, offset, .. } => {
                extent_data_ref_hash(root.0, inode, offset)
            }
        }
    }
}

fn check_order(refs: &[InlineRef]) -> Result<(), ItemError> {
    let in_order = |a: &InlineRef, b: &InlineRef| match a.kind().cmp(&b.kind()) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => a.sequence() >= b.sequence(),
        std::cmp::Ordering::Greater => false,
    };
    match refs.windows(2).find(|pair| !in_order(&pair[0], &pair[1])) {
        Some(pair) => Err(ItemError::BackReference(pair[1].kind().0)),
        None => Ok(()),
    }
}

/// Checks that each reference fits the type of the extent and has a count above 0.
fn check_fit(refs: &[InlineRef], data: bool) -> Result<(), ItemError> {
    for inline in refs {
        let of_block = matches!(inline, InlineRef::TreeBlock(_) | InlineRef::SharedBlock(_));
        if of_block == data {
            return Err(ItemError::BackReference(inline.kind().0));
        }
        if inline.count() == 0 && !matches!(inline, InlineRef::Owner(_)) {
            return Err(ItemError::Zero("count of a reference"));
        }
    }
    Ok(())
}

/// A reference in an item of its own, whose key holds the extent and the referrer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedRef {
    /// TREE_BLOCK_REF or SHARED_BLOCK_REF, which have no content.
    Block,
    /// EXTENT_DATA_REF.
    ExtentData(InlineRef),
    /// SHARED_DATA_REF, with its count.
    SharedData(u32),
}

impl KeyedRef {
    /// Reads the content of a keyed reference.
    pub fn parse(kind: ItemKind, bytes: &[u8]) -> Result<Self, ItemError> {
        let (keyed, count) = match kind {
            ItemKind::EXTENT_DATA_REF => {
                let inline = exact::<RawExtentDataRef>(bytes)?.get();
                (Self::ExtentData(inline), inline.count())
            }
            ItemKind::SHARED_DATA_REF => {
                let count = exact::<U32>(bytes)?.get();
                (Self::SharedData(count), u64::from(count))
            }
            _ if bytes.is_empty() => (Self::Block, 1),
            _ => return Err(ItemError::Size(bytes.len())),
        };
        (count > 0).then_some(keyed).ok_or(ItemError::Zero("count of a reference"))
    }
    /// Writes the content of a keyed reference.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Block => Vec::new(),
            Self::SharedData(count) => count.to_le_bytes().to_vec(),
            Self::ExtentData(inline) => {
                let mut item = Vec::new();
                inline.encode_into(&mut item);
                // The kind is stored in the key.
                item.split_off(1)
            }
        }
    }
}
