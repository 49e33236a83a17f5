//! A freeze of name changes while a log commit logs its stale inodes again.
//!
//! 1. A thread that waits here holds no lock and is in no transaction, so the freezing thread never
//!    waits for it.
//! 2. A thread that has passed the wait continues: names may still change for a moment.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Condvar, Mutex};

/// The freezes of name changes that are in effect.
pub(in crate::inode) struct NamespaceFreezes {
    /// Whether there is a freeze; read without the lock.
    hint: AtomicBool,
    count: Mutex<usize>,
    over: Condvar,
}

/// A guard that freezes name changes until it is dropped.
pub(crate) struct NamespaceFreeze<'a>(&'a NamespaceFreezes);

impl NamespaceFreezes {
    pub(in crate::inode) fn new() -> Self {
        let count = Mutex::new(Class::CacheShard, 0);
        Self { hint: AtomicBool::new(false), count, over: Condvar::new() }
    }

    pub(in crate::inode) fn begin(&self) -> NamespaceFreeze<'_> {
        *self.count.lock() += 1;
        self.hint.store(true, Ordering::Release);
        NamespaceFreeze(self)
    }

    /// Waits until there is no freeze.
    #[inline]
    pub(in crate::inode) fn wait(&self) {
        if self.hint.load(Ordering::Acquire) {
            let mut count = self.count.lock();
            self.over.wait_while(&mut count, |count| *count > 0);
        }
    }
}

impl Drop for NamespaceFreeze<'_> {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.hint.store(false, Ordering::Release);
            self.0.over.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use userbtrfs_sync::thread;

    use super::*;

    #[test]
    fn waiter_continues_after_last_freeze_ends() {
        let pauses = NamespaceFreezes::new();
        let passed = AtomicBool::new(false);
        pauses.wait();
        thread::scope(|scope| {
            let first = pauses.begin();
            let second = pauses.begin();
            scope.spawn(|| {
                pauses.wait();
                passed.store(true, Ordering::Release);
            });
            drop(first);
            thread::sleep(Duration::from_millis(50));
            assert!(!passed.load(Ordering::Acquire), "one is left");
            drop(second);
        });
        assert!(passed.into_inner());
        pauses.wait();
    }
}
