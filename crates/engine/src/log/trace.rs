//! What is told of each sync to who listens. Where nobody does it costs a look at one flag.

use std::fmt;
use std::time::{Duration, Instant};

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_transaction::FullCommitReason;

use crate::error::InodeId;

/// How one sync of an inode went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncRecord {
    /// What was made durable.
    pub inode: InodeId,
    /// How.
    pub how: SyncOutcome,
    /// Inodes that were logged for it: itself, and those that belong to it.
    pub inodes: usize,
    /// Items that were put into the log, or removed from it; those of checksums apart.
    pub items: usize,
    /// Bytes of the content of these items.
    pub bytes: usize,
    /// How long it took to send its data off, with the wait for what was on its way before.
    pub write_back: Duration,
    /// How long it took to log it in memory, with the wait for others who do.
    pub collect: Duration,
    /// How long it waited for others: for who wrote its group, or the one before, and for data of
    /// others in its group.
    pub writers: Duration,
    /// How long it waited for the commit of the transaction before.
    pub previous: Duration,
    /// How long it waited for the device: for its data, the log, the superblock; or for a commit
    /// instead of a log.
    pub device: Duration,
}

/// How something was made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// It was already, or is with a transaction or a group that was on its way.
    Unchanged,
    /// By the log.
    Logged,
    /// By a commit, or not at all where the call fails.
    Committed(FullCommitReason),
    /// Not at all: its own data could not be written, which the call tells unless another was told.
    Failed,
}

/// What a sync put into the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogVolume {
    pub(super) inodes: usize,
    pub(super) items: usize,
    pub(super) bytes: usize,
}

/// Who listens.
pub(crate) type Listener = Arc<dyn Fn(&SyncRecord) + Send + Sync>;

/// Where syncs are told of.
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

    /// The time, where somebody listens.
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

/// What a sync spends its time with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    WriteBack,
    Collect,
    Writers,
    Commit,
    Device,
}

/// The time of one sync.
pub(super) struct PhaseTimer<'a> {
    fsync_tracer: &'a FsyncTracer,
    last: Option<Instant>,
    laps: [Duration; 5],
}

impl PhaseTimer<'_> {
    /// A phase is over.
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

    /// The sync is over.
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
