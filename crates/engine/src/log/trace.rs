//! What is told of each sync to who listens. Where nobody does it costs a look at one flag.

use std::fmt;
use std::time::{Duration, Instant};

use userbtrfs_ledger::CommitReason;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::error::InodeId;

/// How one sync of an inode went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncRecord {
    /// What was made durable.
    pub inode: InodeId,
    /// How.
    pub how: SyncHow,
    /// Items that were put into the log, or removed from it; those of checksums apart.
    pub items: usize,
    /// How long its data took to be written.
    pub write_back: Duration,
    /// How long it took to log it in memory, with the wait for others who do.
    pub collect: Duration,
    /// How long its group, or the commit, took to be durable.
    pub wait: Duration,
}

/// How something was made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncHow {
    /// It was already, or is with a transaction or a group that was on its way.
    Unchanged,
    /// By the log.
    Logged,
    /// By a commit.
    Committed(CommitReason),
}

/// Who listens.
pub(crate) type Listener = Arc<dyn Fn(&SyncRecord) + Send + Sync>;

/// Where syncs are told of.
pub(super) struct Trace {
    is_heard: AtomicBool,
    listener: Mutex<Option<Listener>>,
}

impl Trace {
    pub(super) fn new() -> Self {
        let listener = Mutex::new(Class::CacheShard, None);
        Self { is_heard: AtomicBool::new(false), listener }
    }

    pub(super) fn set(&self, listener: Option<Listener>) {
        self.is_heard.store(listener.is_some(), Ordering::Release);
        *self.listener.lock() = listener;
    }

    /// The time, where somebody listens.
    pub(super) fn clock(&self) -> Clock<'_> {
        let heard = self.is_heard.load(Ordering::Acquire);
        Clock { trace: self, last: heard.then(Instant::now), laps: [Duration::ZERO; 3] }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("is_heard", &self.is_heard).finish_non_exhaustive()
    }
}

/// What a sync spends its time with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    WriteBack,
    Collect,
    Wait,
}

/// The time of one sync.
pub(super) struct Clock<'a> {
    trace: &'a Trace,
    last: Option<Instant>,
    laps: [Duration; 3],
}

impl Clock<'_> {
    /// A phase is over.
    pub(super) fn lap(&mut self, phase: Phase) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            let lap = now.duration_since(std::mem::replace(last, now));
            let at = match phase {
                Phase::WriteBack => 0,
                Phase::Collect => 1,
                Phase::Wait => 2,
            };
            self.laps[at] += lap;
        }
    }

    /// The sync is over.
    pub(super) fn end(mut self, inode: InodeId, how: SyncHow, items: usize) {
        self.lap(Phase::Wait);
        if self.last.is_none() {
            return;
        }
        let [write_back, collect, wait] = self.laps;
        let listener = self.trace.listener.lock().clone();
        if let Some(listener) = listener {
            listener(&SyncRecord { inode, how, items, write_back, collect, wait });
        }
    }
}
