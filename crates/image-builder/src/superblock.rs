//! A builder of superblocks.

use userbtrfs_codec::ChecksumKind;
use userbtrfs_format::{Key, Logical, Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};

use crate::bytes::{Bytes, put_u16, put_u32, put_u64, u16_at};
use crate::{FSID, GENERATION, device_item};

/// The offsets of the fields of a superblock.
pub mod field {
    /// The filesystem id, 16 bytes.
    pub const FSID: usize = 0x20;
    /// The copy's own offset.
    pub const BYTENR: usize = 0x30;
    /// The flags.
    pub const FLAGS: usize = 0x38;
    /// The magic, 8 bytes.
    pub const MAGIC: usize = 0x40;
    /// The generation.
    pub const GENERATION: usize = 0x48;
    /// The root tree's root.
    pub const ROOT: usize = 0x50;
    /// The chunk tree's root.
    pub const CHUNK_ROOT: usize = 0x58;
    /// The log root tree's root.
    pub const LOG_ROOT: usize = 0x60;
    /// Bytes on all devices.
    pub const TOTAL_BYTES: usize = 0x70;
    /// Bytes in use.
    pub const BYTES_USED: usize = 0x78;
    /// The directory of the root tree.
    pub const ROOT_DIR: usize = 0x80;
    /// The number of devices.
    pub const NUM_DEVICES: usize = 0x88;
    /// The sector size, 4 bytes.
    pub const SECTORSIZE: usize = 0x90;
    /// The node size, 4 bytes.
    pub const NODESIZE: usize = 0x94;
    /// The obsolete leaf size, 4 bytes.
    pub const LEAFSIZE: usize = 0x98;
    /// The obsolete stripe size, 4 bytes.
    pub const STRIPESIZE: usize = 0x9c;
    /// The length of the system chunk array, 4 bytes.
    pub const SYS_CHUNK_ARRAY_SIZE: usize = 0xa0;
    /// The generation of the chunk tree's root.
    pub const CHUNK_ROOT_GENERATION: usize = 0xa4;
    /// Read-only compatible features.
    pub const COMPAT_RO: usize = 0xb4;
    /// Incompatible features.
    pub const INCOMPAT: usize = 0xbc;
    /// The checksum kind, 2 bytes.
    pub const CSUM_TYPE: usize = 0xc4;
    /// The root tree's level, one byte.
    pub const ROOT_LEVEL: usize = 0xc6;
    /// The chunk tree's level, one byte.
    pub const CHUNK_ROOT_LEVEL: usize = 0xc7;
    /// The log root tree's level, one byte.
    pub const LOG_ROOT_LEVEL: usize = 0xc8;
    /// The device item, 98 bytes.
    pub const DEV_ITEM: usize = 0xc9;
    /// The label, 256 bytes.
    pub const LABEL: usize = 0x12b;
    /// The generation of the v1 space cache.
    pub const CACHE_GENERATION: usize = 0x22b;
    /// The generation of the UUID tree.
    pub const UUID_TREE_GENERATION: usize = 0x233;
    /// The UUID in tree blocks, 16 bytes.
    pub const METADATA_UUID: usize = 0x23b;
    /// The system chunk array, 2048 bytes.
    pub const SYS_CHUNK_ARRAY: usize = 0x32b;
    /// The backup roots.
    pub const BACKUP_ROOTS: usize = 0xb2b;
}

/// MIXED_BACKREF, BIG_METADATA, EXTENDED_IREF, SKINNY_METADATA, NO_HOLES.
const INCOMPAT: u64 = 0x361;

/// The fields of a superblock.
#[derive(Clone, Debug)]
pub struct SuperblockSpec {
    /// The checksum algorithm.
    pub checksum_kind: ChecksumKind,
    /// Bytes in a tree block.
    pub nodesize: u32,
    /// The generation of the last commit.
    pub generation: u64,
    /// The root tree's root.
    pub root: Logical,
    /// The chunk tree's root.
    pub chunk_root: Logical,
    /// The size of the device.
    pub total_bytes: u64,
    /// Bytes that extents use.
    pub bytes_used: u64,
    /// Bytes of the device that are allocated to chunks.
    pub device_used: u64,
    /// System chunks, with their keys.
    pub system_chunks: Vec<(Key, Vec<u8>)>,
    /// The label.
    pub label: Vec<u8>,
}

impl Default for SuperblockSpec {
    fn default() -> Self {
        let chunk = crate::ChunkSpec::system();
        Self {
            checksum_kind: ChecksumKind::Crc32c,
            nodesize: 4096,
            generation: GENERATION,
            root: Logical(0x20_0000),
            chunk_root: chunk.logical,
            total_bytes: crate::IMAGE_LEN,
            bytes_used: 0,
            device_used: 0,
            system_chunks: vec![(chunk.key(), chunk.build())],
            label: b"forged".to_vec(),
        }
    }
}

impl SuperblockSpec {
    /// Builds the primary copy, sealed.
    pub fn build(&self) -> Vec<u8> {
        self.copy_at(SUPERBLOCK_OFFSETS[0])
    }

    /// Builds the copy for offset `at`, sealed.
    pub fn copy_at(&self, at: Physical) -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        let mut put = |at: usize, content: &[u8]| {
            bytes[at..at + content.len()].copy_from_slice(content);
        };
        put(field::FSID, FSID.as_bytes());
        put(field::MAGIC, b"_BHRfS_M");
        put(field::DEV_ITEM, &device_item(1, self.total_bytes, self.device_used));
        put(field::LABEL, &self.label);
        let array = self.array();
        put(field::SYS_CHUNK_ARRAY, &array);
        self.put_numbers(&mut bytes, at, array.len());
        seal_superblock(&mut bytes);
        bytes
    }

    fn array(&self) -> Vec<u8> {
        let pairs = self.system_chunks.iter();
        pairs.fold(Bytes::new(), |array, (key, chunk)| array.key(*key).raw(chunk)).build()
    }

    fn put_numbers(&self, bytes: &mut [u8], at: Physical, array_len: usize) {
        for (at, value) in [
            (field::BYTENR, at.0),
            (field::FLAGS, 1),
            (field::GENERATION, self.generation),
            (field::ROOT, self.root.0),
            (field::CHUNK_ROOT, self.chunk_root.0),
            (field::TOTAL_BYTES, self.total_bytes),
            (field::BYTES_USED, self.bytes_used),
            (field::ROOT_DIR, 6),
            (field::NUM_DEVICES, 1),
            (field::CHUNK_ROOT_GENERATION, self.generation),
            (field::INCOMPAT, INCOMPAT),
            (field::CACHE_GENERATION, u64::MAX),
        ] {
            put_u64(bytes, at, value);
        }
        for (at, value) in [
            (field::SECTORSIZE, 4096),
            (field::NODESIZE, self.nodesize),
            (field::LEAFSIZE, self.nodesize),
            (field::STRIPESIZE, 4096),
            (field::SYS_CHUNK_ARRAY_SIZE, u32::try_from(array_len).expect("the array is short")),
        ] {
            put_u32(bytes, at, value);
        }
        put_u16(bytes, field::CSUM_TYPE, self.checksum_kind.to_disk());
    }
}

/// Sets the checksum of a superblock, with the kind in it, or with CRC-32C if that is unknown.
pub fn seal_superblock(bytes: &mut [u8]) {
    let number = u16_at(bytes, field::CSUM_TYPE);
    let kind = ChecksumKind::try_from(number).unwrap_or(ChecksumKind::Crc32c);
    let checksum = kind.compute(&bytes[32..SUPERBLOCK_SIZE]);
    bytes[..32].fill(0);
    bytes[..kind.size()].copy_from_slice(checksum.as_bytes());
}
