//! Extents of files.
//!
//! 1. A [`RegularExtent`] covers whole sectors of its file and lies inside its extent on disk.
//! 2. The decompressed size of a compressed extent is at most [`MAX_COMPRESSED_EXTENT`], which
//!    bounds the buffers allocated to decompress it.

use userbtrfs_codec::compress::Compression;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::device::{exact, prefix};
use crate::{ItemError, Logical, SECTOR_SIZE};

/// The maximum size of a compressed extent in bytes, both before and after decompression.
pub const MAX_COMPRESSED_EXTENT: u64 = 128 << 10;

/// An extent of a file: EXTENT_DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent<'a> {
    /// The transaction that created it.
    pub generation: u64,
    /// The compression of its data.
    pub compression: Option<Compression>,
    /// Its kind, with the location of its data.
    pub kind: FileExtentKind<'a>,
}

/// The kind of an extent, with the location of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileExtentKind<'a> {
    /// In the item itself: the data of the first sector of the file.
    Inline(InlineExtent<'a>),
    /// On disk.
    Regular(RegularExtent),
    /// On disk, but not written yet: reads as zeros.
    Prealloc(RegularExtent),
    /// Nowhere: reads as zeros.
    Hole(HoleExtent),
}

/// Data inside the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineExtent<'a> {
    /// The size of the data when decompressed.
    pub ram_bytes: u64,
    /// The data as stored.
    pub data: &'a [u8],
}

/// Data on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegularExtent {
    /// The address of the extent.
    pub disk: Logical,
    /// Its bytes on disk.
    pub disk_bytes: u64,
    /// The start of the file's range in the (decompressed) extent.
    pub offset: u64,
    /// The number of bytes of the file that it covers.
    pub bytes: u64,
    /// The size of the extent when decompressed.
    pub ram_bytes: u64,
}

/// A range of a file without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoleExtent {
    /// The number of bytes of the file that it covers.
    pub bytes: u64,
    /// The field for the offset in an extent; it has no meaning.
    pub offset: u64,
    /// The field for the decompressed size of an extent; it has no meaning.
    pub ram_bytes: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    generation: U64,
    ram_bytes: U64,
    compression: u8,
    encryption: u8,
    other_encoding: U16,
    kind: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBody {
    disk_bytenr: U64,
    disk_num_bytes: U64,
    offset: U64,
    num_bytes: U64,
}

const _: () = assert!(size_of::<RawHead>() == 21);
const _: () = assert!(size_of::<RawBody>() == 32);

/// The size of an EXTENT_DATA that is not inline.
const ITEM_BYTES: usize = size_of::<(RawHead, RawBody)>();

impl<'a> FileExtent<'a> {
    /// Reads the content of an EXTENT_DATA; `file_offset` is the offset in its key.
    pub fn parse(file_offset: u64, bytes: &'a [u8]) -> Result<Self, ItemError> {
        let (head, rest) = prefix::<RawHead>(bytes)?;
        let encryption = head.encryption;
        let encoding = head.other_encoding.get();
        if encryption != 0 || encoding != 0 {
            return Err(ItemError::Encoding { encryption, encoding });
        }
        let compression = match head.compression {
            0 => None,
            1 => Some(Compression::Zlib),
            2 => Some(Compression::Lzo),
            3 => Some(Compression::Zstd),
            other => return Err(ItemError::Compression(other)),
        };
        let ram_bytes = head.ram_bytes.get();
        if compression.is_some() && ram_bytes > MAX_COMPRESSED_EXTENT {
            return Err(ItemError::Range {
                field: "bytes of a compressed extent",
                value: ram_bytes,
            });
        }
        let kind = match head.kind {
            0 => parse_inline(file_offset, ram_bytes, compression, rest)?,
            1 => parse_on_disk(file_offset, ram_bytes, compression, rest)?,
            2 => match parse_on_disk(file_offset, ram_bytes, compression, rest)? {
                FileExtentKind::Regular(extent) => FileExtentKind::Prealloc(extent),
                other => other,
            },
            other => return Err(ItemError::ExtentType(other)),
        };
        Ok(Self { generation: head.generation.get(), compression, kind })
    }

    /// Writes the content of an EXTENT_DATA.
    pub fn encode(&self) -> Vec<u8> {
        let mut item = Vec::new();
        self.encode_into(&mut item);
        item
    }

    /// Appends the content of an EXTENT_DATA to `item`.
    pub fn encode_into(&self, item: &mut Vec<u8>) {
        let (kind, ram_bytes) = match &self.kind {
            FileExtentKind::Inline(inline) => (0, inline.ram_bytes),
            FileExtentKind::Regular(extent) => (1, extent.ram_bytes),
            FileExtentKind::Prealloc(extent) => (2, extent.ram_bytes),
            FileExtentKind::Hole(hole) => (1, hole.ram_bytes),
        };
        let head = RawHead {
            generation: self.generation.into(),
            ram_bytes: ram_bytes.into(),
            compression: compression_to_disk(self.compression),
            encryption: 0,
            other_encoding: U16::ZERO,
            kind,
        };
        item.reserve(ITEM_BYTES);
        item.extend_from_slice(head.as_bytes());
        match &self.kind {
            FileExtentKind::Inline(inline) => item.extend_from_slice(inline.data),
            FileExtentKind::Regular(extent) | FileExtentKind::Prealloc(extent) => {
                item.extend_from_slice(RawBody::of_extent(extent).as_bytes());
            }
            FileExtentKind::Hole(hole) => {
                item.extend_from_slice(RawBody::of_hole(hole).as_bytes());
            }
        }
    }

    /// The number of bytes of the file that the extent covers; for inline data, its `ram_bytes`.
    pub fn file_bytes(&self) -> u64 {
        match self.kind {
            FileExtentKind::Inline(inline) => inline.ram_bytes,
            FileExtentKind::Regular(extent) | FileExtentKind::Prealloc(extent) => extent.bytes,
            FileExtentKind::Hole(hole) => hole.bytes,
        }
    }
}

impl RawBody {
    fn of_extent(extent: &RegularExtent) -> Self {
        Self {
            disk_bytenr: extent.disk.0.into(),
            disk_num_bytes: extent.disk_bytes.into(),
            offset: extent.offset.into(),
            num_bytes: extent.bytes.into(),
        }
    }

    fn of_hole(hole: &HoleExtent) -> Self {
        Self {
            disk_bytenr: U64::ZERO,
            disk_num_bytes: U64::ZERO,
            offset: hole.offset.into(),
            num_bytes: hole.bytes.into(),
        }
    }
}

fn compression_to_disk(compression: Option<Compression>) -> u8 {
    match compression {
        None => 0,
        Some(Compression::Zlib) => 1,
        Some(Compression::Lzo) => 2,
        Some(Compression::Zstd) => 3,
    }
}

fn parse_inline(
    file_offset: u64,
    ram_bytes: u64,
    compression: Option<Compression>,
    data: &[u8],
) -> Result<FileExtentKind<'_>, ItemError> {
    if file_offset != 0 {
        return Err(ItemError::KeyOffset(file_offset));
    }
    let stored = u64::try_from(data.len()).expect("an item is small");
    if compression.is_none() && stored != ram_bytes {
        return Err(ItemError::Range { field: "bytes of inline data", value: ram_bytes });
    }
    if compression.is_some() && ram_bytes > u64::from(SECTOR_SIZE) {
        let field = "bytes of a compressed inline extent";
        return Err(ItemError::Range { field, value: ram_bytes });
    }
    if compression.is_some() && data.is_empty() {
        return Err(ItemError::Zero("length of compressed inline data"));
    }
    Ok(FileExtentKind::Inline(InlineExtent { ram_bytes, data }))
}

fn parse_on_disk(
    file_offset: u64,
    ram_bytes: u64,
    compression: Option<Compression>,
    bytes: &[u8],
) -> Result<FileExtentKind<'_>, ItemError> {
    let raw = exact::<RawBody>(bytes)?;
    let extent = RegularExtent {
        disk: Logical(raw.disk_bytenr.get()),
        disk_bytes: raw.disk_num_bytes.get(),
        offset: raw.offset.get(),
        bytes: raw.num_bytes.get(),
        ram_bytes,
    };
    for (field, value) in [
        ("file offset", file_offset),
        ("extent address", extent.disk.0),
        ("extent bytes on disk", extent.disk_bytes),
        ("extent offset", extent.offset),
        ("extent bytes", extent.bytes),
        ("extent bytes in memory", extent.ram_bytes),
    ] {
        if !value.is_multiple_of(u64::from(SECTOR_SIZE)) {
            return Err(ItemError::Unaligned { field, value });
        }
    }
    if extent.bytes == 0 {
        return Err(ItemError::Zero("length of the extent"));
    }
    let overflow = |field, start, len| ItemError::Overflow { field, start, len };
    file_offset.checked_add(extent.bytes).ok_or(overflow(
        "file range",
        file_offset,
        extent.bytes,
    ))?;
    if extent.disk.0 == 0 {
        let RegularExtent { bytes, offset, .. } = extent;
        return Ok(FileExtentKind::Hole(HoleExtent { bytes, offset, ram_bytes }));
    }
    if extent.disk_bytes == 0 {
        return Err(ItemError::Zero("length of the extent on disk"));
    }
    extent.disk.checked_add(extent.disk_bytes).ok_or(overflow(
        "extent",
        extent.disk.0,
        extent.disk_bytes,
    ))?;
    check_inside(&extent, compression)?;
    Ok(FileExtentKind::Regular(extent))
}

fn check_inside(extent: &RegularExtent, compressed: Option<Compression>) -> Result<(), ItemError> {
    let limit = if compressed.is_some() { extent.ram_bytes } else { extent.disk_bytes };
    let inside = extent.offset.checked_add(extent.bytes).is_some_and(|end| end <= limit);
    if !inside {
        return Err(ItemError::PastExtent { offset: extent.offset, len: extent.bytes, limit });
    }
    if compressed.is_some() && extent.disk_bytes > MAX_COMPRESSED_EXTENT {
        let value = extent.disk_bytes;
        return Err(ItemError::Range { field: "bytes on disk of a compressed extent", value });
    }
    Ok(())
}
