//! The names under which dumps show objects, kinds and flags.
//!
//! They are those of btrfs-progs 6.2, and names in the same style for newer items.

use userbtrfs_format::{BlockGroupFlags, ItemKind, Key, TreeId, V1SpaceCache};

use super::flags::Flags;

/// Returns the name of an object id, if it is a tree or another fixed object, or the number.
pub(super) fn object_name(objectid: u64) -> String {
    let name = match objectid {
        u64::MAX => "-1",
        0xffff_ffff_ffff_fffc => "BALANCE",
        0xffff_ffff_ffff_fffb => "ORPHAN",
        0xffff_ffff_ffff_fff9 => "LOG_FIXUP",
        0xffff_ffff_ffff_fff6 => "EXTENT_CSUM",
        V1SpaceCache::OBJECTID => "FREE_SPACE",
        0xffff_ffff_ffff_fff4 => "FREE_INO",
        0xffff_ffff_ffff_ff01 => "MULTIPLE",
        tree => return TreeId(tree).to_string(),
    };
    name.to_owned()
}

/// Returns the kind of a key; that of the v1 space cache is recognized by its object id.
pub(super) fn kind_name(key: Key) -> String {
    match key {
        Key { objectid: V1SpaceCache::OBJECTID, kind: ItemKind(0), .. } => "UNTYPED".to_owned(),
        Key { kind, .. } => kind.to_string(),
    }
}

/// Returns a key in parentheses; the meaning of its numbers depends on the kind.
pub(super) fn key_text(key: Key) -> String {
    format!("({} {} {})", key_object(key), kind_name(key), key_offset(key))
}

/// Returns the object id of a key.
pub(super) fn key_object(key: Key) -> String {
    match (key.kind, key.objectid) {
        (ItemKind::QGROUP_RELATION, qgroup) => qgroup_text(qgroup),
        (ItemKind::UUID_KEY_SUBVOL | ItemKind::UUID_KEY_RECEIVED_SUBVOL, half) => uuid_half(half),
        (ItemKind::PERSISTENT_ITEM, 0) => "DEV_STATS".to_owned(),
        (ItemKind::PERSISTENT_ITEM | ItemKind::DEV_EXTENT, number) => number.to_string(),
        (ItemKind::DEV_ITEM, 1) => "DEV_ITEMS".to_owned(),
        (ItemKind::CHUNK_ITEM, 256) => "FIRST_CHUNK_TREE".to_owned(),
        (_, object) => object_name(object),
    }
}

fn key_offset(key: Key) -> String {
    match (key.kind, key.offset) {
        (ItemKind::QGROUP_RELATION | ItemKind::QGROUP_INFO | ItemKind::QGROUP_LIMIT, qgroup) => {
            qgroup_text(qgroup)
        }
        (ItemKind::UUID_KEY_SUBVOL | ItemKind::UUID_KEY_RECEIVED_SUBVOL, half) => uuid_half(half),
        (ItemKind::ROOT_ITEM, tree) if TreeId(key.objectid) == TreeId::TREE_RELOC => {
            object_name(tree)
        }
        (ItemKind::ROOT_ITEM, number) => number.to_string(),
        (_, u64::MAX) => "-1".to_owned(),
        (_, number) => number.to_string(),
    }
}

/// Returns a quota group: its level is in the upper 16 bits, its number in the others.
fn qgroup_text(qgroup: u64) -> String {
    format!("{}/{}", qgroup >> 48, qgroup & 0xffff_ffff_ffff)
}

fn uuid_half(half: u64) -> String {
    format!("{half:#018x}")
}

/// Returns the name of a tree in its heading.
pub(super) fn tree_heading(tree: TreeId) -> &'static str {
    match tree {
        TreeId::EXTENT => "extent",
        TreeId::DEV => "device",
        TreeId::FS => "fs",
        TreeId::CSUM => "checksum",
        TreeId::QUOTA => "quota",
        TreeId::UUID => "uuid",
        TreeId::FREE_SPACE => "free space",
        TreeId::BLOCK_GROUP => "block group",
        TreeId::RAID_STRIPE => "raid stripe",
        TreeId::TREE_LOG => "log",
        TreeId::TREE_RELOC => "reloc",
        TreeId::DATA_RELOC => "data reloc",
        TreeId(0xffff_ffff_ffff_ff01) => "multiple",
        _ => "file",
    }
}

/// Flags of a root.
pub(super) const ROOT: &[(u64, &str)] = &[(1 << 0, "RDONLY"), (1 << 48, "DEAD")];

/// Flags of the quota status, except the first, which is set if quotas are on.
pub(super) const QGROUP_STATUS: &[(u64, &str)] =
    &[(1 << 1, "SCANNING"), (1 << 2, "INCONSISTENT"), (QGROUP_SIMPLE, "SIMPLE_MODE")];

/// The flag of simple quotas, which charge an extent to the subvolume that allocated it.
pub(super) const QGROUP_SIMPLE: u64 = 1 << 3;

/// Types of a block group.
const BLOCK_GROUP: &[(u64, &str)] = &[
    (BlockGroupFlags::DATA.bits(), "DATA"),
    (BlockGroupFlags::METADATA.bits(), "METADATA"),
    (BlockGroupFlags::SYSTEM.bits(), "SYSTEM"),
];

/// Returns the type and profile of a block group or chunk.
pub(super) fn block_group(flags: BlockGroupFlags) -> Flags {
    let mut shown = Flags::new(flags.bits(), BLOCK_GROUP);
    shown.names.extend(flags.profile().map(userbtrfs_format::Profile::name));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(objectid: u64, kind: ItemKind, offset: u64) -> String {
        key_text(Key::new(objectid, kind, offset))
    }

    #[test]
    fn key_numbers_are_shown_by_kind() {
        assert_eq!(shown(1, ItemKind::DEV_ITEM, 1), "(DEV_ITEMS DEV_ITEM 1)");
        assert_eq!(shown(1, ItemKind::DEV_EXTENT, 1), "(1 DEV_EXTENT 1)");
        assert_eq!(shown(1, ItemKind::INODE_ITEM, 0), "(ROOT_TREE INODE_ITEM 0)");
        assert_eq!(shown(0, ItemKind::PERSISTENT_ITEM, 1), "(DEV_STATS PERSISTENT_ITEM 1)");
        assert_eq!(shown(0, ItemKind::QGROUP_INFO, (1 << 48) + 100), "(0 QGROUP_INFO 1/100)");
        assert_eq!(shown(257, ItemKind::QGROUP_RELATION, 5), "(0/257 QGROUP_RELATION 0/5)");
        let uuid = "(0x0000000000000001 UUID_KEY_SUBVOL 0xffffffffffffffff)";
        assert_eq!(shown(1, ItemKind::UUID_KEY_SUBVOL, u64::MAX), uuid);
        assert_eq!(shown(u64::MAX - 10, ItemKind(0), 7), "(FREE_SPACE UNTYPED 7)");
        assert_eq!(shown(0, ItemKind(0), 7), "(0 UNKNOWN.0 7)");
    }

    #[test]
    fn last_offset_is_minus_one_except_in_root_items() {
        assert_eq!(shown(256, ItemKind::DIR_ITEM, u64::MAX), "(256 DIR_ITEM -1)");
        let root = format!("(256 ROOT_ITEM {})", u64::MAX);
        assert_eq!(shown(256, ItemKind::ROOT_ITEM, u64::MAX), root);
        assert_eq!(shown(u64::MAX - 7, ItemKind::ROOT_ITEM, 5), "(TREE_RELOC ROOT_ITEM FS_TREE)");
    }
}
