//! A cache block: a few consecutive sectors of a file in one buffer, with state bits for each
//! sector.
//!
//! 1. A sector that is dirty or writing is valid.
//! 2. A buffer with another holder (a write in flight, a slice that was handed out) is never
//!    changed: the block gets a copy of its own.

use std::ops::Range;

use userbtrfs_device::{Buffer, Slice};
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};

use crate::units::SECTOR_LEN;

/// The most sectors in a block: each has one bit in a mask.
pub(in crate::data) const SECTORS_MAX: u32 = u32::BITS;

/// A few consecutive sectors of a file in one buffer, with state bits for each sector.
pub(in crate::data) struct CacheBlock {
    /// At least as long as the block.
    buffer: Arc<Buffer>,
    /// The number of sectors that fit.
    pub(in crate::data) len: u32,
    /// Sectors that hold the data of the file.
    pub(in crate::data) valid: u32,
    /// Sectors that are newer than on disk.
    pub(in crate::data) dirty: u32,
    /// Sectors that are being written to disk.
    pub(in crate::data) writing: u32,
    /// Whether the block was accessed since it was last looked at for eviction. A hint: readers set
    /// it under a shared lock.
    asked_for: AtomicBool,
    /// Whether the block is in the eviction list.
    pub(in crate::data) listed: bool,
    /// Distinguishes this block from earlier and later ones at the same position.
    pub(in crate::data) ticket: u64,
}

impl CacheBlock {
    /// Returns a block of `len` sectors, none of them valid.
    pub(in crate::data) fn new(buffer: Arc<Buffer>, len: u32, ticket: u64) -> Self {
        assert!((1..=SECTORS_MAX).contains(&len) && buffer.len() >= bytes(len), "room for it");
        Self {
            buffer,
            len,
            valid: 0,
            dirty: 0,
            writing: 0,
            asked_for: AtomicBool::new(false),
            listed: false,
            ticket,
        }
    }

    /// Returns the sectors that are dirty or under writeback.
    pub(in crate::data) fn unfinished(&self) -> u32 {
        self.dirty | self.writing
    }

    /// Returns true if the block uses this buffer.
    pub(in crate::data) fn shares(&self, buffer: &Arc<Buffer>) -> bool {
        Arc::ptr_eq(&self.buffer, buffer)
    }

    /// Returns true if the buffer has another holder.
    pub(in crate::data) fn in_use(&self) -> bool {
        Arc::strong_count(&self.buffer) > 1
    }

    /// Marks the block as accessed. Does not write the mark again if it is set, which would take
    /// the cache line from other processors.
    pub(in crate::data) fn ask(&self) {
        if !self.asked_for.load(Ordering::Relaxed) {
            self.asked_for.store(true, Ordering::Relaxed);
        }
    }

    /// Clears the accessed mark; returns true if it was set.
    pub(in crate::data) fn take_asked(&self) -> bool {
        self.asked_for.swap(false, Ordering::Relaxed)
    }

    /// Returns bytes of the block.
    pub(in crate::data) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Returns sectors of the block as a shared slice.
    pub(in crate::data) fn slice(&self, sectors: Range<u32>) -> Slice {
        Slice::new(Arc::clone(&self.buffer), bytes(sectors.start)..bytes(sectors.end))
    }

    /// Returns the bytes of the block for changing those in `changed`, whose old values are
    /// unspecified.
    pub(in crate::data) fn bytes_mut(&mut self, changed: Range<usize>) -> &mut [u8] {
        let len = bytes(self.len);
        if Arc::get_mut(&mut self.buffer).is_none() {
            self.replace(self.len, changed);
        }
        &mut Arc::get_mut(&mut self.buffer).expect("it is the only holder")[..len]
    }

    /// Enlarges the block to `len` sectors.
    pub(in crate::data) fn grow(&mut self, len: u32) {
        assert!((self.len + 1..=SECTORS_MAX).contains(&len), "it grows, within bounds");
        self.replace(len, 0..0);
    }

    /// Replaces the buffer by one of its own, with the old bytes except those in `changed`.
    fn replace(&mut self, len: u32, changed: Range<usize>) {
        let mut buffer = Buffer::unspecified(bytes(len));
        for kept in [0..changed.start, changed.end..bytes(self.len)] {
            buffer[kept.clone()].copy_from_slice(&self.buffer[kept]);
        }
        (self.buffer, self.len) = (Arc::new(buffer), len);
    }
}

/// Returns the length of `sectors` sectors in bytes.
pub(in crate::data) fn bytes(sectors: u32) -> usize {
    sectors as usize * SECTOR_LEN
}

/// Returns a mask with the bits of these sectors set.
pub(in crate::data) fn mask(sectors: Range<u32>) -> u32 {
    let up_to = |end: u32| 1_u32.checked_shl(end).map_or(u32::MAX, |bit| bit - 1);
    up_to(sectors.end) & !up_to(sectors.start)
}

/// Returns the maximal runs of set bits, ascending.
pub(in crate::data) fn runs(mut bits: u32) -> impl Iterator<Item = Range<u32>> {
    std::iter::from_fn(move || {
        let start = bits.trailing_zeros();
        let end = start + bits.checked_shr(start)?.trailing_ones();
        bits &= !mask(0..end);
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_runs_reach_to_both_ends() {
        assert_eq!([mask(0..0), mask(0..32), mask(31..32)], [0, u32::MAX, 1 << 31]);
        assert_eq!(runs(0).count(), 0);
        assert!(runs(u32::MAX).eq(std::iter::once(0..32)));
        assert_eq!(runs(0b1000_0110 << 24).collect::<Vec<_>>(), [25..27, 31..32]);
    }

    #[test]
    fn shared_slice_does_not_see_later_changes() {
        let mut block = CacheBlock::new(Arc::new(Buffer::zeroed(2 * SECTOR_LEN)), 2, 0);
        let slice = block.slice(1..2);
        block.bytes_mut(0..SECTOR_LEN)[..SECTOR_LEN].fill(1);
        block.bytes_mut(SECTOR_LEN..SECTOR_LEN + 1)[SECTOR_LEN] = 2;
        assert!(slice.iter().all(|&byte| byte == 0));
        assert_eq!((block.slice(0..1)[9], block.slice(1..2)[0], block.slice(1..2)[1]), (1, 2, 0));
        block.grow(5);
        assert_eq!((block.slice(0..1)[9], block.slice(1..2)[0]), (1, 2));
    }
}
