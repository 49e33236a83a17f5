//! Threads that help a thread to compress or to decompress.
//!
//! 1. There are never more of them than processors besides that of the first caller, whatever the
//!    number of callers: a caller without a helper does all the work itself.
//! 2. They live as long as one call, and work on memory alone: they take no lock.

use std::thread;

use userbtrfs_sync::atomic::{AtomicUsize, Ordering};

/// The most helpers.
const HELPERS_MAX: usize = 7;

/// The number of threads that may still be started.
pub(in crate::data) struct Helpers {
    free: AtomicUsize,
}

/// A number of threads that may be started until it is dropped.
struct Permit<'a> {
    helpers: &'a Helpers,
    count: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.helpers.free.fetch_add(self.count, Ordering::Relaxed);
    }
}

impl Helpers {
    /// Returns as many helpers as there are processors for them.
    pub(in crate::data) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self { free: AtomicUsize::new((processors - 1).min(HELPERS_MAX)) }
    }

    fn take(&self, wanted: usize) -> Permit<'_> {
        let rest = |free: usize| free.checked_sub(wanted.min(free));
        let free = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).unwrap_or(0);
        Permit { helpers: self, count: wanted.min(free) }
    }

    /// Returns the results of `work` for each item, in order; several threads work if there are
    /// several items.
    pub(in crate::data) fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let permit = self.take(items.len().saturating_sub(1));
        let next = AtomicUsize::new(0);
        let part = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else { break done };
                done.push((index, work(item)));
            }
        };
        let mut done = thread::scope(|scope| {
            let start = |_| {
                let helper = thread::Builder::new().name("helper".to_owned());
                // The threads that do run take the items.
                helper.spawn_scoped(scope, part).ok()
            };
            let helpers: Vec<_> = (0..permit.count).filter_map(start).collect();
            let mut done = part();
            for helper in helpers {
                done.extend(helper.join().expect("the work does not panic"));
            }
            done
        });
        done.sort_unstable_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_whatever_the_number_of_helpers() {
        for free in [0, 1, 3] {
            let helpers = Helpers { free: AtomicUsize::new(free) };
            for len in [0, 1, 2, 100] {
                let items: Vec<usize> = (0..len).collect();
                assert_eq!(helpers.map(&items, |item| item + 1), (1..=len).collect::<Vec<_>>());
                assert_eq!(helpers.free.load(Ordering::Relaxed), free);
            }
        }
    }
}
