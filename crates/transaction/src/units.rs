//! Units and reasons that the modules of this crate share.

use userbtrfs_format::SECTOR_SIZE;

/// The bytes of a sector, as they are counted in addresses.
pub(crate) const SECTOR: u64 = SECTOR_SIZE as u64;

/// The reason why an item that a tree returns can be parsed.
pub(crate) const VERIFIED: &str = "verified with its block";
