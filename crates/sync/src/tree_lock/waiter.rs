//! A thread in the queue of a tree lock, which sleeps until it receives a signal.

use crate::nesting::Mode;
use crate::oneshot::Slot;
use crate::order::WaitLimit;
use crate::primitives::Spin;

/// A signal to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The lock can be entered: claim it.
    Claim,
    /// The waiter holds the lock.
    Granted,
}

/// One queued thread.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The mode in which it waits for the lock.
    pub(super) mode: Mode,
    signal: Slot<Signal>,
}

impl Waiter {
    /// Creates a waiter without a signal.
    pub(super) fn new(mode: Mode) -> Self {
        Self { mode, signal: Slot::new() }
    }

    /// Sends the signal, and wakes the waiter if it sleeps.
    pub(super) fn give(&self, signal: Signal) {
        self.signal.tell(signal);
    }

    /// Sleeps until there is a signal, and takes it.
    pub(super) fn sleep(&self, patience: &WaitLimit) -> Signal {
        self.signal.sleep(|| patience.left())
    }

    /// Spins for a signal before sleeping for it.
    pub(super) fn spin_then_sleep(&self, patience: &WaitLimit) -> Signal {
        let mut spin = Spin::new();
        loop {
            if let Some(signal) = self.signal.take() {
                return signal;
            }
            if !spin.again() {
                break;
            }
        }
        self.sleep(patience)
    }
}
