//! Feature bits, which a reader or writer must understand before it uses the filesystem.
//!
//! 1. A filesystem with an incompat bit outside [`IncompatFlags::READABLE`] or a state in
//!    [`SuperblockFlags::REFUSED`] cannot be opened; the error names it.
//! 2. An unknown compat_ro bit, an incompat bit outside [`IncompatFlags::WRITABLE`] and every other
//!    state of the filesystem but the ordinary one prevent writing only.

use crate::flags::{CompatRoFlags, IncompatFlags, SuperblockFlags, flag_names};
use crate::{SECTOR_SIZE, Superblock};

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
