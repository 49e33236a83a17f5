//! The range lock of a file: locks byte ranges, shared or exclusive.
//!
//! 1. Two requests conflict where their ranges overlap and one of them is exclusive.
//! 2. Requests are queued in order of arrival. A request is granted when it conflicts with none
//!    before it, granted or not: so each waits only for earlier ones, and none starves.
//! 3. A thread locks one range of a file at a time: a second one could wait for a thread that waits
//!    for the first.

use std::collections::VecDeque;
use std::ops::Range;

use userbtrfs_sync::order::{Held, Identity};
use userbtrfs_sync::{Class, Condvar, Mutex, MutexGuard};

use crate::error::InodeId;

/// A lock of byte ranges of a file, shared or exclusive.
pub(crate) struct RangeLock {
    identity: Identity,
    requests: Mutex<Requests>,
    granted: Condvar,
}

/// The requests that are granted or waiting, in order of arrival.
#[derive(Default)]
struct Requests {
    list: VecDeque<Request>,
    next_serial: u64,
}

struct Request {
    serial: u64,
    range: Range<u64>,
    exclusive: bool,
    granted: bool,
}

impl Request {
    fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && (self.exclusive || other.exclusive)
    }
}

/// Keeps a range locked.
#[must_use = "the range is unlocked when the guard is dropped"]
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    serial: u64,
    _held: Held,
}

impl RangeLock {
    /// Returns the range lock of this file.
    pub(crate) fn new(id: InodeId) -> Self {
        let of = |class| Identity::of_inode(class, id.subvolume.0, id.number);
        Self {
            identity: of(Class::FileRange),
            requests: Mutex::with_identity(of(Class::FileContents), Requests::default()),
            granted: Condvar::new(),
        }
    }

    /// Locks a range of bytes, together with others that lock it shared.
    #[track_caller]
    pub(crate) fn lock_shared(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.lock(range, false)
    }

    /// Locks a range of bytes exclusively.
    #[track_caller]
    pub(crate) fn lock_exclusive(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.lock(range, true)
    }

    /// Like [`RangeLock::lock_shared`]; returns `None` if that would block.
    #[track_caller]
    pub(crate) fn try_lock_shared(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        let mut requests = self.requests.lock();
        let serial = requests.enter(range, false);
        if requests.is_granted(serial) {
            let held = Held::tried(self.identity);
            return Some(RangeGuard { lock: self, serial, _held: held });
        }
        requests.leave(serial);
        None
    }

    #[track_caller]
    fn lock(&self, range: Range<u64>, exclusive: bool) -> RangeGuard<'_> {
        let held = Held::acquire(self.identity);
        let mut requests = self.requests.lock();
        let serial = requests.enter(range, exclusive);
        self.granted.wait_while(&mut requests, |requests| !requests.is_granted(serial));
        RangeGuard { lock: self, serial, _held: held }
    }
}

impl Requests {
    /// Appends a request, and returns its serial number.
    fn enter(&mut self, range: Range<u64>, exclusive: bool) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        let mut request = Request { serial, range, exclusive, granted: false };
        request.granted = !self.list.iter().any(|before| before.conflicts(&request));
        self.list.push_back(request);
        serial
    }

    fn is_granted(&self, serial: u64) -> bool {
        self.list[self.place(serial)].granted
    }

    /// Removes a request, and returns whether others are granted because of that.
    fn leave(&mut self, serial: u64) -> bool {
        self.list.remove(self.place(serial));
        let mut any = false;
        for at in 0..self.list.len() {
            let request = &self.list[at];
            if request.granted || self.list.range(..at).any(|before| before.conflicts(request)) {
                continue;
            }
            (self.list[at].granted, any) = (true, true);
        }
        any
    }

    /// Returns the index of a request. Serials ascend in the list.
    fn place(&self, serial: u64) -> usize {
        let found = self.list.binary_search_by_key(&serial, |request| request.serial);
        found.expect("a request stays until it leaves")
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut requests: MutexGuard<'_, Requests> = self.lock.requests.lock();
        if requests.leave(self.serial) {
            self.lock.granted.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_format::TreeId;
    use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
    use userbtrfs_sync::thread;

    use super::*;

    fn lock() -> RangeLock {
        RangeLock::new(InodeId { subvolume: TreeId::FS, number: 257 })
    }

    /// Enters a request as another thread would, and returns whether it is granted at once.
    fn enter(lock: &RangeLock, range: Range<u64>, exclusive: bool) -> (u64, bool) {
        let mut requests = lock.requests.lock();
        let serial = requests.enter(range, exclusive);
        (serial, requests.is_granted(serial))
    }

    fn is_granted(lock: &RangeLock, serial: u64) -> bool {
        lock.requests.lock().is_granted(serial)
    }

    #[test]
    fn only_overlapping_ranges_of_which_one_is_exclusive_exclude_each_other() {
        let lock = lock();
        let _shared = lock.lock_shared(10..20);
        assert!(lock.try_lock_shared(0..u64::MAX).is_some());
        assert!(enter(&lock, 20..30, true).1);
        assert!(!enter(&lock, 19..20, true).1);
        assert!(lock.try_lock_shared(20..21).is_none());
        assert!(lock.try_lock_shared(0..10).is_some());
    }

    #[test]
    fn later_request_does_not_overtake_waiting_one() {
        let lock = lock();
        let shared = lock.lock_shared(0..10);
        let (writer, granted) = enter(&lock, 5..15, true);
        assert!(!granted);
        assert!(lock.try_lock_shared(8..9).is_none(), "behind the writer");
        let (reader, _) = enter(&lock, 8..9, false);
        let (other, _) = enter(&lock, 8..9, true);
        drop(shared);
        assert!(is_granted(&lock, writer) && !is_granted(&lock, reader));
        assert!(lock.requests.lock().leave(writer));
        assert!(is_granted(&lock, reader) && !is_granted(&lock, other));
        assert!(lock.requests.lock().leave(reader));
        assert!(is_granted(&lock, other));
    }

    /// Threads lock random ranges of `SLOTS` slots; each slot has one writer, or readers.
    #[test]
    fn many_threads_exclude_each_other_slot_by_slot() {
        const SLOTS: u64 = 16;
        let lock = lock();
        let slots: Vec<AtomicUsize> = (0..SLOTS).map(|_| AtomicUsize::new(0)).collect();
        thread::scope(|scope| {
            for seed in 1..=4 {
                let lock = &lock;
                let slots = &slots;
                scope.spawn(move || random_locks(lock, slots, seed));
            }
        });
        assert!(lock.requests.lock().list.is_empty());
    }

    fn random_locks(lock: &RangeLock, slots: &[AtomicUsize], seed: u64) {
        const WRITER: usize = 1 << 16;
        let mut random = seed;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = random >> 60;
            let end = (start + 1 + (random >> 40) % 8).min(slots.len() as u64);
            let exclusive = (random >> 33).is_multiple_of(3);
            let guard = lock.lock(start..end, exclusive);
            let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
            let by = if exclusive { WRITER } else { 1 };
            for slot in &slots[range.clone()] {
                let before = slot.fetch_add(by, Ordering::Relaxed);
                assert!(before == 0 || (!exclusive && before < WRITER));
            }
            for slot in &slots[range] {
                slot.fetch_sub(by, Ordering::Relaxed);
            }
            drop(guard);
        }
    }
}
