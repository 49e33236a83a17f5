//! Keys, by which the items and pointers of a tree are sorted.
//!
//! 1. Keys compare by object id, then kind, then offset, each as an unsigned number.
//! 2. An unknown kind is kept as its number: keys with unknown kinds can be read.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kind of an item: the middle part of its key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKind(pub u8);

macro_rules! item_kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        impl ItemKind {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name of the kind in the format, or `None` if the kind is unknown.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

item_kinds! {
    /// An inode's attributes.
    INODE_ITEM = 1,
    /// Names of an inode in one directory.
    INODE_REF = 12,
    /// Names of an inode that did not fit in its INODE_REF.
    INODE_EXTREF = 13,
    /// Extended attributes, by hash of their names.
    XATTR_ITEM = 24,
    /// The fs-verity descriptor.
    VERITY_DESC_ITEM = 36,
    /// The fs-verity hashes.
    VERITY_MERKLE_ITEM = 37,
    /// An inode with no links, to be removed.
    ORPHAN_ITEM = 48,
    /// A logged range of directory items (old logs).
    DIR_LOG_ITEM = 60,
    /// A logged range of directory indexes.
    DIR_LOG_INDEX = 72,
    /// Directory entries by hash of their names.
    DIR_ITEM = 84,
    /// Directory entries in the order of their creation.
    DIR_INDEX = 96,
    /// An extent of a file.
    EXTENT_DATA = 108,
    /// Checksums of data.
    EXTENT_CSUM = 128,
    /// The root of a tree.
    ROOT_ITEM = 132,
    /// A reference from a subvolume to the subvolume that contains it.
    ROOT_BACKREF = 144,
    /// A reference from a subvolume to a subvolume that it contains.
    ROOT_REF = 156,
    /// An allocated extent.
    EXTENT_ITEM = 168,
    /// An allocated tree block, with its level in the key.
    METADATA_ITEM = 169,
    /// The subvolume that an extent is accounted to (simple quotas).
    EXTENT_OWNER_REF = 172,
    /// A reference from a tree to a tree block.
    TREE_BLOCK_REF = 176,
    /// A reference from a file of a tree to a data extent.
    EXTENT_DATA_REF = 178,
    /// A reference from a tree block to a tree block.
    SHARED_BLOCK_REF = 182,
    /// A reference from a leaf to a data extent.
    SHARED_DATA_REF = 184,
    /// A block group.
    BLOCK_GROUP_ITEM = 192,
    /// The format and the number of the free space items of a block group.
    FREE_SPACE_INFO = 198,
    /// A free range.
    FREE_SPACE_EXTENT = 199,
    /// A bitmap of free sectors.
    FREE_SPACE_BITMAP = 200,
    /// An allocated range of a device.
    DEV_EXTENT = 204,
    /// A device.
    DEV_ITEM = 216,
    /// A chunk: the mapping of a logical range.
    CHUNK_ITEM = 228,
    /// The physical location of a RAID stripe.
    RAID_STRIPE = 230,
    /// The state of quotas.
    QGROUP_STATUS = 240,
    /// The usage of a quota group.
    QGROUP_INFO = 242,
    /// The limits of a quota group.
    QGROUP_LIMIT = 244,
    /// Membership of quota groups.
    QGROUP_RELATION = 246,
    /// A value that may be dropped at the next mount (balance state).
    TEMPORARY_ITEM = 248,
    /// A value that is kept (device statistics).
    PERSISTENT_ITEM = 249,
    /// The state of a device replacement.
    DEV_REPLACE = 250,
    /// Subvolumes by their UUID.
    UUID_KEY_SUBVOL = 251,
    /// Subvolumes by the UUID they were received from.
    UUID_KEY_RECEIVED_SUBVOL = 252,
    /// A string, for debugging.
    STRING_ITEM = 253,
}

impl fmt::Display for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "UNKNOWN.{}", self.0),
        }
    }
}

impl fmt::Debug for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The key of an item.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The object that the item belongs to: an inode, a tree, an address.
    pub objectid: u64,
    /// The kind of the item.
    pub kind: ItemKind,
    /// Distinguishes items of one object and kind; the meaning depends on the kind.
    pub offset: u64,
}

impl Key {
    /// The smallest key.
    pub const MIN: Self = Self { objectid: 0, kind: ItemKind(0), offset: 0 };
    /// The largest key.
    pub const MAX: Self = Self { objectid: u64::MAX, kind: ItemKind(u8::MAX), offset: u64::MAX };

    /// Creates a key from its parts.
    pub const fn new(objectid: u64, kind: ItemKind, offset: u64) -> Self {
        Self { objectid, kind, offset }
    }

    /// The smallest key after this one, or `None` for [`Key::MAX`].
    pub fn successor(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(kind) = self.kind.0.checked_add(1) {
            return Some(Self { kind: ItemKind(kind), offset: 0, ..self });
        }
        let objectid = self.objectid.checked_add(1)?;
        Some(Self { objectid, kind: ItemKind(0), offset: 0 })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.objectid, self.kind, self.offset)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key as stored on disk: 17 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawKey {
    objectid: U64,
    kind: u8,
    offset: U64,
}

const _: () = assert!(size_of::<RawKey>() == 17);

impl RawKey {
    pub(crate) fn new(key: Key) -> Self {
        Self { objectid: key.objectid.into(), kind: key.kind.0, offset: key.offset.into() }
    }

    pub(crate) fn get(&self) -> Key {
        Key::new(self.objectid.get(), ItemKind(self.kind), self.offset.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_objectid_then_kind_then_offset() {
        let key = |objectid, kind, offset| Key::new(objectid, ItemKind(kind), offset);
        let sorted = [key(1, 1, 9), key(1, 2, 0), key(2, 0, 0), key(2, 0, 1), key(2, 255, 0)];
        assert!(sorted.is_sorted());
    }

    #[test]
    fn the_successor_carries_into_kind_and_objectid() {
        let carried = Key::new(7, ItemKind(3), u64::MAX).successor();
        assert_eq!(carried, Some(Key::new(7, ItemKind(4), 0)));
        let carried = Key::new(7, ItemKind(u8::MAX), u64::MAX).successor();
        assert_eq!(carried, Some(Key::new(8, ItemKind(0), 0)));
        assert_eq!(Key::MAX.successor(), None);
    }
}
