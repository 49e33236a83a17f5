//! The largest that there was of what has to be bounded: for who states a bound, and tests it.
//!
//! 1. A transaction may be closed when its handles are gone: so what one of them changes bounds how
//!    long a commit waits, and what is reserved at a time how much of the space is held for it.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct HighWater {
    changed: AtomicU64,
    reserved: AtomicU64,
}

/// What there was since this was last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighWaterRise {
    /// The most items of trees that were changed under one handle.
    pub items_changed: u64,
    /// The most bytes of metadata that were reserved at once.
    pub bytes_reserved: u64,
}

impl HighWater {
    /// Under one handle so many items were changed.
    pub(crate) fn changed(&self, items: u64) {
        note(&self.changed, items);
    }

    /// So many bytes were reserved.
    pub(crate) fn reserved(&self, bytes: u64) {
        note(&self.reserved, bytes);
    }

    /// What there was; from now on it is counted anew.
    pub(crate) fn take(&self) -> HighWaterRise {
        let take = |high_water: &AtomicU64| high_water.swap(0, Ordering::Relaxed);
        HighWaterRise { items_changed: take(&self.changed), bytes_reserved: take(&self.reserved) }
    }
}

/// Most are not larger than those before, and leave the counter in all processors' caches.
fn note(high_water: &AtomicU64, value: u64) {
    if value > high_water.load(Ordering::Relaxed) {
        high_water.fetch_max(value, Ordering::Relaxed);
    }
}
