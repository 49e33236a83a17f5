//! Chunks, devices and block groups.

use userbtrfs_format::{ItemKind, Key, Logical};

use crate::bytes::Bytes;
use crate::{DEVICE_UUID, FSID};

/// The fields of a CHUNK_ITEM. `num_stripes` is the length of `stripes`.
#[derive(Clone, Debug)]
pub struct ChunkSpec {
    /// Its start.
    pub logical: Logical,
    /// Its length.
    pub len: u64,
    /// Type and profile.
    pub flags: u64,
    /// The stripe length.
    pub stripe_len: u64,
    /// Copies inside a stripe set.
    pub sub_stripes: u16,
    /// The offsets of its stripes on device 1.
    pub stripes: Vec<u64>,
}

/// Type and profile bits.
const DATA: u64 = 1;
const SYSTEM_DUP: u64 = 1 << 1 | 1 << 5;
const METADATA_DUP: u64 = 1 << 2 | 1 << 5;

impl ChunkSpec {
    fn new(logical: u64, len: u64, flags: u64, stripes: &[u64]) -> Self {
        let logical = Logical(logical);
        Self { logical, len, flags, stripe_len: 65536, sub_stripes: 1, stripes: stripes.to_vec() }
    }

    /// The system chunk of the small image, with two copies on its device.
    pub fn system() -> Self {
        Self::new(0x10_0000, 0x1_0000, SYSTEM_DUP, &[0x2_0000, 0x3_0000])
    }

    /// The metadata chunk of the small image, with two copies on its device.
    pub fn metadata() -> Self {
        Self::new(0x20_0000, 0x2_0000, METADATA_DUP, &[0x4_0000, 0x6_0000])
    }

    /// The data chunk of the small image.
    pub fn data() -> Self {
        Self::new(0x40_0000, 0x2_0000, DATA, &[0x8_0000])
    }

    /// The key of the CHUNK_ITEM.
    pub fn key(&self) -> Key {
        Key::new(256, ItemKind::CHUNK_ITEM, self.logical.0)
    }

    /// The content of the CHUNK_ITEM.
    pub fn build(&self) -> Vec<u8> {
        let count = u16::try_from(self.stripes.len()).expect("few stripes");
        let head = Bytes::new()
            .u64(self.len)
            .u64(2)
            .u64(self.stripe_len)
            .u64(self.flags)
            .u32(65536)
            .u32(65536)
            .u32(4096)
            .u16(count)
            .u16(self.sub_stripes);
        let stripe =
            |bytes: Bytes, physical: &u64| bytes.u64(1).u64(*physical).raw(DEVICE_UUID.as_bytes());
        self.stripes.iter().fold(head, stripe).build()
    }
}

/// A DEV_ITEM.
pub fn device_item(id: u64, total_bytes: u64, bytes_used: u64) -> Vec<u8> {
    Bytes::new()
        .u64(id)
        .u64(total_bytes)
        .u64(bytes_used)
        .u32(4096)
        .u32(4096)
        .u32(4096)
        .zeros(30)
        .raw(DEVICE_UUID.as_bytes())
        .raw(FSID.as_bytes())
        .build()
}

/// A DEV_EXTENT of the chunk at `chunk`.
pub fn device_extent(chunk: Logical, len: u64) -> Vec<u8> {
    Bytes::new().u64(3).u64(256).u64(chunk.0).u64(len).raw(FSID.as_bytes()).build()
}

/// A BLOCK_GROUP_ITEM.
pub fn block_group(used: u64, flags: u64) -> Vec<u8> {
    Bytes::new().u64(used).u64(256).u64(flags).build()
}
