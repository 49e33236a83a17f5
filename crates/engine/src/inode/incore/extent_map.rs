//! A range of a file and what holds it (Linux: `struct extent_map`).
//!
//! 1. The type is the same for a delayed extent, for an EXTENT_DATA item of a tree or of a log, and
//!    for a range that is read. The format's [`FileExtentKind`] is what an item stores; a map has
//!    the range in addition, and inline data in a form that outlives the item.
//! 2. An extent on disk is as long as its range: a part of a map refers to that part of the extent.
//! 3. Inline data starts at offset 0 of its file. It is never split: a part of it has all data.

use std::fmt;

use userbtrfs_btree::NodeRef;
use userbtrfs_codec::compress::Compression;
use userbtrfs_format::{FileExtent, FileExtentKind, HoleExtent, InlineExtent, RegularExtent};
use userbtrfs_sync::Arc;

use crate::units::SECTOR;

/// A range of a file that is in one extent or hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtentMap {
    /// The start in the file, in bytes.
    pub(crate) start: u64,
    /// The end in the file, in bytes.
    pub(crate) end: u64,
    /// The extent or hole.
    pub(crate) kind: ExtentMapKind,
}

/// The extent or hole that holds a range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExtentMapKind {
    /// A hole: it reads as zeros.
    Hole,
    /// Data that is stored in the tree.
    Inline(InlineData),
    /// A preallocated extent: it reads as zeros.
    Prealloc(RegularExtent),
    /// A written extent.
    Regular(RegularExtent, Option<Compression>),
}

/// Data of a file, from its start, that is stored in the tree: at most a sector.
#[derive(Clone)]
pub(crate) struct InlineData {
    /// The length of the data, uncompressed.
    ram_bytes: u64,
    compression: Option<Compression>,
    stored: InlineBytes,
}

/// The bytes of inline data as they are stored.
#[derive(Clone)]
enum InlineBytes {
    /// In the item in this slot of this leaf.
    Item(NodeRef, usize),
    /// In memory.
    Memory(Arc<[u8]>),
}

impl ExtentMap {
    /// Creates an extent that holds all data of a file: at most a sector.
    pub(in crate::inode) fn inline(data: Arc<[u8]>) -> Self {
        Self { start: 0, end: SECTOR, kind: ExtentMapKind::Inline(InlineData::plain(data)) }
    }

    /// Returns true if the range is of whole sectors, or a hole up to `u64::MAX`, and fits what
    /// holds it.
    pub(in crate::inode) fn is_sound(&self) -> bool {
        let Self { start, end, kind } = self;
        let aligned = |offset: u64| offset.is_multiple_of(SECTOR);
        let is_hole = *kind == ExtentMapKind::Hole;
        let ends = aligned(*end) || (is_hole && *end == u64::MAX);
        let fits = match kind {
            ExtentMapKind::Hole => true,
            ExtentMapKind::Inline(inline) => {
                (*start, *end) == (0, SECTOR) && inline.ram_bytes() <= SECTOR
            }
            ExtentMapKind::Prealloc(extent) | ExtentMapKind::Regular(extent, _) => {
                extent.disk.0 > 0 && extent.bytes == end - start
            }
        };
        start < end && aligned(*start) && ends && fits
    }
    /// Returns the part between two offsets, which are within the range.
    pub(crate) fn part(&self, start: u64, end: u64) -> Self {
        Self { start, end, kind: self.kind.part(start - self.start, end - start) }
    }

    /// Returns the bytes that the file counts for the range.
    pub(crate) fn counted_bytes(&self) -> u64 {
        match &self.kind {
            ExtentMapKind::Hole => 0,
            ExtentMapKind::Inline(data) => data.ram_bytes(),
            ExtentMapKind::Prealloc(_) | ExtentMapKind::Regular(..) => self.end - self.start,
        }
    }

    /// Returns the EXTENT_DATA item of this range.
    pub(crate) fn to_item(&self, generation: u64) -> FileExtent<'_> {
        let (kind, compression) = match &self.kind {
            ExtentMapKind::Hole => {
                let bytes = self.end - self.start;
                (FileExtentKind::Hole(HoleExtent { bytes, offset: 0, ram_bytes: bytes }), None)
            }
            ExtentMapKind::Inline(inline) => {
                let InlineData { ram_bytes, compression, .. } = *inline;
                let data = inline.stored();
                (FileExtentKind::Inline(InlineExtent { ram_bytes, data }), compression)
            }
            ExtentMapKind::Prealloc(extent) => (FileExtentKind::Prealloc(*extent), None),
            ExtentMapKind::Regular(extent, compression) => {
                (FileExtentKind::Regular(*extent), *compression)
            }
        };
        FileExtent { generation, compression, kind }
    }
}

impl ExtentMapKind {
    /// Returns what an item stores; `None` for inline data, which the item itself holds.
    pub(crate) fn of_item(item: &FileExtent<'_>) -> Option<Self> {
        match item.kind {
            FileExtentKind::Inline(_) => None,
            FileExtentKind::Hole(_) => Some(Self::Hole),
            FileExtentKind::Prealloc(extent) => Some(Self::Prealloc(extent)),
            FileExtentKind::Regular(extent) => Some(Self::Regular(extent, item.compression)),
        }
    }

    /// Returns the extent on disk; `None` if there is none.
    pub(crate) fn on_disk(&self) -> Option<&RegularExtent> {
        match self {
            Self::Prealloc(extent) | Self::Regular(extent, _) => Some(extent),
            Self::Hole | Self::Inline(_) => None,
        }
    }

    /// Returns the part of `bytes` bytes that starts `skip` bytes in.
    pub(in crate::inode) fn part(&self, skip: u64, bytes: u64) -> Self {
        let cut = |extent: &RegularExtent| {
            let offset = extent.offset.checked_add(skip).expect("a part of an extent");
            RegularExtent { offset, bytes, ..*extent }
        };
        match self {
            Self::Hole => Self::Hole,
            Self::Inline(inline) => Self::Inline(inline.clone()),
            Self::Prealloc(extent) => Self::Prealloc(cut(extent)),
            Self::Regular(extent, compression) => Self::Regular(cut(extent), *compression),
        }
    }

    /// Returns the union of this range and `next`, which follows it, if `next` continues it.
    pub(in crate::inode) fn joined(&self, next: &Self) -> Option<Self> {
        let join = |a: &RegularExtent, b: &RegularExtent| {
            let same = |extent: &RegularExtent| (extent.disk, extent.disk_bytes, extent.ram_bytes);
            let goes_on = same(a) == same(b) && a.offset + a.bytes == b.offset;
            goes_on.then(|| RegularExtent { bytes: a.bytes + b.bytes, ..*a })
        };
        match (self, next) {
            (Self::Hole, Self::Hole) => Some(Self::Hole),
            (Self::Prealloc(a), Self::Prealloc(b)) => join(a, b).map(Self::Prealloc),
            (Self::Regular(a, None), Self::Regular(b, None)) => {
                join(a, b).map(|extent| Self::Regular(extent, None))
            }
            _ => None,
        }
    }
}

impl InlineData {
    /// Creates uncompressed inline data.
    pub(crate) fn plain(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        let ram_bytes = bytes.len() as u64;
        Self { ram_bytes, compression: None, stored: InlineBytes::Memory(bytes) }
    }

    /// Creates inline data that is stored compressed, of `ram_bytes` bytes uncompressed.
    pub(crate) fn compressed(
        stored: impl Into<Arc<[u8]>>,
        compression: Compression,
        ram_bytes: u64,
    ) -> Self {
        let stored = InlineBytes::Memory(stored.into());
        Self { ram_bytes, compression: Some(compression), stored }
    }

    /// Copies the inline data of an item.
    pub(crate) fn copied(inline: &InlineExtent<'_>, compression: Option<Compression>) -> Self {
        let stored = InlineBytes::Memory(inline.data.into());
        Self { ram_bytes: inline.ram_bytes, compression, stored }
    }

    /// Returns the inline data in a slot of a leaf, without a copy.
    pub(crate) fn in_leaf(leaf: &NodeRef, slot: usize) -> Self {
        let item = leaf.item(slot);
        let extent = FileExtent::parse(item.key.offset, item.data).expect("verified in its block");
        Self {
            ram_bytes: extent.file_bytes(),
            compression: extent.compression,
            stored: InlineBytes::Item(NodeRef::clone(leaf), slot),
        }
    }

    /// Returns the same data with bytes of its own, so that no leaf is kept in memory for it.
    pub(crate) fn detached(&self) -> Self {
        let Self { ram_bytes, compression, .. } = *self;
        Self { ram_bytes, compression, stored: InlineBytes::Memory(self.stored().into()) }
    }

    /// Returns the length of the data, uncompressed.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.ram_bytes
    }

    /// Returns the compression of the stored bytes.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Returns the bytes as they are stored.
    pub(crate) fn stored(&self) -> &[u8] {
        match &self.stored {
            InlineBytes::Memory(bytes) => bytes,
            InlineBytes::Item(leaf, slot) => {
                let item = leaf.item(*slot);
                let extent = FileExtent::parse(item.key.offset, item.data);
                match extent.expect("verified in its block").kind {
                    FileExtentKind::Inline(inline) => inline.data,
                    _ => unreachable!("the slot was taken from an inline extent"),
                }
            }
        }
    }
}

impl PartialEq for InlineData {
    fn eq(&self, other: &Self) -> bool {
        let head = |inline: &Self| (inline.ram_bytes, inline.compression);
        head(self) == head(other) && self.stored() == other.stored()
    }
}

impl Eq for InlineData {}

impl fmt::Debug for InlineData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineData")
            .field("ram_bytes", &self.ram_bytes)
            .field("compression", &self.compression)
            .field("stored", &self.stored())
            .finish()
    }
}
