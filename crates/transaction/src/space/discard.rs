//! Discards freed space on the device.
//!
//! 1. Only the superblock before the durable one led to the discarded space, or none ever did. It
//!    is not free yet: nothing is written there meanwhile.
//! 2. A failure is counted and does no harm: free space may hold anything.

use userbtrfs_format::Logical;
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicU64, Ordering};

use crate::context::TransactionContext;
use crate::space::Pinned;

/// Counters of discards since the filesystem was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    /// Bytes of logical addresses.
    pub bytes: u64,
    /// Ranges that the device did not discard.
    pub failed: u64,
}

/// Discards freed space, if that is enabled.
pub(crate) struct Discarder {
    context: Arc<TransactionContext>,
    bytes: AtomicU64,
    failed: AtomicU64,
}

impl Discarder {
    pub(crate) fn new(context: Arc<TransactionContext>) -> Self {
        Self { context, bytes: AtomicU64::new(0), failed: AtomicU64::new(0) }
    }

    /// Returns the counters of discards.
    pub(crate) fn discards(&self) -> Discards {
        let [bytes, failed] =
            [&self.bytes, &self.failed].map(|count| count.load(Ordering::Relaxed));
        Discards { bytes, failed }
    }

    /// Discards what a durable superblock no longer needs.
    pub(crate) fn discard(&self, pinned: &Pinned) {
        if !self.context.options.discard {
            return;
        }
        let ranges = self.joined(pinned.ranges());
        let chunks = pinned.removed().iter().map(|chunk| (chunk.logical, chunk.len));
        ranges
            .into_iter()
            .chain(chunks)
            .for_each(|(logical, len)| self.discard_range(logical, len));
    }

    /// Discards what was allocated, perhaps written, and never counted.
    pub(crate) fn discard_uncounted(&self, logical: Logical, len: u64) {
        if self.context.options.discard && self.context.check().is_ok() {
            self.discard_range(logical, len);
        }
    }

    fn discard_range(&self, logical: Logical, len: u64) {
        match self.context.volume().discard(logical, len) {
            Ok(()) => self.bytes.fetch_add(len, Ordering::Relaxed),
            Err(_) => self.failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Returns the ranges in the order of their addresses; neighbours in one chunk are joined.
    fn joined(&self, ranges: &[(Logical, u64)]) -> Vec<(Logical, u64)> {
        let mut ranges = ranges.to_vec();
        ranges.sort_unstable();
        let begins_chunk =
            |at| self.context.volume().chunk_of(at).is_ok_and(|chunk| chunk.logical == at);
        ranges.dedup_by(|next, last| {
            let joins = last.0.0 + last.1 == next.0.0 && !begins_chunk(next.0);
            last.1 += if joins { next.1 } else { 0 };
            joins
        });
        ranges
    }
}
