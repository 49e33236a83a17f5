//! Superblocks.

use userbtrfs_codec::{Checksum, ChecksumKind};
use userbtrfs_format::{
    CompatRoFlags, ItemError, Logical, Physical, SUPERBLOCK_OFFSETS, Superblock, SuperblockError,
    SuperblockFlags,
};
use userbtrfs_image_builder::{
    FSID, SuperblockSpec, field, put_u16, put_u32, put_u64, seal_superblock,
};
use uuid::Uuid;

const PRIMARY: Physical = SUPERBLOCK_OFFSETS[0];

/// Parses a valid superblock after an edit, with its checksum updated.
fn edited(edit: impl FnOnce(&mut [u8])) -> Result<Superblock, SuperblockError> {
    let mut bytes = SuperblockSpec::default().build();
    edit(&mut bytes);
    seal_superblock(&mut bytes);
    Superblock::parse(&bytes, PRIMARY)
}

#[track_caller]
fn refused(expected: &SuperblockError, edit: impl FnOnce(&mut [u8])) {
    assert_eq!(edited(edit).expect_err("it was damaged"), *expected);
}

#[test]
fn valid_superblock_returns_built_values() {
    let superblock = edited(|bytes| {
        put_u64(bytes, field::COMPAT_RO, 3);
        put_u64(bytes, field::LOG_ROOT, 0x20_9000);
        bytes[field::LOG_ROOT_LEVEL] = 1;
        bytes[field::ROOT_LEVEL] = 2;
        bytes[field::CHUNK_ROOT_LEVEL] = 3;
        put_u64(bytes, field::BACKUP_ROOTS + 168, 0x20_a000);
        put_u64(bytes, field::UUID_TREE_GENERATION, 6);
    })
    .unwrap();
    assert_eq!(superblock.checksum_kind, ChecksumKind::Crc32c);
    assert_eq!((superblock.fsid, superblock.metadata_uuid), (FSID, FSID));
    assert_eq!((superblock.physical, superblock.generation), (PRIMARY, 7));
    assert_eq!(superblock.flags, SuperblockFlags::WRITTEN);
    assert_eq!((superblock.root, superblock.root_level), (Logical(0x20_0000), 2));
    assert_eq!((superblock.chunk_root, superblock.chunk_root_level), (Logical(0x10_0000), 3));
    assert_eq!(superblock.chunk_root_generation, 7);
    assert_eq!((superblock.log_root, superblock.log_root_level), (Some(Logical(0x20_9000)), 1));
    assert_eq!((superblock.sectorsize, superblock.nodesize), (4096, 4096));
    assert_eq!((superblock.total_bytes, superblock.num_devices), (0xa_0000, 1));
    assert_eq!((superblock.device.id, superblock.device.total_bytes), (1, 0xa_0000));
    assert_eq!(superblock.label, b"forged");
    assert_eq!(superblock.compat_ro.bits(), CompatRoFlags::FREE_SPACE_TREE.bits() | 2);
    assert_eq!((superblock.cache_generation, superblock.uuid_tree_generation), (u64::MAX, 6));
    assert_eq!(superblock.sys_chunk_array.len(), 17 + 48 + 64);
    assert_eq!(superblock.backup_roots[1].tree_root, Logical(0x20_a000));
    assert_eq!(superblock.unreadable_features(), [""; 0]);
}

#[test]
fn a_superblock_of_each_checksum_kind_is_read() {
    use ChecksumKind::{Blake2b, Crc32c, Sha256, Xxhash64};
    for checksum_kind in [Crc32c, Xxhash64, Sha256, Blake2b] {
        let bytes = SuperblockSpec { checksum_kind, ..SuperblockSpec::default() }.build();
        assert_eq!(Superblock::parse(&bytes, PRIMARY).unwrap().checksum_kind, checksum_kind);
    }
}

#[test]
fn metadata_uuid_is_used_only_if_its_feature_is_set() {
    let other = Uuid::from_u128(3);
    let put = |bytes: &mut [u8]| {
        bytes[field::METADATA_UUID..][..16].copy_from_slice(other.as_bytes());
    };
    assert_eq!(edited(put).unwrap().metadata_uuid, FSID);
    let with_feature = edited(|bytes| {
        put(bytes);
        put_u64(bytes, field::INCOMPAT, 0x761);
        bytes[field::DEV_ITEM + 82..][..16].copy_from_slice(other.as_bytes());
    });
    assert_eq!(with_feature.unwrap().metadata_uuid, other);
}

#[test]
fn unreadable_features_returns_names() {
    let superblock = edited(|bytes| {
        put_u64(bytes, field::INCOMPAT, 1 << 12 | 1 << 15);
        put_u64(bytes, field::FLAGS, 1 | 1 << 36 | 1 << 38);
    });
    let names = ["zoned", "bit 15", "changing-fsid-v2", "changing-bg-tree", "no mixed-backref"];
    assert_eq!(superblock.unwrap().unreadable_features(), names);
}

#[test]
fn too_short() {
    let bytes = SuperblockSpec::default().build();
    let error = Superblock::parse(&bytes[..4095], PRIMARY).unwrap_err();
    assert_eq!(error, SuperblockError::TooShort);
}

#[test]
fn magic() {
    refused(&SuperblockError::Magic(*b"_BHRfS_N"), |bytes| bytes[field::MAGIC + 7] = b'N');
}

#[test]
fn checksum_kind() {
    refused(&SuperblockError::ChecksumKind(4), |bytes| put_u16(bytes, field::CSUM_TYPE, 4));
}

#[test]
fn checksum() {
    let mut bytes = SuperblockSpec::default().build();
    let expected = Checksum::from_slice(&bytes[..4]).unwrap();
    bytes[4095] ^= 1;
    let found = ChecksumKind::Crc32c.compute(&bytes[32..]);
    let error = Superblock::parse(&bytes, PRIMARY).unwrap_err();
    assert_eq!(error, SuperblockError::Checksum { expected, found });
}

#[test]
fn address() {
    let bytes = SuperblockSpec::default().copy_at(SUPERBLOCK_OFFSETS[1]);
    let error = Superblock::parse(&bytes, PRIMARY).unwrap_err();
    assert_eq!(error, SuperblockError::Address { at: PRIMARY, found: 64 << 20 });
    assert!(Superblock::parse(&bytes, SUPERBLOCK_OFFSETS[1]).is_ok());
}

#[test]
fn sector_size() {
    refused(&SuperblockError::SectorSize(8192), |bytes| put_u32(bytes, field::SECTORSIZE, 8192));
}

#[test]
fn node_size() {
    for size in [0, 2048, 12288, 128 << 10] {
        refused(&SuperblockError::NodeSize(size), |bytes| {
            put_u32(bytes, field::NODESIZE, size);
            put_u32(bytes, field::LEAFSIZE, size);
        });
    }
    let mixed = |size| {
        edited(|bytes| {
            put_u64(bytes, field::INCOMPAT, 0x365);
            put_u32(bytes, field::NODESIZE, size);
            put_u32(bytes, field::LEAFSIZE, size);
        })
    };
    assert!(mixed(4096).is_ok());
    assert_eq!(mixed(8192).unwrap_err(), SuperblockError::NodeSize(8192));
}

#[test]
fn leaf_size() {
    let expected = SuperblockError::LeafSize { leaf: 8192, node: 4096 };
    refused(&expected, |bytes| put_u32(bytes, field::LEAFSIZE, 8192));
}

#[test]
fn level() {
    for (at, tree) in [
        (field::ROOT_LEVEL, "root tree"),
        (field::CHUNK_ROOT_LEVEL, "chunk tree"),
        (field::LOG_ROOT_LEVEL, "log root tree"),
    ] {
        refused(&SuperblockError::Level { tree, level: 8 }, |bytes| bytes[at] = 8);
    }
}

#[test]
fn root_address() {
    for (at, tree, address) in [
        (field::ROOT, "root tree", 0),
        (field::ROOT, "root tree", 0x20_0200),
        (field::CHUNK_ROOT, "chunk tree", 0),
        (field::CHUNK_ROOT, "chunk tree", 1),
        (field::LOG_ROOT, "log root tree", 4095),
    ] {
        let expected = SuperblockError::RootAddress { tree, logical: Logical(address) };
        refused(&expected, |bytes| put_u64(bytes, at, address));
    }
}

#[test]
fn chunk_generation() {
    let expected = SuperblockError::ChunkGeneration { chunk: 8, own: 7 };
    refused(&expected, |bytes| put_u64(bytes, field::CHUNK_ROOT_GENERATION, 8));
}

#[test]
fn sys_chunk_array_size() {
    for size in [0, 96, 2049, u32::MAX] {
        refused(&SuperblockError::SysChunkArraySize(size), |bytes| {
            put_u32(bytes, field::SYS_CHUNK_ARRAY_SIZE, size);
        });
    }
}

#[test]
fn no_devices() {
    refused(&SuperblockError::NoDevices, |bytes| put_u64(bytes, field::NUM_DEVICES, 0));
}

#[test]
fn device() {
    let expected = SuperblockError::Device(ItemError::Zero("number of the device"));
    refused(&expected, |bytes| put_u64(bytes, field::DEV_ITEM, 0));
    let field_name = "bytes used of the device";
    let expected = ItemError::Range { field: field_name, value: u64::MAX };
    refused(&SuperblockError::Device(expected), |bytes| {
        put_u64(bytes, field::DEV_ITEM + 16, u64::MAX);
    });
}

#[test]
fn device_fsid() {
    let found = Uuid::nil();
    refused(&SuperblockError::DeviceFsid { expected: FSID, found }, |bytes| {
        bytes[field::DEV_ITEM + 82..][..16].fill(0);
    });
}
