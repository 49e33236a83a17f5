//! Who may make more data dirty, so that never more is unfinished than the bound.
//!
//! 1. Before anything becomes dirty, its bytes are *admitted*: what is unfinished and what is
//!    admitted are together no more than the bound. Who is admitted leaves when all of it counts
//!    as unfinished, or will not.
//! 2. Who is admitted waits for nobody who wants to be: it is asked for where no lock is held but
//!    operation locks, and for one change at a time.
//! 3. Who finds no room writes data back; where little is unfinished, it is others who are
//!    admitted that take the room, and they leave soon.

use userbtrfs_sync::{Class, Condvar, Mutex};

/// See the module's text.
pub(in crate::data) struct DirtyThrottle {
    /// Bytes of those who are admitted.
    admitted: Mutex<u64>,
    left: Condvar,
}

/// One who is admitted.
pub(in crate::data) struct DirtyPermit<'a> {
    throttle: &'a DirtyThrottle,
    bytes: u64,
}

impl DirtyThrottle {
    pub(in crate::data) fn new() -> Self {
        Self { admitted: Mutex::new(Class::TransactionState, 0), left: Condvar::new() }
    }

    /// Admits so many bytes, if there is room for them. Where nothing else takes any, there is.
    pub(in crate::data) fn admit(
        &self,
        bytes: u64,
        max: u64,
        unfinished: impl FnOnce() -> u64,
    ) -> Option<DirtyPermit<'_>> {
        let mut admitted = self.admitted.lock();
        // Who left before counts here: it left by this lock.
        let taken = *admitted + unfinished();
        if taken > 0 && taken + bytes > max {
            return None;
        }
        *admitted += bytes;
        Some(DirtyPermit { throttle: self, bytes })
    }

    /// Waits until somebody leaves, if anybody is admitted and there is still no room.
    pub(in crate::data) fn wait(&self, bytes: u64, max: u64, unfinished: impl FnOnce() -> u64) {
        let mut admitted = self.admitted.lock();
        if *admitted > 0 && *admitted + unfinished() + bytes > max {
            self.left.wait(&mut admitted);
        }
    }
}

impl Drop for DirtyPermit<'_> {
    fn drop(&mut self) {
        *self.throttle.admitted.lock() -= self.bytes;
        self.throttle.left.notify_all();
    }
}
