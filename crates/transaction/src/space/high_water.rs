//! High-water marks of quantities that must be bounded: for the tests of these bounds.
//!
//! 1. A transaction can be closed only without open handles: so the changes under one of them bound
//!    how long a commit waits, and the bytes reserved at a time how much of the space is held for
//!    it.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

/// The high-water marks of one filesystem.
#[derive(Debug, Default)]
pub(crate) struct HighWater {
    changed: AtomicU64,
    reserved: AtomicU64,
}

/// The high-water marks since the last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighWaterRise {
    /// The most items of trees that were changed under one handle.
    pub items_changed: u64,
    /// The most bytes of metadata that were reserved at once.
    pub bytes_reserved: u64,
}

impl HighWater {
    /// Records that `items` items were changed under one handle.
    pub(crate) fn changed(&self, items: u64) {
        note(&self.changed, items);
    }

    /// Records that `bytes` bytes were reserved.
    pub(crate) fn reserved(&self, bytes: u64) {
        note(&self.reserved, bytes);
    }

    /// Returns the marks, and resets them.
    pub(crate) fn take(&self) -> HighWaterRise {
        let take = |high_water: &AtomicU64| high_water.swap(0, Ordering::Relaxed);
        HighWaterRise { items_changed: take(&self.changed), bytes_reserved: take(&self.reserved) }
    }
}

/// Raises a mark. Most values are not larger, and leave the counter in all processors' caches.
fn note(high_water: &AtomicU64, value: u64) {
    if value > high_water.load(Ordering::Relaxed) {
        high_water.fetch_max(value, Ordering::Relaxed);
    }
}
