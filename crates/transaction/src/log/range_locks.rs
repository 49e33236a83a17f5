//! Locks of ranges of addresses, for the experiment S2 of docs/seeds.md.

use std::ops::Range;

use userbtrfs_sync::{Class, Condvar, Mutex};

/// Locks of ranges of addresses.
pub(super) struct RangeLocks {
    locked: Mutex<Vec<Range<u64>>>,
    unlocked: Condvar,
}

/// A locked range, until it is dropped.
pub(super) struct LockedRange<'a> {
    locks: &'a RangeLocks,
    range: Range<u64>,
}

impl RangeLocks {
    pub(super) fn new() -> Self {
        let locked = Mutex::new(Class::DelayedRefs, Vec::new());
        Self { locked, unlocked: Condvar::new() }
    }

    /// Waits until no locked range overlaps this one, and locks it.
    pub(super) fn lock(&self, range: Range<u64>) -> LockedRange<'_> {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let mut locked = self.locked.lock();
        while locked.iter().any(overlaps) {
            self.unlocked.wait(&mut locked);
        }
        locked.push(range.clone());
        drop(locked);
        LockedRange { locks: self, range }
    }
}

impl Drop for LockedRange<'_> {
    fn drop(&mut self) {
        self.locks.locked.lock().retain(|range| *range != self.range);
        self.locks.unlocked.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn range_is_locked_only_after_overlapping_one_is_unlocked() {
        let locks = RangeLocks::new();
        let first = locks.lock(10..20);
        drop(locks.lock(20..30));
        thread::scope(|scope| {
            let (locked, is_locked) = channel();
            let locks = &locks;
            scope.spawn(move || {
                let _second = locks.lock(19..21);
                locked.send(()).expect("the test waits for it");
            });
            assert!(is_locked.recv_timeout(Duration::from_millis(50)).is_err());
            drop(first);
            is_locked.recv().expect("it gets the range");
        });
    }
}
