//! Units of file data: sectors, and lengths in memory.

use userbtrfs_format::SECTOR_SIZE;

/// Bytes in a sector.
pub(crate) const SECTOR: u64 = SECTOR_SIZE as u64;

/// Bytes in a sector, as a length in memory.
pub(crate) const SECTOR_LEN: usize = SECTOR_SIZE as usize;

/// Returns the start of the sector of an offset.
pub(crate) fn sector_start(offset: u64) -> u64 {
    offset / SECTOR * SECTOR
}

/// Returns an offset rounded up to a sector boundary; `u64::MAX` if that overflows.
pub(crate) fn sector_end(offset: u64) -> u64 {
    offset.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX)
}

/// Converts a length of data that is in memory, or that its type bounds.
pub(crate) fn to_usize(len: u64) -> usize {
    usize::try_from(len).expect("a length in memory")
}
