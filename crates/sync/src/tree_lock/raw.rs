//! The state of a tree lock, without the value: one word, and a queue under a small mutex.
//!
//! The word is a count of readers and three bits:
//!
//! ```text
//!  63 .. 3   2      1        0
//!  readers   OPEN   QUEUED   WRITER
//! ```
//!
//! The states of the lock, and the functions that change them:
//!
//! ```text
//!   FREE   -- try_lock, grant --> READ 1, or WRITE
//!   READ n -- try_lock, grant --> READ n + 1
//!   READ n -- unlock -----------> READ n - 1, or FREE
//!   WRITE  -- downgrade --------> READ 1
//!   WRITE  -- unlock -----------> FREE
//! ```
//!
//! The *leaders* of the queue are the writer at its head, or the readers at its head up to the
//! first writer. The stages of a queued thread:
//!
//! ```text
//!   -- enqueue --> Asleep -- tell --> Waking -- claim --> Awake -- grant --> holder
//! ```
//!
//! QUEUED: the queue is not empty. OPEN: a leader is Waking, and none is Awake. The threads that
//! may enter the lock:
//!
//! ```text
//!          | queue empty    | QUEUED, OPEN   | QUEUED, not OPEN
//!   FREE   | reader, writer | reader, writer | a leader that is Awake
//!   READ n | reader         | reader         | a leading reader that is Awake
//!   WRITE  | nobody         | nobody         | nobody
//! ```
//!
//! 1. A writer holds the lock exclusively: WRITER is set only when the lock is free, a reader is
//!    counted only without WRITER.
//! 2. A thread that cannot enter spins for a bounded time, and only while a writer holds the lock
//!    and no thread is queued. User space cannot see whether that writer is running, so the time
//!    is bounded instead. Then the thread queues, at the end.
//! 3. The queue and its stages, and the bits QUEUED and OPEN, change only under the queue's mutex.
//! 4. Only leaders leave the queue. A release wakes the leaders or no thread, never all threads.
//! 5. A thread enters ahead of the queue only while a leader is Waking: the lock would be idle for
//!    the length of a context switch, and newcomers may use it meanwhile. Each thread is Waking
//!    once, so overtaking is bounded: a leader that woke and cannot enter closes the lock, and
//!    the next release grants it. So readers do not starve a writer, nor writers a reader.
//! 6. No thread holds the lock before it is awake, unless it woke, was overtaken, and slept again.
//! 7. No wake-up is lost. Under the mutex the bits are stored in the word before it is checked
//!    whether a leader can enter; a release reads the bits after it has left. Both act on one
//!    word, so one sees the other. A release that sees OPEN leaves the work to the Waking leader,
//!    which clears OPEN before it checks; any other that sees QUEUED passes the lock on.
//! 8. The writes of a holder are visible to the next: the release of the word is acquired by the
//!    next holder, or by its granter, whose signal the next holder takes under the mutex of its
//!    own waiter.
//! 9. A thread leaves the queue by being granted the lock. One that panics at the wait limit stays
//!    queued, and the lock stays closed: such a panic ends a test.

use std::collections::VecDeque;

use super::waiter::{Signal, Waiter};
use crate::nesting::Mode;
use crate::order::{Identity, WaitLimit};
use crate::primitives::atomic::{AtomicUsize, Ordering};
use crate::primitives::{Arc, Mutex, Spin};

const WRITER: usize = 1;
const QUEUED: usize = 2;
const OPEN: usize = 4;
const READER: usize = 8;

/// The lock without a value.
#[derive(Debug)]
pub(super) struct RawTreeLock {
    word: AtomicUsize,
    queue: Mutex<Queue>,
}

/// The waiting threads, the next one first.
#[derive(Debug)]
struct Queue {
    places: VecDeque<Place>,
}

/// An entry of the queue.
#[derive(Debug)]
struct Place {
    waiter: Arc<Waiter>,
    stage: Stage,
}

/// The stage of a queued thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not signalled yet.
    Asleep,
    /// Signalled to claim the lock, but has not done so yet.
    Waking,
    /// Claimed it, and could not enter: overtaken.
    Awake,
}

/// Signals decided under the queue's mutex, sent after its release.
type Signals = Vec<(Arc<Waiter>, Signal)>;

impl RawTreeLock {
    /// Creates a free lock.
    pub(super) fn new() -> Self {
        Self { word: AtomicUsize::new(0), queue: Mutex::new(Queue { places: VecDeque::new() }) }
    }

    /// Takes the lock if it is available without waiting.
    #[inline]
    pub(super) fn try_lock(&self, mode: Mode) -> bool {
        self.change(|word| if is_closed(word) { None } else { entered(word, mode) })
    }

    /// Takes the lock, waiting in turn.
    #[inline]
    pub(super) fn lock(&self, mode: Mode, identity: Identity) {
        if !self.try_lock(mode) {
            self.lock_slowly(mode, identity);
        }
    }

    /// Releases the lock; returns the number of threads that it woke.
    #[inline]
    pub(super) fn unlock(&self, mode: Mode) -> usize {
        let share = match mode {
            Mode::Read => READER,
            Mode::Write => WRITER,
        };
        let left = self.word.fetch_sub(share, Ordering::AcqRel) - share;
        if is_closed(left) && left < READER { self.pass_on() } else { 0 }
    }

    /// Turns the hold of a writer into that of a reader; returns the number of readers it woke.
    pub(super) fn downgrade(&self) -> usize {
        let before = self.word.fetch_add(READER - WRITER, Ordering::AcqRel);
        assert!(before & WRITER != 0, "only a writer downgrades");
        if is_closed(before) { self.pass_on() } else { 0 }
    }

    #[cold]
    fn lock_slowly(&self, mode: Mode, identity: Identity) {
        if !self.spin(mode) {
            self.wait_in_turn(mode, &WaitLimit::new(identity));
        }
    }

    /// Tries to take the lock for a bounded time, while that is likely to be shorter than a sleep.
    fn spin(&self, mode: Mode) -> bool {
        let mut spin = Spin::new();
        while self.word.load(Ordering::Relaxed) & (WRITER | QUEUED) == WRITER && spin.again() {
            if self.try_lock(mode) {
                return true;
            }
        }
        false
    }

    /// Queues, and sleeps until the lock is granted.
    fn wait_in_turn(&self, mode: Mode, patience: &WaitLimit) {
        let waiter = Arc::new(Waiter::new(mode));
        self.enqueue(&waiter);
        assert!(waiter.sleep(patience) == Signal::Claim, "nobody is granted asleep");
        self.claim(&waiter);
        assert!(waiter.spin_then_sleep(patience) == Signal::Granted, "nobody is told twice");
    }

    /// Adds a waiter to the end of the queue.
    fn enqueue(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.queue.lock();
        queue.places.push_back(Place { waiter: Arc::clone(waiter), stage: Stage::Asleep });
        let signals = self.settle(&mut queue);
        drop(queue);
        give(signals);
    }

    /// Claims the lock for a leader that was signalled: enters it, or else closes it and is next.
    fn claim(&self, waiter: &Arc<Waiter>) {
        let mut queue = self.queue.lock();
        queue.find(waiter).stage = Stage::Awake;
        let signals = self.settle(&mut queue);
        drop(queue);
        give(signals);
    }

    /// Passes a released lock on to the leaders; returns the number of threads woken.
    #[cold]
    fn pass_on(&self) -> usize {
        let signals = self.settle(&mut self.queue.lock());
        give(signals)
    }

    /// Grants the lock to the leaders that are Awake, and signals those that are Asleep, as far as
    /// its state allows.
    fn settle(&self, queue: &mut Queue) -> Signals {
        self.show(queue);
        let mut signals = self.grant(queue);
        self.tell(queue, &mut signals);
        self.show(queue);
        signals
    }

    /// Stores the state of the queue in the word.
    fn show(&self, queue: &Queue) {
        let bits = queue.bits();
        self.change(|word| Some(word & !(QUEUED | OPEN) | bits));
    }

    /// Enters the lock on behalf of the leaders that are Awake.
    fn grant(&self, queue: &mut Queue) -> Signals {
        let mut signals = Signals::new();
        let mut index = 0;
        for _ in 0..queue.leading() {
            let Place { waiter, stage } = &queue.places[index];
            if *stage == Stage::Awake && self.change(|word| entered(word, waiter.mode)) {
                signals.extend(
                    queue.places.remove(index).map(|place| (place.waiter, Signal::Granted)),
                );
            } else {
                index += 1;
            }
        }
        signals
    }

    /// Signals the leaders that are Asleep to claim the lock, if they could enter now.
    fn tell(&self, queue: &mut Queue, signals: &mut Signals) {
        let word = self.word.load(Ordering::Acquire);
        let leading = queue.leading();
        for place in queue.places.iter_mut().take(leading) {
            if place.stage == Stage::Asleep && entered(word, place.waiter.mode).is_some() {
                place.stage = Stage::Waking;
                signals.push((Arc::clone(&place.waiter), Signal::Claim));
            }
        }
    }

    /// Returns the number of queued threads.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn queued(&self) -> usize {
        self.queue.lock().places.len()
    }

    /// Returns whether newcomers may enter ahead of a leader that was signalled.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn is_open(&self) -> bool {
        self.word.load(Ordering::Acquire) & OPEN != 0
    }

    /// Changes the word to what `next` returns; returns false if that is `None`.
    #[inline]
    fn change(&self, next: impl Fn(usize) -> Option<usize>) -> bool {
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }
}

impl Queue {
    /// Returns the number of leaders: the writer at the head, or the readers up to the first
    /// writer.
    fn leading(&self) -> usize {
        let is_reader = |place: &&Place| place.waiter.mode == Mode::Read;
        let readers = self.places.iter().take_while(is_reader).count();
        if readers == 0 { self.places.len().min(1) } else { readers }
    }

    /// Returns the bits of the word that describe the queue.
    fn bits(&self) -> usize {
        let leaders = || self.places.iter().take(self.leading()).map(|place| place.stage);
        let open = leaders().any(|stage| stage == Stage::Waking)
            && leaders().all(|stage| stage != Stage::Awake);
        match (self.places.is_empty(), open) {
            (true, _) => 0,
            (false, false) => QUEUED,
            (false, true) => QUEUED | OPEN,
        }
    }

    /// Returns the entry of a waiter that is queued.
    fn find(&mut self, waiter: &Arc<Waiter>) -> &mut Place {
        let mut places = self.places.iter_mut();
        places.find(|place| Arc::ptr_eq(&place.waiter, waiter)).expect("it is queued until granted")
    }
}

/// Returns whether newcomers have to queue.
#[inline]
fn is_closed(word: usize) -> bool {
    word & (QUEUED | OPEN) == QUEUED
}

/// Returns the word after a thread enters in `mode`; `None` if the holders exclude it.
#[inline]
fn entered(word: usize, mode: Mode) -> Option<usize> {
    match mode {
        Mode::Read => (word & WRITER == 0).then_some(word + READER),
        Mode::Write => (word & !(QUEUED | OPEN) == 0).then_some(word | WRITER),
    }
}

/// Sends signals, outside the queue's mutex, which the woken threads may need; returns their
/// number.
fn give(signals: Signals) -> usize {
    let count = signals.len();
    for (waiter, signal) in signals {
        waiter.give(signal);
    }
    count
}
