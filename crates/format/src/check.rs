//! Checks of the content of items.
//!
//! 1. Each known kind has its check; items of unknown kinds are accepted unread.
//! 2. A check reads the item, its key, and the item before it in the same leaf. Conditions that
//!    involve other blocks are checked by the code that reads those blocks.
//! 3. No generation in a block is newer than the block.

use std::ops::RangeInclusive;

use userbtrfs_codec::hash::{extref_hash, name_hash};

use crate::geometry::Geometry;
use crate::item::Item;
use crate::{
    BlockGroupItem, Chunk, DevReplaceItem, DevStats, DeviceExtent, DeviceItem, DirEntryKind,
    ExtentItem, FIRST_FREE_OBJECTID, FileExtent, FreeSpaceInfo, InodeItem, ItemError, ItemKind,
    Key, KeyedRef, LAST_FREE_OBJECTID, MetadataLevel, ORPHAN_OBJECTID, QgroupInfo, QgroupLimit,
    QgroupStatus, RootItem, RootRef, SECTOR_SIZE, TreeId, V1SpaceCache, csum_count, dir_entries,
    inode_extrefs, inode_refs, uuid_subvolumes,
};

/// The object id of checksum items (-10).
const EXTENT_CSUM_OBJECTID: u64 = u64::MAX - 9;

/// The object id of device items.
const DEV_ITEMS_OBJECTID: u64 = 1;

/// The index of a directory's first entry: 0 and 1 stand for `.` and `..`.
const FIRST_INDEX: u64 = 2;

/// The object ids that a file may have.
const FILES: RangeInclusive<u64> = FIRST_FREE_OBJECTID..=LAST_FREE_OBJECTID;

/// The properties of a leaf that the checks of its items need.
pub(crate) struct Context<'a> {
    /// The transaction that wrote the leaf.
    pub(crate) newest: u64,
    pub(crate) geometry: &'a Geometry,
}

impl Context<'_> {
    /// Checks an item; `before` is the item before it in the leaf.
    pub(crate) fn check(
        &self,
        item: &Item<'_>,
        before: Option<&Item<'_>>,
    ) -> Result<(), ItemError> {
        let key = item.key;
        let data = item.data;
        match key.kind {
            ItemKind::INODE_ITEM => self.inode(key, data),
            ItemKind::INODE_REF => refs(key, data),
            ItemKind::INODE_EXTREF => extrefs(key, data),
            ItemKind::DIR_ITEM | ItemKind::XATTR_ITEM => hashed_entries(key, data),
            ItemKind::DIR_INDEX => index_entry(key, data),
            ItemKind::EXTENT_DATA => file_extent(item, before),
            ItemKind::EXTENT_CSUM => self.checksums(item, before),
            ItemKind::ROOT_ITEM => self.root(key, data),
            ItemKind::ROOT_REF | ItemKind::ROOT_BACKREF => RootRef::parse(data).map(drop),
            ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM => self.extent(item, before),
            ItemKind::TREE_BLOCK_REF
            | ItemKind::SHARED_BLOCK_REF
            | ItemKind::EXTENT_DATA_REF
            | ItemKind::SHARED_DATA_REF => KeyedRef::parse(key.kind, data).map(drop),
            ItemKind::CHUNK_ITEM => Chunk::parse(key, data).map(drop),
            ItemKind::DEV_ITEM => device(key, data),
            ItemKind::DEV_EXTENT => device_extent(item, before),
            ItemKind::BLOCK_GROUP_ITEM => block_group(item, before),
            ItemKind::FREE_SPACE_INFO
            | ItemKind::FREE_SPACE_EXTENT
            | ItemKind::FREE_SPACE_BITMAP => free_space(key, data),
            _ => rare(key, data),
        }
    }

    fn not_newer(&self, field: &'static str, value: u64) -> Result<(), ItemError> {
        if value <= self.newest {
            Ok(())
        } else {
            Err(ItemError::Future { field, value, limit: self.newest })
        }
    }

    fn inode(&self, key: Key, data: &[u8]) -> Result<(), ItemError> {
        if key.offset != 0 {
            return Err(ItemError::KeyOffset(key.offset));
        }
        let inode = InodeItem::parse(data)?;
        self.not_newer("inode generation", inode.generation)?;
        self.not_newer("inode transaction", inode.transid)
    }

    fn root(&self, key: Key, data: &[u8]) -> Result<(), ItemError> {
        if key.objectid == 0 {
            return Err(ItemError::ObjectId(0));
        }
        let root = RootItem::parse(data)?;
        self.not_newer("root generation", root.generation)?;
        self.not_newer("last snapshot", root.last_snapshot)
    }

    fn checksums(&self, item: &Item<'_>, before: Option<&Item<'_>>) -> Result<(), ItemError> {
        if item.key.objectid != EXTENT_CSUM_OBJECTID {
            return Err(ItemError::ObjectId(item.key.objectid));
        }
        aligned("checksum range", item.key.offset)?;
        let size = self.geometry.checksum_kind.size();
        let end = |item: &Item<'_>| {
            let sectors = u64::try_from(csum_count(item.data.len(), size)?).expect("small");
            let len = sectors.saturating_mul(u64::from(SECTOR_SIZE));
            range_end("checksum range", item.key.offset, len)
        };
        end(item)?;
        match before.filter(|before| before.key.kind == ItemKind::EXTENT_CSUM) {
            Some(before) => not_before(item.key.offset, end(before)?),
            None => Ok(()),
        }
    }

    fn extent(&self, item: &Item<'_>, before: Option<&Item<'_>>) -> Result<(), ItemError> {
        let key = item.key;
        aligned("extent address", key.objectid)?;
        if key.kind == ItemKind::EXTENT_ITEM {
            aligned("extent length", key.offset)?;
        }
        let extent = ExtentItem::parse(key, item.data)?;
        self.not_newer("extent generation", extent.generation)?;
        let is_block = matches!(extent.level, MetadataLevel::InItem(..));
        if is_block && key.offset != u64::from(self.geometry.nodesize) {
            return Err(ItemError::KeyOffset(key.offset));
        }
        let end = |key: Key| match key.kind {
            ItemKind::METADATA_ITEM => {
                range_end("extent", key.objectid, u64::from(self.geometry.nodesize))
            }
            _ => range_end("extent", key.objectid, key.offset),
        };
        end(key)?;
        let is_extent =
            |key: Key| matches!(key.kind, ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM);
        match before.filter(|before| is_extent(before.key)) {
            Some(before) => not_before(key.objectid, end(before.key)?),
            None => Ok(()),
        }
    }
}

fn aligned(field: &'static str, value: u64) -> Result<(), ItemError> {
    if value.is_multiple_of(u64::from(SECTOR_SIZE)) {
        Ok(())
    } else {
        Err(ItemError::Unaligned { field, value })
    }
}

fn range_end(field: &'static str, start: u64, len: u64) -> Result<u64, ItemError> {
    start.checked_add(len).ok_or(ItemError::Overflow { field, start, len })
}

fn not_before(start: u64, end_before: u64) -> Result<(), ItemError> {
    if start >= end_before { Ok(()) } else { Err(ItemError::Overlap(end_before)) }
}

fn not_empty(data: &[u8]) -> Result<(), ItemError> {
    if data.is_empty() { Err(ItemError::Size(0)) } else { Ok(()) }
}

fn refs(key: Key, data: &[u8]) -> Result<(), ItemError> {
    not_empty(data)?;
    inode_refs(key.offset, data).try_for_each(|name| name.map(drop))
}

fn extrefs(key: Key, data: &[u8]) -> Result<(), ItemError> {
    not_empty(data)?;
    inode_extrefs(data).try_for_each(|name| {
        let name = name?;
        let found = extref_hash(name.parent, name.name);
        hash_agrees(key.offset, found)
    })
}

fn hash_agrees(expected: u64, found: u64) -> Result<(), ItemError> {
    if found == expected { Ok(()) } else { Err(ItemError::NameHash { expected, found }) }
}

fn hashed_entries(key: Key, data: &[u8]) -> Result<(), ItemError> {
    not_empty(data)?;
    dir_entries(data).try_for_each(|entry| {
        let entry = entry?;
        entry_kind(key.kind, &entry)?;
        hash_agrees(key.offset, u64::from(name_hash(entry.name)))
    })
}

fn index_entry(key: Key, data: &[u8]) -> Result<(), ItemError> {
    if key.offset < FIRST_INDEX {
        return Err(ItemError::KeyOffset(key.offset));
    }
    let mut entries = dir_entries(data);
    let entry = entries.next().ok_or(ItemError::Size(0))??;
    entry_kind(key.kind, &entry)?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(ItemError::Trailing(data.len())),
    }
}

fn entry_kind(kind: ItemKind, entry: &crate::DirEntry<'_>) -> Result<(), ItemError> {
    let xattr = kind == ItemKind::XATTR_ITEM;
    if xattr != (entry.kind == DirEntryKind::Xattr) {
        return Err(ItemError::EntryKind(entry.kind.to_disk()));
    }
    if xattr {
        return Ok(());
    }
    if !entry.data.is_empty() {
        return Err(ItemError::Trailing(entry.data.len()));
    }
    let target = entry.target;
    match target.kind {
        ItemKind::INODE_ITEM if target.offset == 0 && FILES.contains(&target.objectid) => Ok(()),
        ItemKind::ROOT_ITEM if !TreeId(target.objectid).is_subvolume() => {
            Err(ItemError::EntryTarget(target))
        }
        ItemKind::ROOT_ITEM if entry.kind != DirEntryKind::Directory => {
            Err(ItemError::EntryKind(entry.kind.to_disk()))
        }
        ItemKind::ROOT_ITEM => Ok(()),
        _ => Err(ItemError::EntryTarget(target)),
    }
}

fn file_extent(item: &Item<'_>, before: Option<&Item<'_>>) -> Result<(), ItemError> {
    let extent = FileExtent::parse(item.key.offset, item.data)?;
    range_end("file range", item.key.offset, extent.file_bytes())?;
    let same_file = |before: &&Item<'_>| {
        before.key.kind == ItemKind::EXTENT_DATA && before.key.objectid == item.key.objectid
    };
    let Some(before) = before.filter(same_file) else { return Ok(()) };
    let length = FileExtent::parse(before.key.offset, before.data)?.file_bytes();
    not_before(item.key.offset, range_end("file range", before.key.offset, length)?)
}

fn device(key: Key, data: &[u8]) -> Result<(), ItemError> {
    if key.objectid != DEV_ITEMS_OBJECTID {
        return Err(ItemError::ObjectId(key.objectid));
    }
    if DeviceItem::parse(data)?.id == key.offset {
        Ok(())
    } else {
        Err(ItemError::KeyOffset(key.offset))
    }
}

fn device_extent(item: &Item<'_>, before: Option<&Item<'_>>) -> Result<(), ItemError> {
    aligned("device range", item.key.offset)?;
    let extent = DeviceExtent::parse(item.data)?;
    range_end("device range", item.key.offset, extent.len)?;
    let same_device = |before: &&Item<'_>| {
        before.key.kind == ItemKind::DEV_EXTENT && before.key.objectid == item.key.objectid
    };
    let Some(before) = before.filter(same_device) else { return Ok(()) };
    let length = DeviceExtent::parse(before.data)?.len;
    not_before(item.key.offset, range_end("device range", before.key.offset, length)?)
}

fn block_group(item: &Item<'_>, before: Option<&Item<'_>>) -> Result<(), ItemError> {
    let key = item.key;
    BlockGroupItem::parse(key.offset, item.data)?;
    range_end("block group", key.objectid, key.offset)?;
    match before.filter(|before| before.key.kind == ItemKind::BLOCK_GROUP_ITEM) {
        Some(b) => {
            not_before(key.objectid, range_end("block group", b.key.objectid, b.key.offset)?)
        }
        None => Ok(()),
    }
}

fn free_space(key: Key, data: &[u8]) -> Result<(), ItemError> {
    aligned("free space", key.objectid)?;
    aligned("free space length", key.offset)?;
    range_end("free space", key.objectid, key.offset)?;
    match key.kind {
        ItemKind::FREE_SPACE_INFO => FreeSpaceInfo::parse(data).map(drop),
        ItemKind::FREE_SPACE_EXTENT if data.is_empty() => Ok(()),
        ItemKind::FREE_SPACE_BITMAP => {
            let bits = key.offset.checked_div(u64::from(SECTOR_SIZE)).expect("not 0");
            let fits = u64::try_from(data.len()).is_ok_and(|len| len == bits.div_ceil(8));
            fits.then_some(()).ok_or(ItemError::Size(data.len()))
        }
        _ => Err(ItemError::Size(data.len())),
    }
}

/// Checks items of rare kinds.
fn rare(key: Key, data: &[u8]) -> Result<(), ItemError> {
    match key.kind {
        ItemKind::QGROUP_INFO => QgroupInfo::parse(data).map(drop),
        ItemKind::QGROUP_LIMIT => QgroupLimit::parse(data).map(drop),
        ItemKind::QGROUP_STATUS => QgroupStatus::parse(data).map(drop),
        ItemKind::DEV_REPLACE => DevReplaceItem::parse(data).map(drop),
        ItemKind::UUID_KEY_SUBVOL | ItemKind::UUID_KEY_RECEIVED_SUBVOL => {
            uuid_subvolumes(data).map(drop)
        }
        ItemKind::PERSISTENT_ITEM if key.objectid == 0 => DevStats::parse(data).map(drop),
        ItemKind(0) if key.objectid == V1SpaceCache::OBJECTID => {
            V1SpaceCache::parse(data).map(drop)
        }
        ItemKind::ORPHAN_ITEM if key.objectid != ORPHAN_OBJECTID => {
            Err(ItemError::ObjectId(key.objectid))
        }
        ItemKind::ORPHAN_ITEM | ItemKind::QGROUP_RELATION if !data.is_empty() => {
            Err(ItemError::Size(data.len()))
        }
        _ => Ok(()),
    }
}
