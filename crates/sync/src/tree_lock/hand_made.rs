//! The tree lock before S4 of docs/seeds.md: it spins or sleeps by the state of its holder, and has
//! one wait queue.
//!
//! ```text
//!  63 .. 3   2          1          0
//!  readers   SLEEPERS   BLOCKING   WRITER
//! ```
//!
//! 1. A hold for reading is *spinning*: it ends soon, and a thread that waits for it spins. A hold
//!    for writing is *blocking*, since its thread copies blocks and waits for more locks: a thread
//!    that waits for it sleeps. User space cannot keep a holder on its processor: so a spin is
//!    bounded, and the thread sleeps then.
//! 2. All sleeping threads are in one queue, for reading and for writing. A release that finds
//!    SLEEPERS wakes all of them, the last one first. No thread is granted the lock, and none is
//!    kept from overtaking: each tries again.
//! 3. SLEEPERS is set exactly while the queue is not empty or a thread is about to enter it, and
//!    changes only under the queue's mutex. A thread sets it before it checks the word for the last
//!    time, a release reads it after it has left: so no wake-up is lost.

use super::raw::RawTreeLock;
use crate::nesting::Mode;
use crate::oneshot::Slot;
use crate::order::{Identity, WaitLimit};
use crate::primitives::atomic::{AtomicUsize, Ordering};
use crate::primitives::{Arc, Mutex, Spin};

const WRITER: usize = 1;
const BLOCKING: usize = 2;
const SLEEPERS: usize = 4;
const READER: usize = 8;

/// The tree lock of this build: either kind.
#[derive(Debug)]
pub(super) enum Lock {
    Fair(RawTreeLock),
    HandMade(HandMadeLock),
}

impl Lock {
    pub(super) fn new() -> Self {
        Self::Fair(RawTreeLock::new())
    }

    pub(super) fn hand_made() -> Self {
        Self::HandMade(HandMadeLock::new())
    }

    #[inline]
    pub(super) fn try_lock(&self, mode: Mode) -> bool {
        match self {
            Self::Fair(lock) => lock.try_lock(mode),
            Self::HandMade(lock) => lock.try_lock(mode),
        }
    }

    #[inline]
    pub(super) fn lock(&self, mode: Mode, identity: Identity) {
        match self {
            Self::Fair(lock) => lock.lock(mode, identity),
            Self::HandMade(lock) => lock.lock(mode, identity),
        }
    }

    #[inline]
    pub(super) fn unlock(&self, mode: Mode) -> usize {
        match self {
            Self::Fair(lock) => lock.unlock(mode),
            Self::HandMade(lock) => lock.unlock(mode),
        }
    }

    pub(super) fn downgrade(&self) -> usize {
        match self {
            Self::Fair(lock) => lock.downgrade(),
            Self::HandMade(lock) => lock.downgrade(),
        }
    }
}

/// The lock without a value.
#[derive(Debug)]
pub(super) struct HandMadeLock {
    word: AtomicUsize,
    sleepers: Mutex<Vec<Arc<Slot<()>>>>,
}

impl HandMadeLock {
    pub(super) fn new() -> Self {
        Self { word: AtomicUsize::new(0), sleepers: Mutex::new(Vec::new()) }
    }

    /// Takes the lock if no holder excludes it.
    #[inline]
    fn try_lock(&self, mode: Mode) -> bool {
        let enter = |word| entered(word, mode);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }

    /// Takes the lock.
    #[inline]
    pub(super) fn lock(&self, mode: Mode, identity: Identity) {
        if !self.try_lock(mode) {
            self.lock_slowly(mode, identity);
        }
    }

    #[cold]
    fn lock_slowly(&self, mode: Mode, identity: Identity) {
        let patience = WaitLimit::new(identity);
        let mut spin = Spin::new();
        while !self.try_lock(mode) {
            let is_spinning = self.word.load(Ordering::Relaxed) & BLOCKING == 0;
            if !(is_spinning && spin.again()) {
                self.sleep(mode, &patience);
                spin = Spin::new();
            }
        }
    }

    /// Sleeps until the next release, unless the lock can be entered by now.
    fn sleep(&self, mode: Mode, patience: &WaitLimit) {
        let mut sleepers = self.sleepers.lock();
        let word = self.word.fetch_or(SLEEPERS, Ordering::AcqRel);
        if entered(word, mode).is_some() {
            if sleepers.is_empty() {
                self.word.fetch_and(!SLEEPERS, Ordering::AcqRel);
            }
            return;
        }
        let slot = Arc::new(Slot::new());
        sleepers.push(Arc::clone(&slot));
        drop(sleepers);
        slot.sleep(|| patience.left());
    }

    /// Releases the lock; returns the number of threads that it woke.
    #[inline]
    pub(super) fn unlock(&self, mode: Mode) -> usize {
        let share = match mode {
            Mode::Read => READER,
            Mode::Write => WRITER | BLOCKING,
        };
        let left = self.word.fetch_sub(share, Ordering::AcqRel) - share;
        if left == SLEEPERS { self.wake_all() } else { 0 }
    }

    /// Turns the hold of a writer into that of a reader; returns the number of threads it woke.
    fn downgrade(&self) -> usize {
        let before = self.word.fetch_add(READER - (WRITER | BLOCKING), Ordering::AcqRel);
        assert!(before & WRITER != 0, "only a writer downgrades");
        if before & SLEEPERS == 0 { 0 } else { self.wake_all() }
    }

    #[cold]
    fn wake_all(&self) -> usize {
        let mut sleepers = self.sleepers.lock();
        self.word.fetch_and(!SLEEPERS, Ordering::AcqRel);
        let woken = std::mem::take(&mut *sleepers);
        drop(sleepers);
        woken.iter().rev().for_each(|slot| slot.tell(()));
        woken.len()
    }

    /// Returns the number of sleeping threads.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn sleeping(&self) -> usize {
        self.sleepers.lock().len()
    }
}

/// Returns the word after a thread enters in `mode`; `None` if the holders exclude it.
#[inline]
fn entered(word: usize, mode: Mode) -> Option<usize> {
    match mode {
        Mode::Read => (word & WRITER == 0).then_some(word + READER),
        Mode::Write => (word & !SLEEPERS == 0).then_some(word | WRITER | BLOCKING),
    }
}
