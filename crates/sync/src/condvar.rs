//! A condition variable. It goes with a [`Mutex`](crate::Mutex); its waits complain with the
//! name of that.

use std::time::Duration;

use crate::mutex::MutexGuard;
use crate::order::WaitLimit;
use crate::primitives;

/// Lets threads sleep until the value under a mutex has changed.
///
/// A wake-up says nothing about the value: look again, or use [`Condvar::wait_while`].
#[derive(Debug)]
pub struct Condvar {
    inner: primitives::Condvar,
}

impl Condvar {
    /// A condition nobody waits for.
    pub fn new() -> Self {
        Self { inner: primitives::Condvar::new() }
    }

    /// Sleeps, without the lock, until notified. Someone must come: see the wait limit.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let (inner, identity) = guard.parts();
        let patience = WaitLimit::new(identity);
        while !self.inner.wait_within(inner, patience.left()) {}
    }

    /// Sleeps, without the lock, until `condition` is false. Someone must come.
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// As `wait`, where it is no fault that nobody comes: a worker that waits for work.
    pub fn wait_idle<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.inner.wait_within(guard.parts().0, None);
    }

    /// Sleeps until notified or `limit` has passed; false when it has. A model never says so.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> bool {
        self.inner.wait_within(guard.parts().0, Some(limit))
    }

    /// Wakes one sleeper, if there is any.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes all sleepers.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}
