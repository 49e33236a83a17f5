//! Counters of logs.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

use super::FullCommitReason;

const REASONS: usize = FullCommitReason::ALL.len();

/// Counters of logs since the filesystem was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Log commits that became durable.
    pub log_commits: u64,
    /// Syncs whose log commit was durable already, or was written by another thread.
    pub shared: u64,
    /// Nodes written.
    pub nodes: u64,
    /// Bytes of these nodes, of one mirror each.
    pub bytes: u64,
    /// Log commits whose leader waited for the log commit before.
    pub waits_for_log_commit: u64,
    /// Log commits that waited for the superblock of the previous transaction.
    pub waits_for_commit: u64,
    reasons: [u64; REASONS],
}

impl LogStats {
    /// Returns how many transactions had to be committed with `reason` as the first reason.
    pub fn commits(&self, reason: FullCommitReason) -> u64 {
        self.reasons[reason.index()]
    }
}

/// The counters behind [`LogStats`].
#[derive(Default)]
pub(super) struct Counts {
    pub(super) log_commits: AtomicU64,
    pub(super) shared: AtomicU64,
    pub(super) nodes: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) waits_for_log_commit: AtomicU64,
    pub(super) waits_for_commit: AtomicU64,
    reasons: [AtomicU64; REASONS],
}

/// Adds `more` to a counter.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn commit_required(&self, reason: FullCommitReason) {
        count(&self.reasons[reason.index()], 1);
    }

    pub(super) fn get(&self) -> LogStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            log_commits: read(&self.log_commits),
            shared: read(&self.shared),
            nodes: read(&self.nodes),
            bytes: read(&self.bytes),
            waits_for_log_commit: read(&self.waits_for_log_commit),
            waits_for_commit: read(&self.waits_for_commit),
            reasons: self.reasons.each_ref().map(read),
        }
    }
}
