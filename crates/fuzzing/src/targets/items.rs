//! Items: every parser, and the invariants of verified blocks that their users rely on.

use userbtrfs_format::{
    BlockGroupItem, Chunk, DevReplaceItem, DevStats, DeviceExtent, DeviceItem, ExtentItem,
    FileExtent, FileExtentKind, FreeSpaceInfo, InodeItem, ItemError, ItemKind, Key, KeyedRef,
    MAX_COMPRESSED_EXTENT, QgroupInfo, QgroupLimit, QgroupStatus, Quoted, RootItem, RootRef,
    TreeBlock, V1SpaceCache, csum_count, dir_entries, inode_extrefs, inode_refs, uuid_of_key,
    uuid_subvolumes,
};

/// Uses all of a verified block; nothing may fail.
pub(super) fn exercise(block: &TreeBlock<Vec<u8>>) {
    let keys: Vec<Key> = (0..block.len()).map(|slot| block.key(slot)).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    for (slot, key) in keys.iter().enumerate() {
        assert_eq!(block.search(key), Ok(slot));
        if block.is_leaf() {
            let item = block.item(slot);
            parse(item.key, item.data).expect("the item was checked with its block");
        } else {
            assert_eq!(block.child_slot(key), slot);
            assert!(block.child(slot).generation <= block.header().generation);
        }
    }
}

/// Parses an item by its kind, and checks the result.
pub(super) fn parse(key: Key, data: &[u8]) -> Result<(), ItemError> {
    match key.kind {
        ItemKind::INODE_ITEM => {
            let inode = InodeItem::parse(data)?;
            inode.device();
            assert!(inode.mtime.nsec < 1_000_000_000);
        }
        ItemKind::INODE_REF => inode_refs(key.offset, data).try_for_each(|n| name(n?.name))?,
        ItemKind::INODE_EXTREF => inode_extrefs(data).try_for_each(|n| name(n?.name))?,
        ItemKind::DIR_ITEM | ItemKind::DIR_INDEX | ItemKind::XATTR_ITEM => {
            dir_entries(data).try_for_each(|entry| name(entry?.name))?;
        }
        ItemKind::EXTENT_DATA => file_extent(&FileExtent::parse(key.offset, data)?),
        ItemKind::EXTENT_CSUM => accept(&csum_count(data.len(), 4)?),
        ItemKind::ROOT_ITEM => accept(&RootItem::parse(data)?),
        ItemKind::ROOT_REF | ItemKind::ROOT_BACKREF => name(RootRef::parse(data)?.name)?,
        ItemKind::CHUNK_ITEM => {
            let chunk = Chunk::parse(key, data)?;
            assert!(chunk.end() > chunk.logical && !chunk.stripes.is_empty());
        }
        ItemKind::DEV_ITEM => accept(&DeviceItem::parse(data)?),
        ItemKind::DEV_EXTENT => accept(&DeviceExtent::parse(data)?),
        ItemKind::BLOCK_GROUP_ITEM => {
            assert!(BlockGroupItem::parse(key.offset, data)?.used <= key.offset);
        }
        _ => parse_rest(key, data)?,
    }
    Ok(())
}

fn parse_rest(key: Key, data: &[u8]) -> Result<(), ItemError> {
    match key.kind {
        ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM => {
            let extent = ExtentItem::parse(key, data)?;
            let listed: u64 = extent.inline.iter().map(userbtrfs_format::InlineRef::count).sum();
            assert!((1..=extent.refs).contains(&listed.max(1)));
        }
        ItemKind::TREE_BLOCK_REF
        | ItemKind::SHARED_BLOCK_REF
        | ItemKind::EXTENT_DATA_REF
        | ItemKind::SHARED_DATA_REF => accept(&KeyedRef::parse(key.kind, data)?),
        ItemKind::FREE_SPACE_INFO => accept(&FreeSpaceInfo::parse(data)?),
        ItemKind::QGROUP_INFO => accept(&QgroupInfo::parse(data)?),
        ItemKind::QGROUP_LIMIT => accept(&QgroupLimit::parse(data)?),
        ItemKind::QGROUP_STATUS => accept(&QgroupStatus::parse(data)?),
        ItemKind::DEV_REPLACE => accept(&DevReplaceItem::parse(data)?),
        ItemKind::PERSISTENT_ITEM if key.objectid == 0 => accept(&DevStats::parse(data)?),
        ItemKind::UUID_KEY_SUBVOL | ItemKind::UUID_KEY_RECEIVED_SUBVOL => {
            uuid_of_key(key);
            assert!(!uuid_subvolumes(data)?.is_empty());
        }
        ItemKind(0) if key.objectid == V1SpaceCache::OBJECTID => {
            accept(&V1SpaceCache::parse(data)?);
        }
        _ => {}
    }
    Ok(())
}

/// Checks that an accepted value can be formatted.
fn accept(value: &impl std::fmt::Debug) {
    assert!(!format!("{value:?}").is_empty());
}

/// Checks that a name is not empty, not too long, and can be displayed.
#[expect(clippy::unnecessary_wraps, reason = "it ends chains of results")]
fn name(name: &[u8]) -> Result<(), ItemError> {
    assert!((1..=255).contains(&name.len()));
    assert!(Quoted(name).to_string().chars().all(|c| !c.is_control()));
    Ok(())
}

fn file_extent(extent: &FileExtent<'_>) {
    let packed = extent.compression.is_some();
    match extent.kind {
        FileExtentKind::Inline(inline) => {
            assert!(packed || usize::try_from(inline.ram_bytes) == Ok(inline.data.len()));
        }
        FileExtentKind::Regular(regular) | FileExtentKind::Prealloc(regular) => {
            let end = regular.offset + regular.bytes;
            assert!(end <= if packed { regular.ram_bytes } else { regular.disk_bytes });
            assert!(!packed || regular.ram_bytes.max(regular.disk_bytes) <= MAX_COMPRESSED_EXTENT);
            assert!(regular.disk.checked_add(regular.disk_bytes).is_some());
        }
        FileExtentKind::Hole(_) => {}
    }
}
