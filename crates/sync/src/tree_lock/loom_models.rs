//! The tree lock under loom: every interleaving of two or three threads, with two to four
//! preemptions. The cell checks each access, so a violation of exclusion, or a transfer without
//! acquire and release, fails the model; so does a thread that is never woken.

use std::sync::atomic::Ordering;

use loom::thread;

use super::TreeLock;
use super::raw::RawTreeLock;
use crate::class::Class;
use crate::nesting::{BlockLabel, Mode, Nesting};
use crate::order::Identity;
use crate::primitives::Arc;

const LABEL: BlockLabel = BlockLabel { owner: 5, level: 0 };

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Runs each of `others` in its own thread on one lock, and `here` in this one; returns the value.
fn share(others: &[fn(&TreeLock<usize>)], here: fn(&TreeLock<usize>)) -> usize {
    share_lock(TreeLock::new(LABEL, 0), others, here)
}

fn share_lock(
    lock: TreeLock<usize>,
    others: &[fn(&TreeLock<usize>)],
    here: fn(&TreeLock<usize>),
) -> usize {
    let lock = Arc::new(lock);
    let start = |other: &fn(&TreeLock<usize>)| {
        let lock = Arc::clone(&lock);
        let other = *other;
        thread::spawn(move || other(&lock))
    };
    let threads: Vec<_> = others.iter().map(start).collect();
    here(&lock);
    for thread in threads {
        thread.join().expect("loom fails the model itself");
    }
    let lock = Arc::try_unwrap(lock).expect("all others have ended");
    lock.into_inner()
}

fn add_one(lock: &TreeLock<usize>) {
    *lock.write(Nesting::Root) += 1;
}

fn look(lock: &TreeLock<usize>) {
    assert!(*lock.read(Nesting::Root) <= 3);
}

fn look_twice(lock: &TreeLock<usize>) {
    let value = lock.read(Nesting::Root);
    let before = *value;
    thread::yield_now();
    assert_eq!(before, *value);
}

fn add_one_and_keep(lock: &TreeLock<usize>) {
    let mut value = lock.write(Nesting::Root);
    *value += 1;
    let written = *value;
    let value = value.downgrade();
    assert_eq!(*value, written, "a writer came between");
}

fn attempt(lock: &TreeLock<usize>) {
    if let Some(value) = lock.try_read() {
        assert!(*value <= 3);
    }
}

#[test]
fn two_writers() {
    explore(4, || assert_eq!(share(&[add_one], add_one), 2));
}

#[test]
fn three_writers() {
    explore(3, || assert_eq!(share(&[add_one, add_one], add_one), 3));
}

#[test]
fn readers_and_a_writer() {
    explore(3, || assert_eq!(share(&[look_twice, add_one], look), 1));
}

#[test]
fn writers_and_a_reader() {
    explore(3, || assert_eq!(share(&[add_one, look_twice], add_one), 2));
}

#[test]
fn a_downgrade_among_a_writer_and_a_reader() {
    explore(2, || assert_eq!(share(&[add_one, look], add_one_and_keep), 2));
}

#[test]
fn two_downgrades() {
    explore(4, || assert_eq!(share(&[add_one_and_keep], add_one_and_keep), 2));
}

#[test]
fn attempts_among_writers() {
    explore(3, || assert_eq!(share(&[add_one, attempt], add_one), 2));
}

#[test]
fn owned_guards() {
    explore(4, || {
        let lock = Arc::new(TreeLock::new(LABEL, 0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || *TreeLock::write_owned(&other, Nesting::Root) += 1);
        assert!(*TreeLock::read_owned(&lock, Nesting::Root) <= 1);
        thread.join().expect("loom fails the model itself");
        assert_eq!(*TreeLock::read_owned(&lock, Nesting::Root), 1);
    });
}

/// Holds the lock for writing while threads take it in these modes; returns the number of threads
/// that its release woke.
fn wakes(modes: &[Mode]) -> usize {
    let identity = Identity::of(Class::TreeBlock);
    let lock = Arc::new(RawTreeLock::new());
    lock.lock(Mode::Write, identity);
    let start = |mode: &Mode| {
        let lock = Arc::clone(&lock);
        let mode = *mode;
        thread::spawn(move || {
            lock.lock(mode, identity);
            lock.unlock(mode);
        })
    };
    let threads: Vec<_> = modes.iter().map(start).collect();
    let woken = lock.unlock(Mode::Write);
    for thread in threads {
        thread.join().expect("loom fails the model itself");
    }
    woken
}

/// Asserts that the counts of wakes over all interleavings are 0 to `most`, each of them seen.
fn wakes_at_most(most: usize, modes: &'static [Mode]) {
    // Outside the model: std's, which loom neither sees nor resets. One bit for each count.
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let shared = std::sync::Arc::clone(&seen);
    explore(3, move || _ = shared.fetch_or(1 << wakes(modes), Ordering::Relaxed));
    assert_eq!(seen.load(Ordering::Relaxed), (2 << most) - 1);
}

#[test]
fn a_release_wakes_one_writer() {
    wakes_at_most(1, &[Mode::Write, Mode::Write]);
}

#[test]
fn a_release_wakes_all_leading_readers() {
    wakes_at_most(2, &[Mode::Read, Mode::Read]);
}

#[cfg(feature = "experiments")]
mod hand_made {
    use super::*;

    fn share(others: &[fn(&TreeLock<usize>)], here: fn(&TreeLock<usize>)) -> usize {
        share_lock(TreeLock::hand_made(LABEL, 0), others, here)
    }

    #[test]
    fn two_writers() {
        explore(3, || assert_eq!(share(&[add_one], add_one), 2));
    }

    #[test]
    fn three_writers() {
        explore(2, || assert_eq!(share(&[add_one, add_one], add_one), 3));
    }

    #[test]
    fn readers_and_a_writer() {
        explore(2, || assert_eq!(share(&[look_twice, add_one], look), 1));
    }

    #[test]
    fn two_downgrades() {
        explore(3, || assert_eq!(share(&[add_one_and_keep], add_one_and_keep), 2));
    }
}
