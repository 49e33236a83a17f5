//! Records of syncs for a listener. Without a listener, a sync only checks one flag.

use std::fmt;
use std::time::{Duration, Instant};

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_transaction::FullCommitReason;

use crate::error::InodeId;

/// The record of one sync of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncRecord {
    /// The inode that was to be made durable.
    pub inode: InodeId,
    /// How it was made durable.
    pub how: SyncOutcome,
    /// The number of inodes that were logged: itself, and those that it requires.
    pub inodes: usize,
    /// The number of items that were put into the log or removed from it, except checksums.
    pub items: usize,
    /// The length of the contents of these items in bytes.
    pub bytes: usize,
    /// The time to submit its data, including the wait for data that was in flight before.
    pub write_back: Duration,
    /// The time to log it in memory, including the wait for other threads that do.
    pub collect: Duration,
    /// The time it waited for other threads: for the leader of its log commit or of the one before,
    /// and for the data of other members of its log commit.
    pub writers: Duration,
    /// The time it waited for the commit of the previous transaction.
    pub previous: Duration,
    /// The time it waited for the device: for its data, the log and the superblock; or for a commit
    /// instead of a log.
    pub device: Duration,
}

/// How an inode was made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// It was durable already, or became so with a transaction or log commit in progress.
    Unchanged,
    /// By the log.
    Logged,
    /// By a commit, or not at all if the call fails.
    Committed(FullCommitReason),
    /// Not at all: its own data could not be written. The call returns that error, unless another
    /// call returned it.
    Failed,
}

/// The amount that a sync put into the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogVolume {
    pub(super) inodes: usize,
    pub(super) items: usize,
    pub(super) bytes: usize,
}

/// A callback that receives the record of each sync.
pub(crate) type Listener = Arc<dyn Fn(&SyncRecord) + Send + Sync>;

/// Passes the records of syncs to a listener.
pub(super) struct FsyncTracer {
    is_heard: AtomicBool,
    listener: Mutex<Option<Listener>>,
}

impl FsyncTracer {
    pub(super) fn new() -> Self {
        let listener = Mutex::new(Class::CacheShard, None);
        Self { is_heard: AtomicBool::new(false), listener }
    }

    pub(super) fn set(&self, listener: Option<Listener>) {
        self.is_heard.store(listener.is_some(), Ordering::Release);
        *self.listener.lock() = listener;
    }

    /// Returns the timer of one sync; it only runs if there is a listener.
    pub(super) fn clock(&self) -> PhaseTimer<'_> {
        let heard = self.is_heard.load(Ordering::Acquire);
        PhaseTimer { fsync_tracer: self, last: heard.then(Instant::now), laps: [Duration::ZERO; 5] }
    }
}

impl fmt::Debug for FsyncTracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("is_heard", &self.is_heard).finish_non_exhaustive()
    }
}

/// A phase of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    WriteBack,
    Collect,
    Writers,
    Commit,
    Device,
}

/// The timer of the phases of one sync.
pub(super) struct PhaseTimer<'a> {
    fsync_tracer: &'a FsyncTracer,
    last: Option<Instant>,
    laps: [Duration; 5],
}

impl PhaseTimer<'_> {
    /// Ends a phase: adds the time since the last phase ended.
    pub(super) fn lap(&mut self, phase: Phase) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            let lap = now.duration_since(std::mem::replace(last, now));
            let at = match phase {
                Phase::WriteBack => 0,
                Phase::Collect => 1,
                Phase::Writers => 2,
                Phase::Commit => 3,
                Phase::Device => 4,
            };
            self.laps[at] += lap;
        }
    }

    /// Ends the sync: passes its record to the listener.
    pub(super) fn end(self, inode: InodeId, how: SyncOutcome, amount: LogVolume) {
        if self.last.is_none() {
            return;
        }
        let [write_back, collect, writers, previous, device] = self.laps;
        let LogVolume { inodes, items, bytes } = amount;
        let listener = self.fsync_tracer.listener.lock().clone();
        if let Some(listener) = listener {
            listener(&SyncRecord {
                inode,
                how,
                inodes,
                items,
                bytes,
                write_back,
                collect,
                writers,
                previous,
                device,
            });
        }
    }
}
