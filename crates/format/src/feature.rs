//! Feature bits, which a reader or writer must understand before it uses the filesystem.
//!
//! 1. A filesystem with an incompat bit outside [`IncompatFlags::READABLE`] or a state in
//!    [`SuperblockFlags::REFUSED`] cannot be opened; the error names it.
//! 2. An unknown compat_ro bit, an incompat bit outside [`IncompatFlags::WRITABLE`] and every other
//!    state of the filesystem but the ordinary one prevent writing only.

use bitflags::bitflags;

use crate::SECTOR_SIZE;
use crate::superblock::{Superblock, SuperblockFlags, flag_names};

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

/// The minimum number of tree blocks of a filesystem, as Linux checks it.
const USED_BLOCKS_MIN: u64 = 6;

/// The first generation at which writing is refused, so that generations never overflow.
const GENERATION_MAX: u64 = u64::MAX >> 1;

impl Superblock {
    /// The names of the features and states that prevent writing. They include those that
    /// [prevent reading](Self::unreadable_features).
    pub fn unwritable_features(&self) -> Vec<String> {
        let mut names = self.unreadable_features();
        let incompat = self.incompat.bits() & IncompatFlags::READABLE.bits();
        let refused = incompat & !IncompatFlags::WRITABLE.bits();
        names.extend(flag_names(&IncompatFlags::from_bits_retain(refused)));
        let unknown = self.compat_ro.bits() & !CompatRoFlags::all().bits();
        let compat_ro = flag_names(&CompatRoFlags::from_bits_retain(unknown));
        names.extend(compat_ro.iter().map(|name| format!("compat-ro {name}")));
        if self.compat_ro.contains(CompatRoFlags::BLOCK_GROUP_TREE) && !self.fits_group_tree() {
            names.push("block-group-tree without free-space-tree and no-holes".to_owned());
        }
        let ordinary =
            SuperblockFlags::REFUSED | SuperblockFlags::WRITTEN | SuperblockFlags::METADUMPS;
        let state = SuperblockFlags::from_bits_retain(self.flags.bits() & !ordinary.bits());
        names.extend(flag_names(&state).iter().map(|name| format!("state {name}")));
        names
    }

    /// Returns true if the features that Linux requires for a block group tree are set.
    fn fits_group_tree(&self) -> bool {
        let free_space = CompatRoFlags::FREE_SPACE_TREE | CompatRoFlags::FREE_SPACE_TREE_VALID;
        self.compat_ro.contains(free_space) && self.incompat.contains(IncompatFlags::NO_HOLES)
    }

    /// The first field whose value prevents writing, and the value.
    pub fn unwritable_field(&self) -> Option<(&'static str, u64)> {
        let used_min = u64::from(self.nodesize) * USED_BLOCKS_MIN;
        let checks = [
            (self.stripesize == SECTOR_SIZE, "stripesize", u64::from(self.stripesize)),
            (self.bytes_used >= used_min, "bytes_used", self.bytes_used),
            (self.generation < GENERATION_MAX, "generation", self.generation),
        ];
        let bad = checks.into_iter().find(|(is_good, ..)| !is_good);
        bad.map(|(_, field, value)| (field, value))
    }
}
