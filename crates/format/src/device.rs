//! Devices and the ranges of them that are allocated to chunks.

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ItemError, Logical, SECTOR_SIZE};

/// A device of the filesystem: DEV_ITEM, also in the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceItem {
    /// The device id.
    pub id: u64,
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Bytes that are allocated to chunks.
    pub bytes_used: u64,
    /// Obsolete: alignment of I/O.
    pub io_align: u32,
    /// Obsolete: width of I/O.
    pub io_width: u32,
    /// Bytes in a sector.
    pub sector_size: u32,
    /// Obsolete: type.
    pub kind: u64,
    /// Obsolete: generation.
    pub generation: u64,
    /// The offset from which space may be allocated.
    pub start_offset: u64,
    /// Obsolete: group.
    pub group: u32,
    /// Obsolete: speed of seeks.
    pub seek_speed: u8,
    /// Obsolete: bandwidth.
    pub bandwidth: u8,
    /// The device's UUID.
    pub uuid: Uuid,
    /// The filesystem it belongs to (its metadata UUID).
    pub fsid: Uuid,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawDeviceItem {
    devid: U64,
    total_bytes: U64,
    bytes_used: U64,
    io_align: U32,
    io_width: U32,
    sector_size: U32,
    kind: U64,
    generation: U64,
    start_offset: U64,
    dev_group: U32,
    seek_speed: u8,
    bandwidth: u8,
    uuid: [u8; 16],
    fsid: [u8; 16],
}

const _: () = assert!(size_of::<RawDeviceItem>() == 98);

impl RawDeviceItem {
    pub(crate) fn get(&self) -> Result<DeviceItem, ItemError> {
        if self.devid.get() == 0 {
            return Err(ItemError::Zero("number of the device"));
        }
        let total_bytes = self.total_bytes.get();
        let bytes_used = self.bytes_used.get();
        if total_bytes == 0 {
            return Err(ItemError::Zero("size of the device"));
        }
        if bytes_used > total_bytes {
            return Err(ItemError::Range { field: "bytes used of the device", value: bytes_used });
        }
        Ok(DeviceItem {
            id: self.devid.get(),
            total_bytes,
            bytes_used,
            io_align: self.io_align.get(),
            io_width: self.io_width.get(),
            sector_size: self.sector_size.get(),
            kind: self.kind.get(),
            generation: self.generation.get(),
            start_offset: self.start_offset.get(),
            group: self.dev_group.get(),
            seek_speed: self.seek_speed,
            bandwidth: self.bandwidth,
            uuid: Uuid::from_bytes(self.uuid),
            fsid: Uuid::from_bytes(self.fsid),
        })
    }
}

impl From<&DeviceItem> for RawDeviceItem {
    fn from(item: &DeviceItem) -> Self {
        Self {
            devid: item.id.into(),
            total_bytes: item.total_bytes.into(),
            bytes_used: item.bytes_used.into(),
            io_align: item.io_align.into(),
            io_width: item.io_width.into(),
            sector_size: item.sector_size.into(),
            kind: item.kind.into(),
            generation: item.generation.into(),
            start_offset: item.start_offset.into(),
            dev_group: item.group.into(),
            seek_speed: item.seek_speed,
            bandwidth: item.bandwidth,
            uuid: item.uuid.into_bytes(),
            fsid: item.fsid.into_bytes(),
        }
    }
}

impl DeviceItem {
    /// Reads the content of a DEV_ITEM.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        exact::<RawDeviceItem>(bytes)?.get()
    }

    /// Writes the content of a DEV_ITEM.
    pub fn encode(&self) -> [u8; size_of::<RawDeviceItem>()] {
        zerocopy::transmute!(RawDeviceItem::from(self))
    }
}

/// Reads the bytes as a structure of exactly their size.
pub(crate) fn exact<T: FromBytes + Immutable + KnownLayout + Unaligned>(
    bytes: &[u8],
) -> Result<&T, ItemError> {
    T::ref_from_bytes(bytes).map_err(|_| {
        if bytes.len() < size_of::<T>() {
            ItemError::TooShort { need: size_of::<T>(), have: bytes.len() }
        } else {
            ItemError::Size(bytes.len())
        }
    })
}

/// Reads a structure at the start of the bytes; returns it and the bytes after it.
pub(crate) fn prefix<T: FromBytes + Immutable + KnownLayout + Unaligned>(
    bytes: &[u8],
) -> Result<(&T, &[u8]), ItemError> {
    T::ref_from_prefix(bytes)
        .map_err(|_| ItemError::TooShort { need: size_of::<T>(), have: bytes.len() })
}

/// A range of a device allocated to a chunk: DEV_EXTENT. Its key holds device and offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceExtent {
    /// The chunk tree; 3.
    pub chunk_tree: u64,
    /// The object id of chunks; 256.
    pub chunk_objectid: u64,
    /// The chunk that the range is allocated to.
    pub chunk: Logical,
    /// The length of the range in bytes.
    pub len: u64,
    /// The chunk tree's UUID.
    pub chunk_tree_uuid: Uuid,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDeviceExtent {
    chunk_tree: U64,
    chunk_objectid: U64,
    chunk_offset: U64,
    length: U64,
    chunk_tree_uuid: [u8; 16],
}

const _: () = assert!(size_of::<RawDeviceExtent>() == 48);

impl DeviceExtent {
    /// Writes the content of a DEV_EXTENT.
    pub fn encode(&self) -> [u8; size_of::<RawDeviceExtent>()] {
        zerocopy::transmute!(RawDeviceExtent {
            chunk_tree: self.chunk_tree.into(),
            chunk_objectid: self.chunk_objectid.into(),
            chunk_offset: self.chunk.0.into(),
            length: self.len.into(),
            chunk_tree_uuid: self.chunk_tree_uuid.into_bytes(),
        })
    }

    /// Reads the content of a DEV_EXTENT.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let raw = exact::<RawDeviceExtent>(bytes)?;
        let len = raw.length.get();
        if len == 0 || !len.is_multiple_of(u64::from(SECTOR_SIZE)) {
            return Err(ItemError::Unaligned { field: "device extent length", value: len });
        }
        Ok(Self {
            chunk_tree: raw.chunk_tree.get(),
            chunk_objectid: raw.chunk_objectid.get(),
            chunk: Logical(raw.chunk_offset.get()),
            len,
            chunk_tree_uuid: Uuid::from_bytes(raw.chunk_tree_uuid),
        })
    }
}
