//! A benchmark of the tree lock against `parking_lot::RwLock`: nanoseconds for a free lock, then
//! millions of acquisitions a second by 1 to 16 threads, with all, a tenth, and no writers.
//!
//! `cargo run --release -p userbtrfs-sync --example tree_lock`

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use userbtrfs_sync::{BlockLabel, Nesting, TreeLock};

const SOLO_ROUNDS: u32 = 10_000_000;
const RUN: Duration = Duration::from_millis(300);
/// Steps of work under the lock, about a nanosecond each: a short search in a node.
const WORK: u64 = 200;

/// A lock to measure.
trait Subject: Sync {
    fn read(&self) -> u64;
    fn write(&self, add: u64);
}

impl Subject for TreeLock<u64> {
    fn read(&self) -> u64 {
        work(*TreeLock::read(self, Nesting::Root))
    }

    fn write(&self, add: u64) {
        let mut value = TreeLock::write(self, Nesting::Root);
        *value = work(*value + add);
    }
}

impl Subject for parking_lot::RwLock<u64> {
    fn read(&self) -> u64 {
        work(*parking_lot::RwLock::read(self))
    }

    fn write(&self, add: u64) {
        let mut value = parking_lot::RwLock::write(self);
        *value = work(*value + add);
    }
}

fn work(value: u64) -> u64 {
    (0..WORK).fold(value, |value, step| black_box(value ^ step))
}

fn main() {
    let label = BlockLabel { owner: 5, level: 0 };
    let ours = TreeLock::new(label, 0);
    let theirs = parking_lot::RwLock::new(0);
    println!("free lock, ns an acquisition and release (ours / parking_lot)");
    let read = solo(|| drop(black_box(ours.read(Nesting::Root))));
    println!("  read   {read:6.1} / {:6.1}", solo(|| drop(black_box(theirs.read()))));
    let write = solo(|| drop(black_box(ours.write(Nesting::Root))));
    println!("  write  {write:6.1} / {:6.1}", solo(|| drop(black_box(theirs.write()))));

    println!("shared lock, {WORK} steps held, millions a second and least/most of a thread");
    for writes_of_ten in [10, 1, 0] {
        for threads in [1, 2, 4, 8, 16] {
            let (ours, least) = crowd(&ours, threads, writes_of_ten);
            let (theirs, their_least) = crowd(&theirs, threads, writes_of_ten);
            println!(
                "  writes {writes_of_ten:2}/10, threads {threads:2}: \
                 {ours:7.3} {least:4.2} / {theirs:7.3} {their_least:4.2}"
            );
        }
    }
}

/// Returns the nanoseconds of one call, without contention.
fn solo(call: impl Fn()) -> f64 {
    let start = Instant::now();
    for _ in 0..SOLO_ROUNDS {
        call();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(SOLO_ROUNDS)
}

/// Returns millions of acquisitions a second by all threads, and the ratio of the slowest thread
/// to the fastest.
fn crowd(lock: &impl Subject, threads: usize, writes_of_ten: u64) -> (f64, f64) {
    let stop = AtomicBool::new(false);
    let start = Barrier::new(threads + 1);
    let counts: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let elapsed = thread::scope(|scope| {
        for count in &counts {
            let stop = &stop;
            let start = &start;
            scope.spawn(move || {
                start.wait();
                for round in 0..u64::MAX {
                    if stop.load(Ordering::Relaxed) {
                        return count.store(round, Ordering::Relaxed);
                    }
                    if round % 10 < writes_of_ten { lock.write(1) } else { _ = lock.read() }
                }
            });
        }
        start.wait();
        let since = Instant::now();
        thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
        since
    })
    .elapsed();
    let counts: Vec<f64> =
        counts.iter().map(|count| to_float(count.load(Ordering::Relaxed))).collect();
    let most = counts.iter().copied().fold(1.0, f64::max);
    let least = counts.iter().copied().fold(most, f64::min);
    (counts.iter().sum::<f64>() / elapsed.as_secs_f64() / 1e6, least / most)
}

#[expect(clippy::cast_precision_loss, reason = "counts for print")]
fn to_float(count: u64) -> f64 {
    count as f64
}
