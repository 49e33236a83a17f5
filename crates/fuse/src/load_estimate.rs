//! Whether requests come one at a time.
//!
//! A program that waits for each answer is served soonest by the one thread that served it last:
//! any other has to be woken, on a processor that knows nothing of the request. Many programs at
//! once are served soonest by as many threads as there are processors, and some in reserve.
//!
//! 1. A request that comes while another waits for its answer speaks for many, one that comes alone
//!    for one. The first counts for more: in a crowd most requests come alone where each is done
//!    soon, and one program rarely has two.
//! 2. What was lately counts, and a change of mind takes many requests: it wakes threads.

use userbtrfs_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// What a request says that came while another waited. One that came alone says 1 against it: so
/// more than one of 33 has to come beside others. Of one fs_mark it was one of 150, of sixteen one
/// of seven; of one client of dbench one of 2,000, of sixteen nearly all.
const BESIDE: u32 = 32;
const MOST: u32 = 512;
const MANY: u32 = MOST / 2;

#[derive(Debug)]
pub(crate) struct LoadEstimate {
    /// How many requests wait for their answer.
    unanswered: AtomicUsize,
    /// What requests have said lately, up to [`MOST`].
    said: AtomicU32,
}

impl LoadEstimate {
    /// High, until more is known.
    pub(crate) fn new() -> Self {
        Self { unanswered: AtomicUsize::new(0), said: AtomicU32::new(MOST) }
    }

    /// Whether more than one thread is of use.
    pub(crate) fn is_high(&self) -> bool {
        self.said.load(Ordering::Relaxed) > MANY
    }

    /// A request has come, and nobody has begun with it; true if that changes the answer of
    /// [`is_high`](Self::is_high).
    pub(crate) fn note(&self) -> bool {
        let is_alone = self.unanswered.load(Ordering::Relaxed) == 0;
        let next = |said: u32| {
            if is_alone { said.saturating_sub(1) } else { MOST.min(said.saturating_add(BESIDE)) }
        };
        // What stays as it is is not written: all threads come by here.
        let change = |said| Some(next(said)).filter(|next| *next != said);
        let changed = self.said.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        changed.is_ok_and(|said| (said > MANY) != (next(said) > MANY))
    }

    /// A request waits for its answer.
    pub(crate) fn begin(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    /// A request is about to be answered: who asked may ask for the next thing before the call that
    /// answers has returned.
    pub(crate) fn end(&self) {
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that waits all the while, or none.
    fn set_beside(load_estimate: &LoadEstimate, is_beside: bool) {
        load_estimate.unanswered.store(usize::from(is_beside), Ordering::Relaxed);
    }

    /// How many requests it takes to change its mind.
    fn until_it_changes(load_estimate: &LoadEstimate) -> u32 {
        let was = load_estimate.is_high();
        let change = (1..=2 * MOST).find(|_| load_estimate.note());
        assert_ne!(load_estimate.is_high(), was, "it says so when it changes");
        change.expect("it changes")
    }

    #[test]
    fn demand_is_high_until_requests_come_one_at_a_time() {
        let load_estimate = LoadEstimate::new();
        assert!(load_estimate.is_high());
        assert_eq!(until_it_changes(&load_estimate), MOST - MANY);
        assert!((0..MOST).all(|_| !load_estimate.note()));
        set_beside(&load_estimate, true);
        assert_eq!(until_it_changes(&load_estimate), MANY / BESIDE + 1);
        assert!((0..MOST).all(|_| !load_estimate.note()));
        set_beside(&load_estimate, false);
        assert_eq!(until_it_changes(&load_estimate), MOST - MANY);
    }

    #[test]
    fn one_request_of_thirty_three_decides() {
        for (alone, is_high) in [(31, true), (33, false)] {
            let load_estimate = LoadEstimate::new();
            for number in 0..20 * MOST {
                set_beside(&load_estimate, number % (alone + 1) == 0);
                load_estimate.note();
            }
            assert_eq!(load_estimate.is_high(), is_high, "one beside others, and {alone} alone");
        }
    }
}
