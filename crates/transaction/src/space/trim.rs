//! Discards all free space on request (FITRIM).
//!
//! 1. A range is discarded with the lock of the block groups held, so that nothing is allocated in
//!    it meanwhile, and nothing that is reserved is missing. One piece at a time: allocations wait
//!    for one, and never for all.
//! 2. Pinned space is not free: a durable superblock may still lead to it.

use std::ops::Range;

use userbtrfs_format::Logical;

use super::{Space, SpaceKind};
use crate::error::Result;
use crate::roots::TreeRoots;

/// The most bytes that are discarded with the lock held.
const PIECE_MAX: u64 = 32 << 20;

impl Space {
    /// Discards the free ranges of at least `len_min` bytes that lie in `range`, which counts
    /// logical addresses, and all space of the device that no chunk takes. Returns the number of
    /// bytes, as they are addressed.
    ///
    /// The caller holds no lock and is in no transaction.
    pub(crate) fn trim(
        &self,
        tree_roots: &TreeRoots,
        range: &Range<u64>,
        len_min: u64,
    ) -> Result<u64> {
        for kind in [SpaceKind::System, SpaceKind::Metadata, SpaceKind::Data] {
            while self.load_next(tree_roots, kind)? {}
        }
        let mut bytes = 0;
        let mut at = range.start;
        while let Some(len) = self.trim_next(&mut at, range.end, len_min)? {
            bytes += len;
        }
        let mut at = 0;
        while let Some(len) = self.trim_unallocated(&mut at, len_min)? {
            bytes += len;
        }
        Ok(bytes)
    }

    /// Discards the first piece of a free range from `at` on, and moves `at` behind it.
    fn trim_next(&self, at: &mut u64, end: u64, len_min: u64) -> Result<Option<u64>> {
        let block_groups = self.block_groups.lock();
        let Some(piece) = block_groups.next_free(*at, end, len_min) else { return Ok(None) };
        let len = (piece.end - piece.start).min(PIECE_MAX);
        self.volume.discard(Logical(piece.start), len)?;
        *at = piece.start + len;
        Ok(Some(len))
    }

    fn trim_unallocated(&self, at: &mut u64, len_min: u64) -> Result<Option<u64>> {
        let block_groups = self.block_groups.lock();
        let Some(piece) = block_groups.next_unallocated(*at, len_min) else { return Ok(None) };
        let len = (piece.end - piece.start).min(PIECE_MAX);
        self.volume.discard_unallocated(piece.start, len)?;
        *at = piece.start + len;
        Ok(Some(len))
    }
}
