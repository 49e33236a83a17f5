//! A one-shot channel: a thread sleeps until another sends it a value.
//!
//! Threads that wait on one condition variable wake one after the other, each when the one before
//! it has run and released the mutex. Each channel has a mutex of its own, so any number of
//! receivers wake at once.

use std::fmt;
use std::time::Duration;

use crate::primitives::{Arc, Condvar, Mutex};

/// The receiving side, which sleeps.
#[derive(Debug)]
#[must_use = "it is told once"]
pub struct OneshotReceiver<T>(Arc<Slot<T>>);

/// The sending side, which wakes the receiver.
#[derive(Debug)]
#[must_use = "the other side sleeps until it is woken"]
pub struct OneshotSender<T>(Arc<Slot<T>>);

/// A slot in which one thread receives a value from others.
pub(crate) struct Slot<T> {
    told: Mutex<Option<T>>,
    is_told: Condvar,
}

impl<T> OneshotReceiver<T> {
    /// Creates a channel, and returns both sides.
    pub fn new() -> (Self, OneshotSender<T>) {
        let ear = Arc::new(Slot::new());
        (Self(Arc::clone(&ear)), OneshotSender(ear))
    }

    /// Sleeps until a value is sent, without a limit, and returns it. The caller holds no lock.
    pub fn sleep(self) -> T {
        self.0.sleep(|| None)
    }
}

impl<T> OneshotSender<T> {
    /// Sends a value to the receiver, and wakes it.
    pub fn wake(self, what: T) {
        self.0.tell(what);
    }
}

impl<T> Slot<T> {
    /// Creates an empty slot.
    pub(crate) fn new() -> Self {
        Self { told: Mutex::new(None), is_told: Condvar::new() }
    }

    /// Stores a value, and wakes the thread that sleeps for it.
    pub(crate) fn tell(&self, what: T) {
        *self.told.lock() = Some(what);
        self.is_told.notify_one();
    }

    /// Takes the value, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        self.told.lock().take()
    }

    /// Sleeps until there is a value, and takes it. `left` returns how long a sleep may last, and
    /// panics if the limit is exceeded.
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
