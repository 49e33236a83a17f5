//! Counters of syncs.

use std::time::{Duration, Instant};

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

/// Counters of syncs of files and directories since the filesystem was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncStats {
    /// Syncs that ended, also those that failed.
    pub count: u64,
    /// The sum of their durations.
    pub time: Duration,
}

/// The counters behind [`SyncStats`].
#[derive(Debug, Default)]
pub(super) struct SyncCounts {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

/// A sync in progress, which is counted when this is dropped.
pub(super) struct CountedSync<'a> {
    counts: &'a SyncCounts,
    start: Instant,
}

impl SyncCounts {
    pub(super) fn start(&self) -> CountedSync<'_> {
        CountedSync { counts: self, start: Instant::now() }
    }

    pub(super) fn get(&self) -> SyncStats {
        SyncStats {
            count: self.count.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for CountedSync<'_> {
    fn drop(&mut self) {
        let spent = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.count.fetch_add(1, Ordering::Relaxed);
        self.counts.nanoseconds.fetch_add(spent, Ordering::Relaxed);
    }
}
