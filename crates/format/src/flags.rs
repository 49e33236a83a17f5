//! The flags of the superblock: features, and states of the filesystem.

use bitflags::bitflags;

bitflags! {
    /// Features that a reader must support.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IncompatFlags: u64 {
        /// Extent items hold inline back references.
        const MIXED_BACKREF = 1 << 0;
        /// A default subvolume was set.
        const DEFAULT_SUBVOL = 1 << 1;
        /// Data and metadata share block groups.
        const MIXED_GROUPS = 1 << 2;
        /// LZO was used.
        const COMPRESS_LZO = 1 << 3;
        /// Zstandard was used.
        const COMPRESS_ZSTD = 1 << 4;
        /// Nodes larger than a page.
        const BIG_METADATA = 1 << 5;
        /// INODE_EXTREF items.
        const EXTENDED_IREF = 1 << 6;
        /// RAID5 or RAID6 block groups.
        const RAID56 = 1 << 7;
        /// METADATA_ITEM in place of EXTENT_ITEM for tree blocks.
        const SKINNY_METADATA = 1 << 8;
        /// Holes have no items.
        const NO_HOLES = 1 << 9;
        /// The UUID in tree blocks differs from the filesystem id in the superblock.
        const METADATA_UUID = 1 << 10;
        /// RAID1 with three or four copies.
        const RAID1C34 = 1 << 11;
        /// Zoned devices.
        const ZONED = 1 << 12;
        /// The second version of the extent tree (in development).
        const EXTENT_TREE_V2 = 1 << 13;
        /// The RAID stripe tree.
        const RAID_STRIPE_TREE = 1 << 14;
        /// Simple quotas.
        const SIMPLE_QUOTA = 1 << 16;
    }
}

impl IncompatFlags {
    /// The bits that this crate can read. A RAID bit may stay set after the last block group of
    /// that profile is removed; the chunk map refuses the profiles themselves.
    pub const READABLE: Self = Self::all()
        .difference(Self::ZONED)
        .difference(Self::EXTENT_TREE_V2)
        .difference(Self::RAID_STRIPE_TREE);

    /// The bits that this crate can write. Simple quotas require an owner in each new extent.
    pub const WRITABLE: Self = Self::READABLE.difference(Self::SIMPLE_QUOTA);
}

bitflags! {
    /// Features that only a writer must support.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CompatRoFlags: u64 {
        /// The free space tree exists.
        const FREE_SPACE_TREE = 1 << 0;
        /// The free space tree is valid.
        const FREE_SPACE_TREE_VALID = 1 << 1;
        /// fs-verity was used.
        const VERITY = 1 << 2;
        /// Block group items are stored in a tree of their own.
        const BLOCK_GROUP_TREE = 1 << 3;
    }
}

bitflags! {
    /// Flags of a superblock.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SuperblockFlags: u64 {
        /// The superblock was written.
        const WRITTEN = 1 << 0;
        /// Errors were found.
        const ERROR = 1 << 2;
        /// The device is a seed device.
        const SEEDING = 1 << 32;
        /// A metadata-only dump.
        const METADUMP = 1 << 33;
        /// A metadata-only dump, second version.
        const METADUMP_V2 = 1 << 34;
        /// The filesystem id is being changed.
        const CHANGING_FSID = 1 << 35;
        /// The filesystem id is being changed, second version.
        const CHANGING_FSID_V2 = 1 << 36;
        /// The filesystem is being converted to or from a block group tree.
        const CHANGING_BG_TREE = 1 << 38;
        /// The checksums of data are being changed.
        const CHANGING_DATA_CSUM = 1 << 39;
        /// The checksums of tree blocks are being changed.
        const CHANGING_META_CSUM = 1 << 40;
    }
}

impl SuperblockFlags {
    /// Interrupted conversions.
    pub const REFUSED: Self = Self::CHANGING_FSID
        .union(Self::CHANGING_FSID_V2)
        .union(Self::CHANGING_BG_TREE)
        .union(Self::CHANGING_DATA_CSUM)
        .union(Self::CHANGING_META_CSUM);

    /// Restored metadata dumps. They are read and written like any other filesystem, as in Linux;
    /// reading data that has checksums fails.
    pub const METADUMPS: Self = Self::METADUMP.union(Self::METADUMP_V2);
}

/// The names of the bits that are set; the numbers of unknown ones.
pub(crate) fn flag_names<F: bitflags::Flags<Bits = u64>>(flags: &F) -> Vec<String> {
    let mut names: Vec<String> =
        flags.iter_names().map(|(name, _)| name.to_ascii_lowercase().replace('_', "-")).collect();
    let unknown = flags.bits() & !F::all().bits();
    names
        .extend((0..u64::BITS).filter(|bit| unknown & (1 << bit) != 0).map(|b| format!("bit {b}")));
    names
}
