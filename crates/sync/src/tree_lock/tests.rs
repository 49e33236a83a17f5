//! Tests of the tree lock with real threads: exclusion, order, fairness, and many threads.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::Duration;

use super::TreeLock;
use super::raw::RawTreeLock;
use crate::class::Class;
use crate::nesting::{BlockLabel, Mode, Nesting};
use crate::order::Identity;

const LABEL: BlockLabel = BlockLabel { owner: 5, level: 0 };

/// The reason why the channels of an actor stay open.
const HERE: &str = "the test and its actor wait for each other";

fn identity() -> Identity {
    Identity::of(Class::TreeBlock)
}

/// Returns the rounds of a stress test: `few`, or `many` if `USERBTRFS_TORTURE` is set.
fn rounds(few: usize, many: usize) -> usize {
    if env::var_os("USERBTRFS_TORTURE").is_some() { many } else { few }
}

/// Waits until `count` threads are queued.
fn until_queued(lock: &RawTreeLock, count: usize) {
    while lock.queued() != count {
        thread::yield_now();
    }
}

/// A thread that takes the lock, reports that it has it, and releases it on request.
struct Actor {
    entered: Receiver<()>,
    leave: Sender<()>,
    woken: Receiver<usize>,
}

impl Actor {
    /// Starts the thread; returns once it is queued, as the `queued`th.
    fn queue<'scope>(
        scope: &'scope Scope<'scope, '_>,
        lock: &'scope RawTreeLock,
        mode: Mode,
        queued: usize,
    ) -> Self {
        let (entered_sender, entered) = channel();
        let (leave, leave_receiver) = channel();
        let (woken_sender, woken) = channel();
        scope.spawn(move || {
            lock.lock(mode, identity());
            entered_sender.send(()).expect(HERE);
            leave_receiver.recv().expect(HERE);
            woken_sender.send(lock.unlock(mode)).expect(HERE);
        });
        until_queued(lock, queued);
        Self { entered, leave, woken }
    }

    fn has_entered(&self) {
        self.entered.recv().expect(HERE);
    }

    fn has_not_entered(&self) {
        assert!(self.entered.recv_timeout(Duration::from_millis(20)).is_err());
    }

    /// Releases the lock; returns the number of threads that it woke.
    fn leaves(&self) -> usize {
        self.leave.send(()).expect(HERE);
        self.woken.recv().expect(HERE)
    }
}

#[test]
fn releases_wake_one_writer_or_the_leading_readers_in_order() {
    let lock = RawTreeLock::new();
    assert!(lock.try_lock(Mode::Write));
    thread::scope(|scope| {
        let reader_1 = Actor::queue(scope, &lock, Mode::Read, 1);
        let reader_2 = Actor::queue(scope, &lock, Mode::Read, 2);
        let writer_3 = Actor::queue(scope, &lock, Mode::Write, 3);
        let writer_4 = Actor::queue(scope, &lock, Mode::Write, 4);
        let reader_5 = Actor::queue(scope, &lock, Mode::Read, 5);

        assert_eq!(lock.unlock(Mode::Write), 2);
        reader_1.has_entered();
        reader_2.has_entered();
        writer_3.has_not_entered();
        reader_5.has_not_entered();

        assert_eq!(reader_1.leaves(), 0);
        writer_3.has_not_entered();
        assert_eq!(reader_2.leaves(), 1);
        writer_3.has_entered();
        writer_4.has_not_entered();
        assert_eq!(writer_3.leaves(), 1);
        writer_4.has_entered();
        reader_5.has_not_entered();
        assert_eq!(writer_4.leaves(), 1);
        reader_5.has_entered();
        assert_eq!(reader_5.leaves(), 0);
    });
    assert!(lock.try_lock(Mode::Write), "it is free again");
}

#[test]
fn a_reader_queues_behind_a_waiting_writer() {
    let lock = RawTreeLock::new();
    assert!(lock.try_lock(Mode::Read));
    thread::scope(|scope| {
        let writer = Actor::queue(scope, &lock, Mode::Write, 1);
        assert!(!lock.try_lock(Mode::Read));
        let reader = Actor::queue(scope, &lock, Mode::Read, 2);
        assert_eq!(lock.unlock(Mode::Read), 1);
        writer.has_entered();
        reader.has_not_entered();
        assert_eq!(writer.leaves(), 1);
        reader.has_entered();
        reader.leaves();
    });
}

#[test]
fn a_downgrade_lets_in_the_leading_readers_and_no_writer() {
    let lock = RawTreeLock::new();
    assert!(lock.try_lock(Mode::Write));
    thread::scope(|scope| {
        let reader = Actor::queue(scope, &lock, Mode::Read, 1);
        let writer = Actor::queue(scope, &lock, Mode::Write, 2);
        assert_eq!(lock.downgrade(), 1);
        reader.has_entered();
        writer.has_not_entered();
        assert_eq!(reader.leaves(), 0);
        writer.has_not_entered();
        assert_eq!(lock.unlock(Mode::Read), 1);
        writer.has_entered();
        writer.leaves();
    });
}

#[test]
fn attempts_respect_holders() {
    let lock = TreeLock::new(LABEL, 1);
    let reader = lock.read(Nesting::Root);
    assert!(lock.try_write().is_none());
    drop(lock.try_read().expect("readers share"));
    drop(reader);
    let writer = lock.try_write().expect("it is free");
    assert!(lock.try_read().is_none());
    let reader = writer.downgrade();
    assert_eq!((*reader, reader.label()), (1, LABEL));
    drop(lock.try_read().expect("downgraded"));
    assert!(lock.try_write().is_none());
}

#[test]
fn owned_guards_outlive_every_other_handle() {
    let lock = Arc::new(TreeLock::new(LABEL, String::from("a")));
    let mut guard = TreeLock::write_owned(&lock, Nesting::Root);
    let weak = Arc::downgrade(&lock);
    drop(lock);
    guard.push('b');
    let guard = guard.downgrade();
    assert_eq!(*guard, "ab");
    drop(guard);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_panic_under_the_lock_releases_it() {
    let lock = TreeLock::new(LABEL, 1);
    let died = thread::scope(|scope| {
        let death = scope.spawn(|| {
            let _guard = lock.write(Nesting::Root);
            panic!("the holder dies");
        });
        death.join().is_err()
    });
    assert!(died && lock.try_write().is_some());
}

/// Keeps eight threads taking and holding the lock until `judge` is done.
fn against_a_stream(mode: Mode, hold: Duration, judge: impl FnOnce(&RawTreeLock)) {
    let lock = RawTreeLock::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    lock.lock(mode, identity());
                    thread::sleep(hold);
                    lock.unlock(mode);
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        judge(&lock);
    });
}

/// Ends the stream, even if `judge` panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_writer_gets_in_while_readers_keep_coming() {
    against_a_stream(Mode::Read, Duration::from_millis(2), |lock| {
        for _ in 0..20 {
            lock.lock(Mode::Write, identity());
            lock.unlock(Mode::Write);
        }
    });
}

#[test]
fn a_reader_gets_in_while_writers_keep_coming() {
    against_a_stream(Mode::Write, Duration::from_micros(50), |lock| {
        for _ in 0..20 {
            lock.lock(Mode::Read, identity());
            lock.unlock(Mode::Read);
        }
    });
}

#[test]
fn a_waiter_is_overtaken_for_one_wake_up_only() {
    let lock = RawTreeLock::new();
    let order = Mutex::new(Vec::new());
    assert!(lock.try_lock(Mode::Write));
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.lock(Mode::Write, identity());
            order.lock().unwrap().push("waiter");
            lock.unlock(Mode::Write);
        });
        until_queued(&lock, 1);
        lock.unlock(Mode::Write);
        let overtook = lock.try_lock(Mode::Write);
        if overtook {
            // The waiter wakes up, finds the lock taken, and closes it.
            while lock.is_open() {
                thread::yield_now();
            }
            order.lock().unwrap().push("newcomer");
            lock.unlock(Mode::Write);
        }
        lock.lock(Mode::Write, identity());
        order.lock().unwrap().push("newcomer again");
        lock.unlock(Mode::Write);
    });
    let order = order.into_inner().unwrap();
    let waiter = order.iter().position(|name| *name == "waiter");
    assert!(waiter < order.iter().position(|name| *name == "newcomer again"), "{order:?}");
}

/// Runs threads that read, write, downgrade and try in turn; asserts that the pair is always equal.
fn crowd(threads: usize, rounds: usize) {
    crowd_on(&Arc::new(TreeLock::new(LABEL, (0, 0))), threads, rounds);
}

fn crowd_on(lock: &Arc<TreeLock<(usize, usize)>>, threads: usize, rounds: usize) {
    let writes = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..threads {
            let writes = &writes;
            scope.spawn(move || {
                for round in 0..rounds {
                    writes.fetch_add(one_turn(lock, thread + round), Ordering::Relaxed);
                }
            });
        }
    });
    let pair = *lock.read(Nesting::Root);
    let writes = writes.into_inner();
    assert_eq!(pair, (writes, writes));
}

/// Takes the lock once, in a way chosen by `kind`; returns the number of writes.
fn one_turn(lock: &Arc<TreeLock<(usize, usize)>>, kind: usize) -> usize {
    let equal = |pair: &(usize, usize)| assert_eq!(pair.0, pair.1);
    match kind % 5 {
        0 | 1 => {
            equal(&lock.read(Nesting::Root));
            0
        }
        2 => {
            let mut pair = TreeLock::write_owned(lock, Nesting::Root);
            pair.0 += 1;
            pair.1 += 1;
            let pair = pair.downgrade();
            equal(&pair);
            1
        }
        3 => lock.try_write().map_or(0, |mut pair| {
            pair.0 += 1;
            pair.1 += 1;
            1
        }),
        _ => {
            let mut pair = lock.write(Nesting::Root);
            pair.0 += 1;
            thread::yield_now();
            pair.1 += 1;
            1
        }
    }
}

#[test]
fn few_threads_many_rounds() {
    crowd(3, rounds(20_000, 2_000_000));
}

#[test]
fn two_hundred_threads() {
    crowd(200, rounds(200, 20_000));
}

#[cfg(feature = "experiments")]
#[test]
fn threads_on_a_hand_made_lock_exclude_each_other() {
    for (threads, rounds) in [(3, rounds(5_000, 500_000)), (50, rounds(100, 10_000))] {
        crowd_on(&Arc::new(TreeLock::hand_made(LABEL, (0, 0))), threads, rounds);
    }
}

#[cfg(feature = "experiments")]
#[test]
fn release_of_a_hand_made_lock_wakes_all_threads() {
    let lock = super::hand_made::HandMadeLock::new();
    lock.lock(Mode::Write, identity());
    thread::scope(|scope| {
        for mode in [Mode::Read, Mode::Write, Mode::Write, Mode::Read] {
            let lock = &lock;
            scope.spawn(move || {
                lock.lock(mode, identity());
                lock.unlock(mode);
            });
        }
        while lock.sleeping() != 4 {
            thread::yield_now();
        }
        assert_eq!(lock.unlock(Mode::Write), 4);
    });
}
