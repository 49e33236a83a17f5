//! A small world around the groups, for tests: changes under a lock, a device, and what must hold.
//!
//! 1. What a leader writes is what was changed when it closed its group.
//! 2. One thread writes at a time.

use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userbtrfs_sync::{Class, Mutex};

use super::{Groups, Lead, Role};

/// Why a group failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Abandoned,
    Device,
}

/// Changes are bits.
pub(super) struct World {
    pub(super) groups: Groups<Why>,
    memory: Mutex<u64>,
    device: AtomicU64,
    is_written: AtomicBool,
    pub(super) led: AtomicU64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            groups: Groups::new(Why::Abandoned),
            memory: Mutex::new(Class::LogRoot, 0),
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

    /// Makes a change, and waits until it is on the device; its leader writes by `write`.
    pub(super) fn sync(&self, bit: u64, write: impl Fn(&Self, Lead<'_, Why>)) -> Result<(), Why> {
        let group = self.change(bit);
        let synced = loop {
            match self.groups.join(group) {
                Role::Ended(end) => break end,
                Role::Lead(lead) => write(self, lead),
            }
        };
        if synced.is_ok() {
            // That the leader's write is seen is the groups' to see to.
            assert_eq!(self.device.load(Ordering::Relaxed) & bit, bit, "it is durable");
        }
        synced
    }

    /// Writes a group.
    pub(super) fn write(&self, lead: Lead<'_, Why>) {
        assert!(!self.is_written.swap(true, Ordering::Relaxed), "one writes at a time");
        self.led.fetch_add(1, Ordering::Relaxed);
        let memory = self.memory.lock();
        let written = *memory;
        lead.close();
        drop(memory);
        self.device.store(written, Ordering::Relaxed);
        self.is_written.store(false, Ordering::Relaxed);
        lead.end(Ok(()));
    }

    /// Closes a group, and fails to write it.
    pub(super) fn fail(&self, lead: Lead<'_, Why>) {
        let memory = self.memory.lock();
        lead.close();
        drop(memory);
        lead.end(Err(Why::Device));
    }
}
