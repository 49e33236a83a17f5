//! Estimates whether requests come one at a time.
//!
//! A program that waits for each answer is served fastest by the thread that served it last: any
//! other has to be woken, on a CPU with cold caches. Many programs at once are served fastest by
//! as many threads as there are CPUs, and some in reserve.
//!
//! 1. A request that comes while another is unanswered is evidence of many programs, one that comes
//!    alone is evidence of a single one. The first has more weight: if each request is done soon,
//!    most come alone even with many programs, and a single program rarely has two at once.
//! 2. Recent requests count, and a change of the estimate takes many of them: it wakes threads.

use userbtrfs_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The weight of a request that came while another was unanswered; one that came alone has weight
/// -1. So load is high if more than one of 33 is concurrent, between what one program and sixteen
/// do: one of 150 and one of seven with fs_mark, one of 2,000 and nearly all with dbench.
const CONCURRENT_WEIGHT: u32 = 32;
/// The highest score: from it, load is low after 256 requests in a row that come alone, so that
/// many programs which pause for a moment keep their threads.
const SCORE_MAX: u32 = 512;
/// Load is high above this score: from zero that takes nine concurrent requests, so that the few of
/// a single program wake no thread.
const HIGH: u32 = SCORE_MAX / 2;

/// A running estimate of the load of a mount.
#[derive(Debug)]
pub(crate) struct LoadEstimate {
    /// The number of unanswered requests.
    unanswered: AtomicUsize,
    /// The sum of the weights of recent requests, from 0 to [`SCORE_MAX`].
    score: AtomicU32,
}

impl LoadEstimate {
    /// Creates an estimate that is high until requests show otherwise.
    pub(crate) fn new() -> Self {
        Self { unanswered: AtomicUsize::new(0), score: AtomicU32::new(SCORE_MAX) }
    }

    /// Returns true if more than one thread is of use.
    pub(crate) fn is_high(&self) -> bool {
        self.score.load(Ordering::Relaxed) > HIGH
    }

    /// Records a request that was received and not begun; returns true if that changes
    /// [`is_high`](Self::is_high).
    pub(crate) fn note(&self) -> bool {
        let is_sequential = self.unanswered.load(Ordering::Relaxed) == 0;
        let next = |score: u32| {
            if is_sequential {
                score.saturating_sub(1)
            } else {
                SCORE_MAX.min(score.saturating_add(CONCURRENT_WEIGHT))
            }
        };
        // All threads share this word: it is not written if it does not change.
        let change = |score| Some(next(score)).filter(|next| *next != score);
        let changed = self.score.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        changed.is_ok_and(|score| (score > HIGH) != (next(score) > HIGH))
    }

    /// Counts a request that is now unanswered.
    pub(crate) fn begin(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that is about to be answered. Called before the answer is written: the
    /// program may send its next request before that call has returned.
    pub(crate) fn end(&self) {
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets whether another request stays unanswered.
    fn set_concurrent(load_estimate: &LoadEstimate, is_concurrent: bool) {
        load_estimate.unanswered.store(usize::from(is_concurrent), Ordering::Relaxed);
    }

    /// Returns how many requests it takes until `is_high` changes.
    fn until_it_changes(load_estimate: &LoadEstimate) -> u32 {
        let was = load_estimate.is_high();
        let change = (1..=2 * SCORE_MAX).find(|_| load_estimate.note());
        assert_ne!(load_estimate.is_high(), was, "it says so when it changes");
        change.expect("it changes")
    }

    #[test]
    fn load_is_high_until_requests_come_one_at_a_time() {
        let load_estimate = LoadEstimate::new();
        assert!(load_estimate.is_high());
        assert_eq!(until_it_changes(&load_estimate), SCORE_MAX - HIGH);
        assert!((0..SCORE_MAX).all(|_| !load_estimate.note()));
        set_concurrent(&load_estimate, true);
        assert_eq!(until_it_changes(&load_estimate), HIGH / CONCURRENT_WEIGHT + 1);
        assert!((0..SCORE_MAX).all(|_| !load_estimate.note()));
        set_concurrent(&load_estimate, false);
        assert_eq!(until_it_changes(&load_estimate), SCORE_MAX - HIGH);
    }

    #[test]
    fn one_request_of_thirty_three_decides() {
        for (alone, is_high) in [(31, true), (33, false)] {
            let load_estimate = LoadEstimate::new();
            for number in 0..20 * SCORE_MAX {
                set_concurrent(&load_estimate, number % (alone + 1) == 0);
                load_estimate.note();
            }
            assert_eq!(load_estimate.is_high(), is_high, "one beside others, and {alone} alone");
        }
    }
}
