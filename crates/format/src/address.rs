//! Types for the address and number spaces of the format.
//!
//! 1. A [`Logical`] address has no meaning on a device until the chunk map translates it.
//! 2. A [`Physical`] address is an offset in bytes on one device.
//! 3. A [`TreeId`] names a tree; subvolumes are the trees for which [`TreeId::is_subvolume`].

use std::fmt;

use crate::{FIRST_FREE_OBJECTID, LAST_FREE_OBJECTID};

/// An address in the filesystem's own address space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Logical(pub u64);

/// An offset on a device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical(pub u64);

impl Logical {
    /// The address `bytes` after this one, or `None` if it is past the end of the address space.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }

    /// Returns true if the address is a multiple of `unit` bytes.
    pub fn is_aligned(self, unit: u32) -> bool {
        self.0.is_multiple_of(u64::from(unit))
    }
}

impl fmt::Display for Logical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Physical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a tree: the object id of its ROOT_ITEM and the owner in its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u64);

impl TreeId {
    /// The root tree: roots of all other trees except the chunk and log trees.
    pub const ROOT: Self = Self(1);
    /// The extent tree: allocated extents and their back references.
    pub const EXTENT: Self = Self(2);
    /// The chunk tree: logical to physical.
    pub const CHUNK: Self = Self(3);
    /// The device tree: physical to logical, and device statistics.
    pub const DEV: Self = Self(4);
    /// The top-level subvolume.
    pub const FS: Self = Self(5);
    /// The directory of the root tree that holds "default".
    pub const ROOT_TREE_DIR: Self = Self(6);
    /// The checksum tree.
    pub const CSUM: Self = Self(7);
    /// The quota tree.
    pub const QUOTA: Self = Self(8);
    /// The tree of subvolume UUIDs.
    pub const UUID: Self = Self(9);
    /// The free space tree.
    pub const FREE_SPACE: Self = Self(10);
    /// The block group tree.
    pub const BLOCK_GROUP: Self = Self(11);
    /// The RAID stripe tree.
    pub const RAID_STRIPE: Self = Self(12);
    /// The tree log.
    pub const TREE_LOG: Self = Self(u64::MAX - 5);
    /// Trees of a running relocation.
    pub const TREE_RELOC: Self = Self(u64::MAX - 7);
    /// The tree through which relocation moves data.
    pub const DATA_RELOC: Self = Self(u64::MAX - 8);

    /// Returns true if the tree holds files: the top level, a subvolume or a snapshot.
    pub fn is_subvolume(self) -> bool {
        self == Self::FS || (FIRST_FREE_OBJECTID..=LAST_FREE_OBJECTID).contains(&self.0)
    }

    /// Returns true if snapshots may share blocks of the tree with other trees. The owner of a
    /// shared block may be another subvolume than the one through which it is reached.
    pub fn is_shareable(self) -> bool {
        self.is_subvolume() || self == Self::TREE_RELOC
    }
}

/// The name of the tree as `btrfs inspect-internal dump-tree` prints it.
impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::ROOT => "ROOT_TREE",
            Self::EXTENT => "EXTENT_TREE",
            Self::CHUNK => "CHUNK_TREE",
            Self::DEV => "DEV_TREE",
            Self::FS => "FS_TREE",
            Self::ROOT_TREE_DIR => "ROOT_TREE_DIR",
            Self::CSUM => "CSUM_TREE",
            Self::QUOTA => "QUOTA_TREE",
            Self::UUID => "UUID_TREE",
            Self::FREE_SPACE => "FREE_SPACE_TREE",
            Self::BLOCK_GROUP => "BLOCK_GROUP_TREE",
            Self::RAID_STRIPE => "RAID_STRIPE_TREE",
            Self::TREE_LOG => "TREE_LOG",
            Self::TREE_RELOC => "TREE_RELOC",
            Self::DATA_RELOC => "DATA_RELOC_TREE",
            Self(other) => return other.fmt(f),
        };
        f.write_str(name)
    }
}
