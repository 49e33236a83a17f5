//! A test harness around the log commits: changes under a lock, a device, and the invariants.
//!
//! 1. A leader writes what was changed when it closed its log commit.
//! 2. One thread writes at a time.
//! 3. The pending I/O of a change completes before the change is durable.

use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userbtrfs_sync::{Class, Mutex};

use super::{JoinOutcome, LogCommitLeader, LogCommits, PendingIo};

/// Why a log commit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Abandoned,
    Device,
}

/// Changes are bits.
pub(super) struct World {
    pub(super) commits: LogCommits<Why>,
    memory: Mutex<u64>,
    /// The bits whose pending I/O completed, and those that have some.
    kept: AtomicU64,
    given: Mutex<u64>,
    device: AtomicU64,
    is_written: AtomicBool,
    pub(super) led: AtomicU64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            commits: LogCommits::new(Why::Abandoned),
            memory: Mutex::new(Class::LogRoot, 0),
            kept: AtomicU64::new(0),
            given: Mutex::new(Class::TransactionState, 0),
            device: AtomicU64::new(0),
            is_written: AtomicBool::new(false),
            led: AtomicU64::new(0),
        }
    }

    /// Makes a change; returns its log commit.
    pub(super) fn change(&self, bit: u64) -> u64 {
        let mut memory = self.memory.lock();
        *memory |= bit;
        self.commits.collecting()
    }

    /// Makes a change with pending I/O.
    fn preallocate_chunk(&self, bit: u64) -> (u64, PendingIo<'_, Why>) {
        let mut memory = self.memory.lock();
        *memory |= bit;
        *self.given.lock() |= bit;
        (self.commits.collecting(), self.commits.pending_io())
    }

    /// Like [`World::sync`], with pending I/O that ends with `ends`; a thread that leads at once
    /// ends it while it writes.
    pub(super) fn sync_with_io(&self, bit: u64, ends: Result<(), Why>) -> Result<(), Why> {
        let (log_transid, pending_io) = self.preallocate_chunk(bit);
        let end = |pending_io: PendingIo<'_, Why>| {
            if ends.is_ok() {
                self.kept.fetch_or(bit, Ordering::Relaxed);
            }
            pending_io.end(ends);
        };
        match self.commits.try_lead(log_transid) {
            Some(lead) => self.write_after(lead, || end(pending_io)),
            None => end(pending_io),
        }
        self.wait(bit, log_transid, Self::write)
    }

    /// Makes a change, and waits until it is on the device; a leader writes with `write`.
    pub(super) fn sync(
        &self,
        bit: u64,
        write: impl Fn(&Self, LogCommitLeader<'_, Why>),
    ) -> Result<(), Why> {
        let log_transid = self.change(bit);
        self.wait(bit, log_transid, write)
    }

    fn wait(
        &self,
        bit: u64,
        log_transid: u64,
        write: impl Fn(&Self, LogCommitLeader<'_, Why>),
    ) -> Result<(), Why> {
        let synced = loop {
            match self.commits.join(log_transid) {
                JoinOutcome::Ended(end) => break end,
                JoinOutcome::Lead(lead) => write(self, lead),
            }
        };
        if synced.is_ok() {
            // The log commits must make the leader's write visible to this thread.
            assert_eq!(self.device.load(Ordering::Relaxed) & bit, bit, "it is durable");
        }
        synced
    }

    /// Writes a log commit.
    pub(super) fn write(&self, lead: LogCommitLeader<'_, Why>) {
        self.write_after(lead, || ());
    }

    /// Writes a log commit, after calling `then` once it is closed.
    fn write_after(&self, lead: LogCommitLeader<'_, Why>, then: impl FnOnce()) {
        assert!(!self.is_written.swap(true, Ordering::Relaxed), "one writes at a time");
        self.led.fetch_add(1, Ordering::Relaxed);
        let memory = self.memory.lock();
        let written = *memory;
        let given = *self.given.lock();
        lead.close();
        drop(memory);
        then();
        let gathered = lead.gather();
        if gathered.is_ok() {
            let kept = self.kept.load(Ordering::Relaxed);
            assert_eq!(written & given & !kept, 0, "what was preallocated is so");
            self.device.store(written, Ordering::Relaxed);
        }
        self.is_written.store(false, Ordering::Relaxed);
        lead.end(gathered);
    }

    /// Starts again: pending I/O of failed log commits is not part of later ones.
    pub(super) fn renew(&self) {
        self.commits.renew();
        *self.given.lock() = 0;
    }

    /// Closes a log commit, and fails to write it.
    pub(super) fn fail(&self, lead: LogCommitLeader<'_, Why>) {
        let memory = self.memory.lock();
        lead.close();
        drop(memory);
        lead.end(Err(Why::Device));
    }
}
