//! The form of checksum items: their keys, their sizes, and where the checksum of a sector is.

use userbtrfs_format::{ItemKind, Key, item_len_max, item_space};

use crate::units::SECTOR;

/// The object id of checksum items (-10).
pub(super) const CSUM_OBJECTID: u64 = u64::MAX - 9;

/// The form of items of checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// The bytes of one checksum.
    pub(crate) size: usize,
    /// The most bytes in one item.
    pub(crate) len_max: usize,
}

impl Form {
    /// Returns the form in tree blocks of `nodesize` bytes.
    pub(crate) fn new(size: usize, nodesize: u32) -> Self {
        let room = item_len_max(nodesize) - item_space(0);
        Self { size, len_max: (room / size - 1) * size }
    }

    /// Returns the end of a run of `len` bytes of checksums from `start` on.
    pub(crate) fn end(&self, start: u64, len: usize) -> u64 {
        start + span(len, self.size)
    }

    /// Returns the index in an item at `start` of the checksum of the sector at `at`.
    pub(crate) fn index(&self, start: u64, at: u64) -> usize {
        index(at - start, self.size)
    }
}

/// Returns the key of the checksums from the sector at `logical` on.
pub(crate) fn key(logical: u64) -> Key {
    Key::new(CSUM_OBJECTID, ItemKind::EXTENT_CSUM, logical)
}

/// Returns the bytes of the sectors that `len` bytes of checksums are for.
pub(super) fn span(len: usize, size: usize) -> u64 {
    (len / size) as u64 * SECTOR
}

/// Returns the index of the checksum of the sector at `offset`.
pub(super) fn index(offset: u64, size: usize) -> usize {
    usize::try_from(offset / SECTOR).expect("checksums are in memory") * size
}
