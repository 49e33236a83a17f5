//! Throttles writers, so that the unfinished data never exceeds its bound (Linux:
//! balance_dirty_pages).
//!
//! 1. Before data becomes dirty, its bytes are *admitted*: unfinished and admitted bytes together
//!    are within the bound. A permit is dropped when all of its bytes count as unfinished, or will
//!    not become dirty.
//! 2. The holder of a permit never waits for a thread that wants one: permits are requested while
//!    no lock is held but operation locks, and for one change at a time.
//! 3. A thread that is not admitted writes data back. If little is unfinished, the permits of
//!    others take the space, and they are dropped soon.

use userbtrfs_sync::{Class, Condvar, Mutex};

/// Admits writers while the unfinished data is within its bound.
pub(in crate::data) struct DirtyThrottle {
    /// The bytes of all permits.
    admitted: Mutex<u64>,
    left: Condvar,
}

/// A permit to make some bytes dirty.
pub(in crate::data) struct DirtyPermit<'a> {
    throttle: &'a DirtyThrottle,
    bytes: u64,
}

impl DirtyThrottle {
    pub(in crate::data) fn new() -> Self {
        Self { admitted: Mutex::new(Class::TransactionState, 0), left: Condvar::new() }
    }

    /// Admits `bytes` if they fit into the bound, or if nothing else is admitted or unfinished.
    pub(in crate::data) fn admit(
        &self,
        bytes: u64,
        max: u64,
        unfinished: impl FnOnce() -> u64,
    ) -> Option<DirtyPermit<'_>> {
        let mut admitted = self.admitted.lock();
        // The bytes of permits dropped before this count as unfinished here: they are dropped under
        // this lock.
        let taken = *admitted + unfinished();
        if taken > 0 && taken + bytes > max {
            return None;
        }
        *admitted += bytes;
        Some(DirtyPermit { throttle: self, bytes })
    }

    /// Waits until a permit is dropped, if there is one and the bytes still do not fit.
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
