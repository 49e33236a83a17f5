//! A small world around the groups, for tests: changes under a lock, a device, and what must hold.
//!
//! 1. What a leader writes is what was changed when it closed its group.
//! 2. One thread writes at a time.
//! 3. What was promised with a change is so before the change is durable.

use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userbtrfs_sync::{Class, Mutex};

use super::{JoinOutcome, LogCommitLeader, LogCommits, PendingIo};

/// Why a group failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Abandoned,
    Device,
}

/// Changes are bits.
pub(super) struct World {
    pub(super) groups: LogCommits<Why>,
    memory: Mutex<u64>,
    /// The bits whose pledges are kept, and those that were given.
    kept: AtomicU64,
    given: Mutex<u64>,
    device: AtomicU64,
    is_written: AtomicBool,
    pub(super) led: AtomicU64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            groups: LogCommits::new(Why::Abandoned),
            memory: Mutex::new(Class::LogRoot, 0),
            kept: AtomicU64::new(0),
            given: Mutex::new(Class::TransactionState, 0),
            device: AtomicU64::new(0),
            is_written: AtomicBool::new(false),
            led: AtomicU64::new(0),
        }
    }

    /// Makes a change; gives its group.
    pub(super) fn change(&self, bit: u64) -> u64 {
        let mut memory = self.memory.lock();
        *memory |= bit;
        self.groups.collecting()
    }

    /// Makes a change, with a pledge.
    fn promise(&self, bit: u64) -> (u64, PendingIo<'_, Why>) {
        let mut memory = self.memory.lock();
        *memory |= bit;
        *self.given.lock() |= bit;
        (self.groups.collecting(), self.groups.pending_io())
    }

    /// As [`World::sync`], with a pledge that ends so; who leads at once ends it meanwhile.
    pub(super) fn sync_pledged(&self, bit: u64, ends: Result<(), Why>) -> Result<(), Why> {
        let (group, pending_io) = self.promise(bit);
        let end = |pending_io: PendingIo<'_, Why>| {
            if ends.is_ok() {
                self.kept.fetch_or(bit, Ordering::Relaxed);
            }
            pending_io.end(ends);
        };
        match self.groups.try_lead(group) {
            Some(lead) => self.write_after(lead, || end(pending_io)),
            None => end(pending_io),
        }
        self.wait(bit, group, Self::write)
    }

    /// Makes a change, and waits until it is on the device; its leader writes by `write`.
    pub(super) fn sync(
        &self,
        bit: u64,
        write: impl Fn(&Self, LogCommitLeader<'_, Why>),
    ) -> Result<(), Why> {
        let group = self.change(bit);
        self.wait(bit, group, write)
    }

    fn wait(
        &self,
        bit: u64,
        group: u64,
        write: impl Fn(&Self, LogCommitLeader<'_, Why>),
    ) -> Result<(), Why> {
        let synced = loop {
            match self.groups.join(group) {
                JoinOutcome::Ended(end) => break end,
                JoinOutcome::Lead(lead) => write(self, lead),
            }
        };
        if synced.is_ok() {
            // That the leader's write is seen is the groups' to see to.
            assert_eq!(self.device.load(Ordering::Relaxed) & bit, bit, "it is durable");
        }
        synced
    }

    /// Writes a group.
    pub(super) fn write(&self, lead: LogCommitLeader<'_, Why>) {
        self.write_after(lead, || ());
    }

    /// Writes a group, when something was done after it was closed.
    fn write_after(&self, lead: LogCommitLeader<'_, Why>, then: impl FnOnce()) {
        assert!(!self.is_written.swap(true, Ordering::Relaxed), "one writes at a time");
        self.led.fetch_add(1, Ordering::Relaxed);
        let memory = self.memory.lock();
        let (written, given) = (*memory, *self.given.lock());
        lead.close();
        drop(memory);
        then();
        let gathered = lead.gather();
        if gathered.is_ok() {
            let kept = self.kept.load(Ordering::Relaxed);
            assert_eq!(written & given & !kept, 0, "what was promised is so");
            self.device.store(written, Ordering::Relaxed);
        }
        self.is_written.store(false, Ordering::Relaxed);
        lead.end(gathered);
    }

    /// Begins anew: what was promised in vain is not in what comes next.
    pub(super) fn renew(&self) {
        self.groups.renew();
        *self.given.lock() = 0;
    }

    /// Closes a group, and fails to write it.
    pub(super) fn fail(&self, lead: LogCommitLeader<'_, Why>) {
        let memory = self.memory.lock();
        lead.close();
        drop(memory);
        lead.end(Err(Why::Device));
    }
}
