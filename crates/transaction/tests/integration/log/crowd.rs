//! Many threads log at once: log commits, and concurrent commits.

use std::thread;
use std::time::Duration;

use userbtrfs_device::{Device, Request, Ticket};
use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};
use userbtrfs_testkit::devices::{PausedDevice, RecordingDevice};
use userbtrfs_testkit::sleeping_threads::SleepingThreads;
use userbtrfs_testkit::test_env::until;

use super::*;

const THREADS: u64 = 16;

/// A device that calls `watch` before each batch.
struct Watched<F> {
    inner: Arc<dyn Device>,
    watch: F,
}

impl<F: Fn(&[Request]) + Send + Sync> Device for Watched<F> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        (self.watch)(&batch);
        self.inner.submit(batch)
    }
}

/// Returns the superblock that a batch writes to the primary offset.
fn written_superblock(batch: &[Request]) -> Option<Superblock> {
    let primary = SUPERBLOCK_OFFSETS[0];
    batch.iter().find_map(|request| match request {
        Request::Write { offset, buffer, .. } if *offset == primary.0 => {
            Some(Superblock::parse(buffer, primary).unwrap())
        }
        _ => None,
    })
}

#[test]
fn synced_items_are_on_device_whatever_other_threads_do() {
    let device = Arc::new(image("fresh").to_device());
    let transactions = open_on(Arc::clone(&device) as _, TransactionOptions::default()).unwrap();
    let is_done = AtomicBool::new(false);
    let in_full = AtomicU64::new(0);
    let work = |thread: u64| {
        for turn in 0..40 {
            let edits = attributes([thread * 1000 + turn], 100);
            apply(&transactions, edits.clone());
            if log(&transactions, TreeId::FS, &mut edits.clone()).is_err() {
                transactions.commit().unwrap();
                in_full.fetch_add(1, Ordering::Relaxed);
            }
            if turn % 8 == thread % 8 {
                shows(&device.image(), TreeId::FS, &edits);
            }
        }
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                transactions.commit().unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let ends: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok));
    });
    let stats = transactions.log_stats();
    println!("{stats:?}");
    let logged = stats.log_commits + stats.shared;
    assert_eq!(logged + in_full.load(Ordering::Relaxed), THREADS * 40);
    assert!(logged > THREADS * 20, "{logged} were logged");
    transactions.close().unwrap();
    let all: Vec<_> = (0..THREADS).flat_map(|at| at * 1000..at * 1000 + 40).collect();
    shows(&device.image(), TreeId::FS, &attributes(all, 100));
}

/// Each round, one thread syncs, and the device is held until the others wait for its log commit:
/// one of them then writes the next one for all.
#[test]
fn concurrent_syncs_share_superblocks() {
    const ROUNDS: u64 = 20;
    let supers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&supers);
    let watch = move |batch: &[Request]| {
        if written_superblock(batch).is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    let device = Watched { inner: Arc::new(image("fresh").to_device()), watch };
    let held = Arc::new(PausedDevice::new(Arc::new(device)));
    let transactions = open_on(held.clone(), TransactionOptions::default()).unwrap();
    for round in 0..ROUNDS {
        let sync = |thread| {
            let mut edits = attributes([thread * 1000 + round], 100);
            log(&transactions, TreeId::FS, &mut edits).unwrap();
        };
        let others = SleepingThreads::default();
        held.hold();
        thread::scope(|scope| {
            scope.spawn(|| sync(0));
            until("a log commit to be written", || held.is_waited_for());
            for thread in 1..THREADS {
                let others = &others;
                scope.spawn(move || {
                    others.add();
                    sync(thread);
                });
            }
            others.wait(usize::try_from(THREADS - 1).unwrap());
            held.release();
        });
    }
    let stats = transactions.log_stats();
    println!("{stats:?}");
    assert_eq!((stats.log_commits, stats.shared), (2 * ROUNDS, (THREADS - 2) * ROUNDS));
    assert_eq!(supers.load(Ordering::Relaxed), stats.log_commits);
    assert_eq!(stats.waits_for_log_commit, ROUNDS);
}

/// Holds back superblocks without a log.
struct Held {
    is_open: Mutex<bool>,
    changed: Condvar,
    waits: AtomicBool,
}

impl Held {
    fn pass(&self, batch: &[Request]) {
        if written_superblock(batch).is_some_and(|superblock| superblock.log_root.is_none()) {
            let mut is_open = self.is_open.lock();
            self.waits.store(true, Ordering::Release);
            while !*is_open {
                self.changed.wait_idle(&mut is_open);
            }
        }
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.changed.notify_all();
    }
}

/// Opens when it is dropped, also if a test has failed: no thread may wait for ever.
struct Opens<'a>(&'a Held);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn log_superblock_is_written_after_previous_one() {
    let recording = Arc::new(RecordingDevice::on(&image("fresh")));
    let changed = Condvar::new();
    let waits = AtomicBool::new(false);
    let is_open = Mutex::new(Class::TransactionState, false);
    let held = Arc::new(Held { is_open, changed, waits });
    let holder = Arc::clone(&held);
    let watch = move |batch: &[Request]| holder.pass(batch);
    let device = Watched { inner: Arc::clone(&recording) as _, watch };
    let transactions = open_on(Arc::new(device), TransactionOptions::default()).unwrap();
    let generation = transactions.generation();
    let committed = attributes(0..50, 100);
    let logged = attributes(50..90, 100);
    apply(&transactions, committed.clone());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let opens = Opens(&held);
        scope.spawn(|| transactions.commit().unwrap());
        until("a commit to be written", || held.waits.load(Ordering::Acquire));
        let before = recording.log().len();
        let mut edits = logged.clone();
        let transactions = &transactions;
        let done = &done;
        let syncs = scope.spawn(move || {
            log(transactions, TreeId::FS, &mut edits).unwrap();
            done.store(true, Ordering::Release);
        });
        until("a wait for the commit", || transactions.log_stats().waits_for_commit == 1);
        thread::sleep(Duration::from_millis(20));
        assert!(!done.load(Ordering::Acquire), "it waits for the superblock");
        let events: Vec<_> = recording.log().into_iter().skip(before).collect();
        let is_node = |event: &Event| matches!(event, Event::Write { .. });
        assert!(events.iter().any(|recorded| is_node(&recorded.event)), "nodes do not wait");
        assert!(events.iter().all(|recorded| superblock(&recorded.event).is_none()));
        drop(opens);
        syncs.join().unwrap();
    });
    let events = recording.log();
    let supers: Vec<_> = events.iter().filter_map(|recorded| superblock(&recorded.event)).collect();
    let [first, second] = &supers[..] else { panic!("{} superblocks", supers.len()) };
    assert_eq!((first.generation, first.log_root), (generation, None));
    assert_eq!(second.generation, generation);
    let mut stripped = second.clone();
    stripped.log_root = None;
    stripped.log_root_level = 0;
    let bytes = [&stripped, first].map(|superblock| superblock.encode(SUPERBLOCK_OFFSETS[0]));
    assert!(bytes[0] == bytes[1], "nothing else is changed");
    shows(&recording.recording().end(), TreeId::FS, &[committed, logged].concat());
}
