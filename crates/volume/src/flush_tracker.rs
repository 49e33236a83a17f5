//! Tracking of the operations that make writes durable: flushes and FUA superblock writes.
//!
//! The kernel reports a lost write once, to whichever flush comes next, independent of the thread
//! that wrote. So:
//!
//! 1. After one operation fails, all later ones fail: the writes that they cover may be lost.
//! 2. A successful flush alone does not imply durability: the error of one of its writes may have
//!    been reported to another flush in progress. The writes it covers are durable after all of
//!    those have ended and none has failed ([`FlushTracker::check`]).
//! 3. A superblock is written only after such a check, and is followed by another check.

use std::collections::BTreeSet;

use userbtrfs_sync::{Class, Condvar, Mutex};

use crate::error::WriteError;

/// Numbers the operations in progress, and records if one has failed.
pub(crate) struct FlushTracker {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    failed: bool,
    /// The number of operations that have begun.
    begun: u64,
    /// The numbers of the operations in progress.
    under_way: BTreeSet<u64>,
}

impl FlushTracker {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(Class::DeviceQueue, State::default());
        Self { state, changed: Condvar::new() }
    }

    /// Runs an operation that makes writes durable; `name` is the device's name, for errors.
    pub(crate) fn run<R>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<R, WriteError>,
    ) -> Result<R, WriteError> {
        let number = self.begin(name)?;
        let done = work();
        let mut state = self.state.lock();
        state.under_way.remove(&number);
        state.failed |= done.is_err();
        self.changed.notify_all();
        done
    }

    /// Waits for all operations in progress; fails if any operation has ever failed.
    pub(crate) fn check(&self, name: &str) -> Result<(), WriteError> {
        let mut state = self.state.lock();
        let last = state.begun;
        while !state.failed && state.under_way.first().is_some_and(|first| *first <= last) {
            self.changed.wait_idle(&mut state);
        }
        state.check(name)
    }

    fn begin(&self, name: &str) -> Result<u64, WriteError> {
        let mut state = self.state.lock();
        state.check(name)?;
        state.begun += 1;
        let number = state.begun;
        state.under_way.insert(number);
        Ok(number)
    }
}

impl State {
    fn check(&self, name: &str) -> Result<(), WriteError> {
        if self.failed { Err(WriteError::NotDurable { device: name.into() }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use userbtrfs_format::Physical;
    use userbtrfs_sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn failure() -> WriteError {
        WriteError::Stopped { device: "device".into() }
    }

    #[test]
    fn run_after_failure_fails() {
        let barriers = FlushTracker::new();
        barriers.run("device", || Ok(())).unwrap();
        let told = barriers.run("device", || Err::<Physical, _>(failure())).unwrap_err();
        assert!(matches!(told, WriteError::Stopped { .. }), "{told}");
        let told = barriers.run("device", || Ok(())).unwrap_err();
        assert!(matches!(told, WriteError::NotDurable { .. }), "{told}");
    }

    #[test]
    fn check_fails_if_concurrent_operation_fails() {
        let barriers = FlushTracker::new();
        let fails = AtomicBool::new(false);
        let slow_work = || {
            while !fails.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            Err::<(), _>(failure())
        };
        let (quick, slow) = thread::scope(|scope| {
            let slow = scope.spawn(|| barriers.run("device", slow_work));
            while barriers.state.lock().begun == 0 {
                thread::yield_now();
            }
            let quick = barriers.run("device", || Ok(()));
            fails.store(true, Ordering::SeqCst);
            (quick.and_then(|()| barriers.check("device")), slow.join().unwrap())
        });
        assert!(slow.is_err());
        let told = quick.unwrap_err();
        assert!(matches!(told, WriteError::NotDurable { .. }), "{told}");
    }
}
