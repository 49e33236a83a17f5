//! The content of items, by kind.
//!
//! 1. An item of an unknown kind, or without content to show, has no lines of its own; its size is
//!    in the line above.
//! 2. Content that does not parse is an error, and the record keeps what was described so far.

mod device;
mod directory;
mod extent;
mod file_extent;
mod quota;
mod root;
mod space;

pub(super) use device::chunk;

use userbtrfs_format::{Geometry, Item, ItemKind, V1SpaceCache};

use super::record::{Described, Record};

/// Describes the content of an item of a filesystem of this geometry.
pub(super) fn describe(record: &mut Record, item: &Item<'_>, geometry: &Geometry) -> Described {
    let key = item.key;
    let data = item.data;
    match key.kind {
        ItemKind::INODE_ITEM => directory::inode(record, data),
        ItemKind::INODE_REF => directory::refs(record, key.offset, data),
        ItemKind::INODE_EXTREF => directory::extrefs(record, data),
        ItemKind::DIR_ITEM | ItemKind::DIR_INDEX | ItemKind::XATTR_ITEM => {
            directory::entries(record, data)
        }
        ItemKind::DIR_LOG_ITEM | ItemKind::DIR_LOG_INDEX => directory::log_range(record, data),
        ItemKind::EXTENT_DATA => file_extent::describe(record, key.offset, data),
        ItemKind::EXTENT_CSUM => space::checksums(record, item, geometry.checksum_kind),
        ItemKind::ROOT_ITEM => root::root(record, data),
        ItemKind::ROOT_REF => root::reference(record, "root ref", data),
        ItemKind::ROOT_BACKREF => root::reference(record, "root backref", data),
        ItemKind::UUID_KEY_SUBVOL | ItemKind::UUID_KEY_RECEIVED_SUBVOL => {
            root::uuid(record, key, data)
        }
        ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM => extent::extent(record, key, data),
        ItemKind::TREE_BLOCK_REF
        | ItemKind::SHARED_BLOCK_REF
        | ItemKind::EXTENT_DATA_REF
        | ItemKind::SHARED_DATA_REF => extent::keyed(record, key.kind, data),
        ItemKind::BLOCK_GROUP_ITEM => space::block_group(record, key.offset, data),
        ItemKind::FREE_SPACE_INFO => space::free_space_info(record, data),
        _ => describe_rare(record, item),
    }
}

/// Describes an item of a kind that is rare in a filesystem.
fn describe_rare(record: &mut Record, item: &Item<'_>) -> Described {
    let key = item.key;
    let data = item.data;
    match key.kind {
        ItemKind::CHUNK_ITEM => device::chunk_item(record, key, data),
        ItemKind::DEV_ITEM => device::device(record, data),
        ItemKind::DEV_EXTENT => device::extent(record, data),
        ItemKind::DEV_REPLACE => device::replace(record, data),
        ItemKind::PERSISTENT_ITEM => device::persistent(record, key, data),
        ItemKind::TEMPORARY_ITEM => device::temporary(record, key, data),
        ItemKind::QGROUP_STATUS => quota::status(record, data),
        ItemKind::QGROUP_INFO => quota::info(record, data),
        ItemKind::QGROUP_LIMIT => quota::limit(record, data),
        ItemKind::STRING_ITEM => {
            record.line().bytes("item data", "data", data);
            Ok(())
        }
        ItemKind(0) if key.objectid == V1SpaceCache::OBJECTID => space::v1_cache(record, data),
        kind => {
            named(kind).map(|name| record.line().words(name));
            Ok(())
        }
    }
}

/// Returns the name of a kind whose items have no content, or none that is shown.
fn named(kind: ItemKind) -> Option<&'static str> {
    match kind {
        ItemKind::ORPHAN_ITEM => Some("orphan item"),
        ItemKind::FREE_SPACE_EXTENT => Some("free space extent"),
        ItemKind::FREE_SPACE_BITMAP => Some("free space bitmap"),
        _ => None,
    }
}
