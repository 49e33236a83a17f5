//! Valid items, at least one of each kind that is checked.

use userbtrfs_codec::hash::{extent_data_ref_hash, extref_hash, name_hash};
use userbtrfs_format::{ItemKind, Key, Logical};
use uuid::Uuid;

use crate::bytes::Bytes;
use crate::{
    ChunkSpec, ExtentSpec, InodeSpec, RootSpec, block_group, compressed_inline, data_ref,
    device_extent, device_item, dir_entry, extent_head, extrefs, inline_extent, inode_ref,
    root_ref, shared_data_ref, tree_ref,
};

/// A valid item.
pub type Sample = (Key, Vec<u8>);

/// Valid items, at least one of each kind that has a check. They do not fit together in one leaf.
pub fn samples() -> Vec<Sample> {
    [names(), files(), roots(), extents(), space(), rare()].concat()
}

fn key(objectid: u64, kind: ItemKind, offset: u64) -> Key {
    Key::new(objectid, kind, offset)
}

fn hashed(inode: u64, kind: ItemKind, name: &[u8]) -> Key {
    key(inode, kind, u64::from(name_hash(name)))
}

fn names() -> Vec<Sample> {
    let inode = key(257, ItemKind::INODE_ITEM, 0);
    let subvolume = key(256, ItemKind::ROOT_ITEM, u64::MAX);
    let entry = |name: &[u8]| dir_entry(inode, 1, name, b"");
    let nothing = key(0, ItemKind(0), 0);
    let extref_key = key(257, ItemKind::INODE_EXTREF, extref_hash(256, b"far"));
    let two = [inode_ref(2, b"name"), inode_ref(3, b"other")].concat();
    vec![
        (inode, InodeSpec::file(5).build()),
        (key(256, ItemKind::INODE_ITEM, 0), InodeSpec::directory(4).build()),
        (key(257, ItemKind::INODE_REF, 256), two),
        (extref_key, extrefs(&[(256, 4, b"far")])),
        (hashed(256, ItemKind::DIR_ITEM, b"name"), entry(b"name")),
        (hashed(256, ItemKind::DIR_ITEM, b"sub"), dir_entry(subvolume, 2, b"sub", b"")),
        (key(256, ItemKind::DIR_INDEX, 2), entry(b"name")),
        (hashed(257, ItemKind::XATTR_ITEM, b"user.a"), dir_entry(nothing, 8, b"user.a", b"value")),
    ]
}

fn files() -> Vec<Sample> {
    let at = |offset| key(257, ItemKind::EXTENT_DATA, offset);
    let disk = Logical(0x40_0000);
    let plain = ExtentSpec::plain(disk, 8192);
    let packed = ExtentSpec { compression: 1, disk_bytes: 4096, ..plain };
    vec![
        (at(0), inline_extent(b"hello")),
        (at(0), compressed_inline(3, 4096, b"not looked into")),
        (at(4096), plain.build()),
        (at(4096), ExtentSpec { offset: 4096, bytes: 4096, ..packed }.build()),
        (at(4096), ExtentSpec { kind: 2, ..plain }.build()),
        (at(4096), ExtentSpec::hole(4096).build()),
        (key(u64::MAX - 9, ItemKind::EXTENT_CSUM, disk.0), vec![7; 12]),
    ]
}

fn roots() -> Vec<Sample> {
    let root = RootSpec::subvolume(Logical(0x20_3000), Uuid::from_u128(9));
    vec![
        (key(5, ItemKind::ROOT_ITEM, 0), root.build()),
        (key(256, ItemKind::ROOT_ITEM, 7), root.build_short()),
        (key(5, ItemKind::ROOT_REF, 256), root_ref(256, 3, b"sub")),
        (key(256, ItemKind::ROOT_BACKREF, 5), root_ref(256, 3, b"sub")),
    ]
}

fn extents() -> Vec<Sample> {
    let at = |kind, offset| key(0x40_0000, kind, offset);
    let first = key(256, ItemKind::INODE_ITEM, 0);
    let block = extent_head(2, 2, None).raw(&tree_ref(176, 5)).raw(&tree_ref(182, 0x20_1000));
    let old_block = extent_head(1, 2, Some((first, 0))).raw(&tree_ref(176, 5));
    let data = extent_head(4, 1, None)
        .raw(&tree_ref(172, 5))
        .u8(178)
        .raw(&data_ref(5, 257, 0, 3))
        .u8(184)
        .raw(&shared_data_ref(0x20_1000, 1));
    let hash = extent_data_ref_hash(5, 257, 0);
    vec![
        (at(ItemKind::EXTENT_ITEM, 8192), data.build()),
        (at(ItemKind::EXTENT_ITEM, 4096), old_block.build()),
        (at(ItemKind::METADATA_ITEM, 1), block.build()),
        (at(ItemKind::TREE_BLOCK_REF, 5), vec![]),
        (at(ItemKind::EXTENT_DATA_REF, hash), data_ref(5, 257, 0, 1)),
        (at(ItemKind::SHARED_BLOCK_REF, 0x20_1000), vec![]),
        (at(ItemKind::SHARED_DATA_REF, 0x20_1000), 1u32.to_le_bytes().to_vec()),
    ]
}

fn space() -> Vec<Sample> {
    let chunk = ChunkSpec::metadata();
    let group = |kind| key(chunk.logical.0, kind, chunk.len);
    vec![
        (chunk.key(), chunk.build()),
        (key(1, ItemKind::DEV_ITEM, 1), device_item(1, 1 << 20, 1 << 19)),
        (key(1, ItemKind::DEV_EXTENT, 0x4_0000), device_extent(chunk.logical, chunk.len)),
        (group(ItemKind::BLOCK_GROUP_ITEM), block_group(4096, chunk.flags)),
        (group(ItemKind::FREE_SPACE_INFO), Bytes::new().u32(1).u32(1).build()),
        (group(ItemKind::FREE_SPACE_EXTENT), vec![]),
        (group(ItemKind::FREE_SPACE_BITMAP), vec![0xff; 4]),
    ]
}

fn rare() -> Vec<Sample> {
    let numbers = |count: u64| (1..=count).fold(Bytes::new(), Bytes::u64).build();
    let cache = Bytes::new().key(key(256, ItemKind::INODE_ITEM, 0)).u64(7).u64(1).u64(0);
    vec![
        (key(0, ItemKind::QGROUP_STATUS, 0), numbers(4)),
        (key(0, ItemKind::QGROUP_STATUS, 0), numbers(5)),
        (key(0, ItemKind::QGROUP_INFO, 5), numbers(5)),
        (key(0, ItemKind::QGROUP_LIMIT, 5), numbers(5)),
        (key(5, ItemKind::QGROUP_RELATION, 1 << 48), vec![]),
        (key(0, ItemKind::PERSISTENT_ITEM, 1), numbers(5)),
        (key(0, ItemKind::DEV_REPLACE, 0), numbers(9)),
        (key(3, ItemKind::UUID_KEY_SUBVOL, 4), numbers(1)),
        (key(3, ItemKind::UUID_KEY_RECEIVED_SUBVOL, 4), numbers(2)),
        (key(u64::MAX - 4, ItemKind::ORPHAN_ITEM, 300), vec![]),
        (key(u64::MAX - 10, ItemKind(0), 0x20_0000), cache.build()),
        (key(u64::MAX - 3, ItemKind::TEMPORARY_ITEM, 0), vec![0; 448]),
    ]
}
