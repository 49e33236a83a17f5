//! Encoding of parsed items: each item and superblock of each golden image, which Linux wrote, is
//! encoded byte for byte as it was from its parsed form.

use std::collections::BTreeMap;

use userbtrfs_format::{
    BlockGroupItem, Chunk, DevStats, DeviceExtent, DeviceItem, Expectation, ExtentItem, FileExtent,
    FreeSpaceInfo, InodeItem, ItemKind, Key, KeyedRef, Logical, QgroupInfo, QgroupLimit,
    QgroupStatus, RootItem, RootRef, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, SYS_CHUNK_ARRAY_SIZE,
    Superblock, TreeId, dir_entries, encode_sys_chunk_array, encode_uuid_subvolumes, inode_extrefs,
    inode_refs, sys_chunk_array, uuid_key, uuid_of_key, uuid_subvolumes,
};
use userbtrfs_testkit::golden::Golden;
use userbtrfs_volume::{Volume, walk};

use crate::support::golden::Unpacked;

/// The offset of the system chunks in a superblock.
const SYS_CHUNK_ARRAY: usize = 811;

/// Parses and encodes the content of an item; `None` for kinds that are kept as bytes.
fn written_again(key: Key, data: &[u8]) -> Option<Vec<u8>> {
    let bytes = match key.kind {
        ItemKind::INODE_ITEM => InodeItem::parse(data).unwrap().encode().to_vec(),
        ItemKind::EXTENT_DATA => FileExtent::parse(key.offset, data).unwrap().encode(),
        ItemKind::ROOT_ITEM => RootItem::parse(data).unwrap().encode(),
        ItemKind::ROOT_REF | ItemKind::ROOT_BACKREF => RootRef::parse(data).unwrap().encode(),
        ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM => {
            ExtentItem::parse(key, data).unwrap().encode()
        }
        ItemKind::TREE_BLOCK_REF
        | ItemKind::SHARED_BLOCK_REF
        | ItemKind::EXTENT_DATA_REF
        | ItemKind::SHARED_DATA_REF => KeyedRef::parse(key.kind, data).unwrap().encode(),
        ItemKind::CHUNK_ITEM => Chunk::parse(key, data).unwrap().encode(),
        ItemKind::DEV_ITEM => DeviceItem::parse(data).unwrap().encode().to_vec(),
        ItemKind::DEV_EXTENT => DeviceExtent::parse(data).unwrap().encode().to_vec(),
        ItemKind::BLOCK_GROUP_ITEM => {
            BlockGroupItem::parse(key.offset, data).unwrap().encode().to_vec()
        }
        ItemKind::FREE_SPACE_INFO => FreeSpaceInfo::parse(data).unwrap().encode().to_vec(),
        ItemKind::PERSISTENT_ITEM => DevStats::parse(data).unwrap().encode(),
        ItemKind::QGROUP_STATUS => QgroupStatus::parse(data).unwrap().encode(),
        ItemKind::QGROUP_INFO => QgroupInfo::parse(data).unwrap().encode(),
        ItemKind::QGROUP_LIMIT => QgroupLimit::parse(data).unwrap().encode(),
        ItemKind::UUID_KEY_SUBVOL | ItemKind::UUID_KEY_RECEIVED_SUBVOL => {
            assert_eq!(uuid_key(uuid_of_key(key), key.kind), key);
            encode_uuid_subvolumes(&uuid_subvolumes(data).unwrap())
        }
        _ => return entries_written_again(key, data),
    };
    Some(bytes)
}

/// Parses and encodes the content of an item that holds several entries; else `None`.
fn entries_written_again(key: Key, data: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match key.kind {
        ItemKind::INODE_REF => {
            inode_refs(key.offset, data).for_each(|name| name.unwrap().encode_ref_into(&mut bytes));
        }
        ItemKind::INODE_EXTREF => {
            inode_extrefs(data).for_each(|name| name.unwrap().encode_extref_into(&mut bytes));
        }
        ItemKind::DIR_ITEM | ItemKind::DIR_INDEX | ItemKind::XATTR_ITEM => {
            dir_entries(data).for_each(|entry| entry.unwrap().encode_into(&mut bytes));
        }
        _ => return None,
    }
    Some(bytes)
}

/// Returns the content of an item, with the reserved fields of inodes zeroed: in a log, Linux does
/// not clear their old content.
fn without_reserved(key: Key, data: &[u8]) -> Vec<u8> {
    let mut meaning = data.to_vec();
    if key.kind == ItemKind::INODE_ITEM {
        meaning[80..112].fill(0);
    }
    meaning
}

/// The root of a tree to check, and the properties that its block must have.
type Root = (Logical, Expectation);

fn root(owner: TreeId, logical: Logical, level: u8, generation: u64) -> Root {
    (logical, Expectation { owner, level, generation, first_key: None, end: None })
}

/// Encodes each item of a tree; counts the kinds, and returns the trees whose ROOT_ITEMs it has.
fn check_tree(volume: &Volume, (at, expected): Root, seen: &mut Counts) -> Vec<Root> {
    let mut roots = Vec::new();
    let mut leaves = walk(volume, at, expected, u64::MAX);
    while let Some(leaf) = leaves.next_leaf().unwrap() {
        for item in (0..leaf.len()).map(|slot| leaf.item(slot)) {
            if let Some(bytes) = written_again(item.key, item.data) {
                let meaning = without_reserved(item.key, item.data);
                assert_eq!(bytes, meaning, "{}: {}", volume.name(), item.key);
                *seen.entry(item.key.kind).or_default() += 1;
            }
            if item.key.kind == ItemKind::ROOT_ITEM {
                roots.extend(whole_tree(item.key, item.data));
            }
        }
    }
    roots
}

/// Returns the tree of a ROOT_ITEM, unless a part of it was freed already.
fn whole_tree(key: Key, data: &[u8]) -> Option<Root> {
    let item = RootItem::parse(data).unwrap();
    // Log trees are keyed by their subvolume, but owned by the log.
    let of_log = key.objectid == TreeId::TREE_LOG.0;
    let owner = if of_log { TreeId::TREE_LOG } else { TreeId(key.objectid) };
    (item.drop_progress == Key::MIN).then(|| root(owner, item.logical, item.level, item.generation))
}

type Counts = BTreeMap<ItemKind, u64>;

fn check_image(volume: &Volume, seen: &mut Counts) {
    let superblock = volume.superblock();
    let trees = root(TreeId::ROOT, superblock.root, superblock.root_level, superblock.generation);
    let log = superblock.log_root.map(|log| {
        root(TreeId::TREE_LOG, log, superblock.log_root_level, superblock.generation + 1)
    });
    let mut left = vec![trees, volume.chunk_root()];
    left.extend(log);
    while let Some(tree) = left.pop() {
        left.extend(check_tree(volume, tree, seen));
    }
}

/// Clears the old bytes that Linux left after the end of a shortened array of chunks.
fn clear_remains(bytes: &mut [u8], superblock: &Superblock) {
    let end = SYS_CHUNK_ARRAY + superblock.sys_chunk_array.len();
    bytes[end..SYS_CHUNK_ARRAY + SYS_CHUNK_ARRAY_SIZE].fill(0);
    let sum = superblock.checksum_kind.compute(&bytes[32..]);
    bytes[..sum.as_bytes().len()].copy_from_slice(sum.as_bytes());
}

fn check_superblocks(volume: &Volume) {
    for at in SUPERBLOCK_OFFSETS {
        if at.0 + SUPERBLOCK_SIZE as u64 > volume.device().len() {
            continue;
        }
        let bytes = volume.device().read(at.0, SUPERBLOCK_SIZE).unwrap();
        let superblock = Superblock::parse(&bytes, at).unwrap();
        let mut meaning = bytes.to_vec();
        clear_remains(&mut meaning, &superblock);
        assert!(superblock.encode(at)[..] == meaning, "{}: copy at {at}", volume.name());
        let chunks = sys_chunk_array(&superblock.sys_chunk_array).unwrap();
        assert_eq!(encode_sys_chunk_array(&chunks), superblock.sys_chunk_array);
    }
}

#[test]
fn items_written_by_linux_are_encoded_identically() {
    let mut seen = Counts::new();
    for golden in Golden::all().unwrap() {
        if golden.manifest().unwrap().is_none() {
            continue;
        }
        let image = Unpacked::of(&golden);
        let volume = Volume::open(vec![image.device()]).unwrap();
        check_superblocks(&volume);
        check_image(&volume, &mut seen);
    }
    assert!(seen.len() >= 22, "some kinds are in no golden image: {seen:?}");
}
