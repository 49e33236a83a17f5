//! A condition variable, used with a [`Mutex`](crate::Mutex); the panic of a wait that exceeds the
//! limit names the mutex.

use std::time::Duration;

use crate::mutex::MutexGuard;
use crate::order::WaitLimit;
use crate::primitives;

/// A condition variable: threads sleep until the value under a mutex has changed.
///
/// A wake-up does not mean that it has: check again, or use [`Condvar::wait_while`].
#[derive(Debug)]
pub struct Condvar {
    inner: primitives::Condvar,
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub fn new() -> Self {
        Self { inner: primitives::Condvar::new() }
    }

    /// Sleeps, without the lock, until notified, which must happen within the wait limit.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let (inner, identity) = guard.parts();
        let patience = WaitLimit::new(identity);
        while !self.inner.wait_within(inner, patience.left()) {}
    }

    /// Sleeps, without the lock, until `condition` is false. Each sleep has the wait limit.
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Like `wait`, without the wait limit: for a worker that waits for work.
    pub fn wait_idle<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.inner.wait_within(guard.parts().0, None);
    }

    /// Sleeps until notified or until `limit` has passed; returns false if it has. Never times out
    /// in a model.
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
