//! A thread that sleeps until it is told something.
//!
//! Those who wait on one condition variable are woken one after the other, each when the one
//! before it has run and released the lock. Who has a sleeper of its own needs no lock that others
//! want, so as many as there are wake at once.

use std::fmt;
use std::time::Duration;

use crate::primitives::{Arc, Condvar, Mutex};

/// The side of who sleeps.
#[derive(Debug)]
#[must_use = "it is told once"]
pub struct OneshotReceiver<T>(Arc<Slot<T>>);

/// The side of who wakes it.
#[derive(Debug)]
#[must_use = "the other side sleeps until it is woken"]
pub struct OneshotSender<T>(Arc<Slot<T>>);

/// Where one thread is told something, by others.
pub(crate) struct Slot<T> {
    told: Mutex<Option<T>>,
    is_told: Condvar,
}

impl<T> OneshotReceiver<T> {
    /// Both sides.
    pub fn new() -> (Self, OneshotSender<T>) {
        let ear = Arc::new(Slot::new());
        (Self(Arc::clone(&ear)), OneshotSender(ear))
    }

    /// Sleeps until it is told something, for as long as that takes. No lock is held.
    pub fn sleep(self) -> T {
        self.0.sleep(|| None)
    }
}

impl<T> OneshotSender<T> {
    /// Tells the other side, and wakes it.
    pub fn wake(self, what: T) {
        self.0.tell(what);
    }
}

impl<T> Slot<T> {
    /// Nothing is told yet.
    pub(crate) fn new() -> Self {
        Self { told: Mutex::new(None), is_told: Condvar::new() }
    }

    /// Tells something, and wakes who sleeps for it.
    pub(crate) fn tell(&self, what: T) {
        *self.told.lock() = Some(what);
        self.is_told.notify_one();
    }

    /// Takes what was told, if anything was.
    pub(crate) fn take(&self) -> Option<T> {
        self.told.lock().take()
    }

    /// Sleeps until something is told, and takes it. `left` says how long a sleep may last, and
    /// complains where that is over.
    pub(crate) fn sleep(&self, left: impl Fn() -> Option<Duration>) -> T {
        let mut told = self.told.lock();
        loop {
            if let Some(told) = told.take() {
                return told;
            }
            self.is_told.wait_within(&mut told, left());
        }
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ear")
    }
}
