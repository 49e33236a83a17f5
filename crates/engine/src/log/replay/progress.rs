//! The progress of replays.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

/// The number of times that a byte of a log is counted: once in each stage, and once when its log
/// is settled.
const PASSES: u64 = 5;

/// Counters of the replay of pending logs, which any thread may read while a filesystem is opened.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    /// Bytes of leaves, each counted `PASSES` times in the end.
    passed: AtomicU64,
    total: AtomicU64,
}

impl ReplayProgress {
    /// Returns the number of bytes of logs that are replayed, in the leaves of their trees. A log
    /// is replayed in several passes; each counts a part of its bytes.
    pub fn replayed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed) / PASSES
    }

    /// Returns the number of bytes that are replayed in the end; 0 before the logs are found, and
    /// if there is none.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Adds the bytes of a log that is going to be replayed.
    pub(super) fn found(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes after a pass over them.
    pub(super) fn passed(&self, bytes: u64) {
        self.passed.fetch_add(bytes, Ordering::Relaxed);
    }
}
