//! Block groups and free space.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::device::exact;
use crate::{BlockGroupFlags, ItemError};

/// A block group: BLOCK_GROUP_ITEM. Its key holds start and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGroupItem {
    /// Bytes that are allocated.
    pub used: u64,
    /// The object id of chunks; 256.
    pub chunk_objectid: u64,
    /// Its type and profile, as in its chunk.
    pub flags: BlockGroupFlags,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBlockGroupItem {
    used: U64,
    chunk_objectid: U64,
    flags: U64,
}

impl BlockGroupItem {
    /// Writes the content of a BLOCK_GROUP_ITEM.
    pub fn encode(&self) -> [u8; size_of::<RawBlockGroupItem>()] {
        zerocopy::transmute!(RawBlockGroupItem {
            used: self.used.into(),
            chunk_objectid: self.chunk_objectid.into(),
            flags: self.flags.bits().into(),
        })
    }

    /// Reads the content of a BLOCK_GROUP_ITEM; `len` is the length in its key.
    pub fn parse(len: u64, bytes: &[u8]) -> Result<Self, ItemError> {
        let raw = exact::<RawBlockGroupItem>(bytes)?;
        if len == 0 {
            return Err(ItemError::Zero("length of the block group"));
        }
        let flags = BlockGroupFlags::from_bits_retain(raw.flags.get());
        if flags.profile().is_none() || !flags.has_possible_type() {
            return Err(ItemError::Flags { field: "block group type", value: flags.bits() });
        }
        if raw.used.get() > len {
            return Err(ItemError::Range { field: "bytes used", value: raw.used.get() });
        }
        Ok(Self { used: raw.used.get(), chunk_objectid: raw.chunk_objectid.get(), flags })
    }
}

/// The format of the free space items of a block group: FREE_SPACE_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpaceInfo {
    /// The number of free ranges.
    pub extent_count: u32,
    /// 1 if the free ranges are stored as bitmaps.
    pub flags: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFreeSpaceInfo {
    extent_count: U32,
    flags: U32,
}

impl FreeSpaceInfo {
    /// Writes the content of a FREE_SPACE_INFO.
    pub fn encode(&self) -> [u8; size_of::<RawFreeSpaceInfo>()] {
        zerocopy::transmute!(RawFreeSpaceInfo {
            extent_count: self.extent_count.into(),
            flags: self.flags.into(),
        })
    }

    /// Reads the content of a FREE_SPACE_INFO.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let raw = exact::<RawFreeSpaceInfo>(bytes)?;
        let flags = raw.flags.get();
        if flags > 1 {
            return Err(ItemError::Flags { field: "free space flags", value: u64::from(flags) });
        }
        Ok(Self { extent_count: raw.extent_count.get(), flags })
    }
}

/// Returns the number of checksums in an EXTENT_CSUM of `len` bytes.
pub fn csum_count(len: usize, checksum_size: usize) -> Result<usize, ItemError> {
    if len == 0 || !len.is_multiple_of(checksum_size) {
        return Err(ItemError::Size(len));
    }
    Ok(len.checked_div(checksum_size).expect("a checksum has bytes"))
}
