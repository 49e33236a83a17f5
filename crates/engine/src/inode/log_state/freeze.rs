//! A pause that who changes names makes for who logs them.
//!
//! 1. Nobody who waits here holds a lock or is in a transaction: who paused waits for nobody.
//! 2. Who is past this point goes on: names may still change for a moment.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Condvar, Mutex};

/// See the module's text.
pub(in crate::inode) struct NamespaceFreezes {
    /// Whether there is one: to be seen without the lock.
    hint: AtomicBool,
    count: Mutex<usize>,
    over: Condvar,
}

/// A pause, until it is dropped.
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

    /// Waits until there is none.
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
    fn who_comes_waits_for_the_end_of_all() {
        let (pauses, passed) = (NamespaceFreezes::new(), AtomicBool::new(false));
        pauses.wait();
        thread::scope(|scope| {
            let (first, second) = (pauses.begin(), pauses.begin());
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
