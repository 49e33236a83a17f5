//! What is counted about logs.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};

use super::FullCommitReason;

const REASONS: usize = FullCommitReason::ALL.len();

/// What was done with logs since the filesystem was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Groups that became durable.
    pub groups: u64,
    /// Those who found their group durable, or waited for another who wrote it.
    pub shared: u64,
    /// Nodes written.
    pub nodes: u64,
    /// Bytes of these, of one copy each.
    pub bytes: u64,
    /// Groups whose leader waited for the group before.
    pub waits_for_group: u64,
    /// Groups that waited for the superblock of the transaction before.
    pub waits_for_commit: u64,
    reasons: [u64; REASONS],
}

impl LogStats {
    /// How many transactions had to be committed for this reason before any other.
    pub fn commits(&self, reason: FullCommitReason) -> u64 {
        self.reasons[reason.index()]
    }
}

/// The same, while it is counted.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) groups: AtomicU64,
    pub(super) shared: AtomicU64,
    pub(super) nodes: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) waits_for_group: AtomicU64,
    pub(super) waits_for_commit: AtomicU64,
    reasons: [AtomicU64; REASONS],
}

/// Counts so many more.
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
            groups: read(&self.groups),
            shared: read(&self.shared),
            nodes: read(&self.nodes),
            bytes: read(&self.bytes),
            waits_for_group: read(&self.waits_for_group),
            waits_for_commit: read(&self.waits_for_commit),
            reasons: self.reasons.each_ref().map(read),
        }
    }
}
