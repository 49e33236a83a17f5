//! Interrupted requests, whose callers no longer want to wait.
//!
//! 1. A server that can end a request early calls [`Interrupts::watch`]; an INTERRUPT of any other
//!    request has no effect.
//! 2. An INTERRUPT may overtake the request: it is kept until the request is watched or has ended.
//! 3. One may also come after the end of its request; so only the last [`EARLY_MAX`] are kept, and
//!    none for longer than [`EARLY_LIFE`].
//! 4. Actions run without any lock held.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_sync::{Class, Mutex};

/// The maximum number of interrupts kept for requests that are not watched.
const EARLY_MAX: usize = 64;

/// How long an interrupt of a request not watched is kept.
const EARLY_LIFE: Duration = Duration::from_secs(10);

type Action = Box<dyn FnOnce() + Send>;

/// The actions to run for interrupts, and the interrupts that came early.
pub(crate) struct Interrupts {
    /// The number of entries of the state: `end` takes no lock while it is zero.
    entries: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watched: HashMap<u64, Action>,
    /// Oldest first.
    early: VecDeque<(u64, Instant)>,
}

impl Interrupts {
    pub(crate) fn new() -> Self {
        Self {
            entries: AtomicUsize::new(0),
            state: Mutex::new(Class::FuseSession, State::default()),
        }
    }

    /// Runs `action` when the request is interrupted: now, if it was already.
    pub(crate) fn watch(&self, unique: u64, action: Action) {
        let now = self.change(|state| {
            if state.take_early(unique) {
                return Some(action);
            }
            state.watched.insert(unique, action);
            None
        });
        if let Some(action) = now {
            action();
        }
    }

    /// Handles an INTERRUPT of the request.
    pub(crate) fn interrupt(&self, unique: u64) {
        let action = self.change(|state| {
            let action = state.watched.remove(&unique);
            if action.is_none() {
                state.early.push_back((unique, Instant::now()));
            }
            if state.early.len() > EARLY_MAX {
                state.early.pop_front();
            }
            action
        });
        if let Some(action) = action {
            action();
        }
    }

    /// Forgets a request that is about to be answered.
    pub(crate) fn end(&self, unique: u64) {
        if self.entries.load(Ordering::Acquire) == 0 {
            return;
        }
        // Dropped outside the lock: values that the action owns may take locks.
        let action = self.change(|state| {
            state.take_early(unique);
            state.watched.remove(&unique)
        });
        drop(action);
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        state.drop_old(Instant::now());
        let result = change(&mut state);
        self.entries.store(state.watched.len() + state.early.len(), Ordering::Release);
        result
    }
}

impl State {
    fn take_early(&mut self, unique: u64) -> bool {
        let at = self.early.iter().position(|early| early.0 == unique);
        at.and_then(|at| self.early.remove(at)).is_some()
    }

    fn drop_old(&mut self, now: Instant) {
        let is_old = |came: Instant| now.saturating_duration_since(came) > EARLY_LIFE;
        while self.early.pop_front_if(|early| is_old(early.1)).is_some() {}
    }
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interrupts({})", self.entries.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_sync::Arc;

    use super::*;

    fn counter() -> (Arc<AtomicUsize>, Action) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        (count, Box::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)))
    }

    #[test]
    fn interrupt_of_a_watched_request_runs_its_action_once() {
        let interrupts = Interrupts::new();
        let (count, action) = counter();
        interrupts.watch(2, action);
        interrupts.interrupt(4);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        interrupts.interrupt(2);
        interrupts.interrupt(2);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn interrupt_that_overtakes_its_request_is_kept_for_it() {
        let interrupts = Interrupts::new();
        interrupts.interrupt(2);
        let (count, action) = counter();
        interrupts.watch(2, action);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(interrupts.entries.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn end_of_a_request_removes_its_entries() {
        let interrupts = Interrupts::new();
        let (count, action) = counter();
        interrupts.watch(2, action);
        interrupts.interrupt(4);
        interrupts.end(2);
        interrupts.end(4);
        assert_eq!(interrupts.entries.load(Ordering::Relaxed), 0);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn interrupt_of_an_unwatched_request_expires() {
        let interrupts = Interrupts::new();
        interrupts.interrupt(2);
        let mut state = interrupts.state.lock();
        let now = state.early[0].1;
        state.drop_old(now + EARLY_LIFE);
        assert_eq!(state.early.len(), 1);
        state.drop_old(now + EARLY_LIFE + Duration::from_nanos(1));
        assert!(state.early.is_empty());
    }

    #[test]
    fn interrupts_of_ended_requests_are_bounded() {
        let interrupts = Interrupts::new();
        (0..1000).for_each(|unique| interrupts.interrupt(unique * 2));
        assert_eq!(interrupts.entries.load(Ordering::Relaxed), EARLY_MAX);
    }
}
