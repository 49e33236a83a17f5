//! Group commit of changes of logs: which thread writes a group, and which threads wait for it.
//!
//! 1. Groups are numbered. Changes belong to the group that is *collecting*; all groups before it
//!    are durable, except at most one, which is being written.
//! 2. A group has one leader: the first thread that syncs it while no other group is being written.
//!    The leader closes the group, writes it, and reports how that ended.
//! 3. A thread that syncs a group that is being written, or that is collecting while another is
//!    being written, sleeps. The end of a group wakes all threads that wait for it, after one of
//!    those that wait for the next. They receive the result without taking a lock: of a thousand
//!    threads none waits for another one to run.
//! 4. A failure is that of the group and of all after it, until `renew`: these depend on what was
//!    not written. A leader that is dropped without a result has failed.
//! 5. A change can have *pending I/O*: something that must complete as well. The leader
//!    waits for the pending I/O of its group; if any fails, the group fails.
//!
//! This module knows nothing of trees, transactions or devices.

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(test)]
mod world;

use userbtrfs_sync::{Class, Condvar, Mutex, OneshotReceiver, OneshotSender};

/// The groups of changes of logs; `F` is the reason why a group failed.
pub(crate) struct LogCommits<F> {
    state: Mutex<State<F>>,
    /// Wakes the leader that waits for pending I/O.
    settled: Condvar,
    /// The failure of a group whose leader was dropped.
    abandoned: F,
}

struct State<F> {
    collecting: u64,
    /// The last group that is durable.
    durable: u64,
    has_leader: bool,
    /// True if a thread waited when the last group ended.
    is_shared: bool,
    /// The number of pending I/Os in the groups of even and of odd numbers.
    pending_io: [usize; 2],
    /// The threads that wait for these groups.
    waiting: [Vec<Waiting<F>>; 2],
    /// The first group that failed.
    failed: Option<(u64, F)>,
}

/// Wakes a waiting thread with the result of its group, or with `None` to check again.
type Waiting<F> = OneshotSender<Option<Result<(), F>>>;

/// The result of joining a group.
pub(crate) enum JoinOutcome<'g, F: Clone> {
    /// The group is durable, or failed.
    Ended(Result<(), F>),
    /// The caller leads the group.
    Lead(LogCommitLeader<'g, F>),
}

/// The duty to write a group.
#[must_use = "a group whose leader is gone has failed"]
pub(crate) struct LogCommitLeader<'g, F: Clone> {
    groups: &'g LogCommits<F>,
    group: u64,
    has_waited: bool,
    has_ended: bool,
}

/// Pending I/O of a group.
#[must_use = "pending I/O that is dropped has failed"]
pub(crate) struct PendingIo<'g, F: Clone> {
    groups: &'g LogCommits<F>,
    group: u64,
    has_ended: bool,
}

impl<F> State<F> {
    fn fail(&mut self, group: u64, failure: F) {
        if self.failed.as_ref().is_none_or(|(first, _)| group < *first) {
            self.failed = Some((group, failure));
        }
    }

    /// Takes all waiting threads.
    fn take_waiting(&mut self) -> Vec<Waiting<F>> {
        self.waiting.iter_mut().flat_map(std::mem::take).collect()
    }
}

impl<F: Clone> State<F> {
    /// Returns how a group ended; `None` if it has not.
    fn end(&self, group: u64) -> Option<Result<(), F>> {
        assert!(group <= self.collecting, "a group that has not begun");
        let failed = self.failed.as_ref().filter(|(first, _)| group >= *first);
        match failed {
            Some((_, failure)) => Some(Err(failure.clone())),
            None => (group <= self.durable).then_some(Ok(())),
        }
    }
}

impl<F: Clone> LogCommits<F> {
    /// Returns the state before any change.
    pub(crate) fn new(abandoned: F) -> Self {
        let state = State {
            collecting: 1,
            durable: 0,
            has_leader: false,
            is_shared: false,
            pending_io: [0; 2],
            waiting: [Vec::new(), Vec::new()],
            failed: None,
        };
        let state = Mutex::new(Class::TransactionState, state);
        Self { state, settled: Condvar::new(), abandoned }
    }

    /// Returns the group that changes belong to. It remains so while the caller prevents leaders
    /// from closing it.
    pub(crate) fn collecting(&self) -> u64 {
        self.state.lock().collecting
    }

    /// Adds pending I/O to the group that changes belong to; the caller prevents leaders from
    /// closing it.
    pub(crate) fn pending_io(&self) -> PendingIo<'_, F> {
        let mut state = self.state.lock();
        let group = state.collecting;
        state.pending_io[index(group)] += 1;
        PendingIo { groups: self, group, has_ended: false }
    }

    /// Makes the caller the leader of a group; `None` if it would have to wait or the group has
    /// ended.
    pub(crate) fn try_lead(&self, group: u64) -> Option<LogCommitLeader<'_, F>> {
        let mut state = self.state.lock();
        let is_free = state.end(group).is_none() && !state.has_leader;
        is_free.then(|| self.lead(&mut state, group, false))
    }

    fn lead(&self, state: &mut State<F>, group: u64, has_waited: bool) -> LogCommitLeader<'_, F> {
        assert_eq!(group, state.collecting, "what is closed has a leader");
        state.has_leader = true;
        LogCommitLeader { groups: self, group, has_waited, has_ended: false }
    }

    /// Waits until a group is durable or failed, or until the caller leads it.
    pub(crate) fn join(&self, group: u64) -> JoinOutcome<'_, F> {
        let mut has_waited = false;
        loop {
            let mut state = self.state.lock();
            if let Some(end) = state.end(group) {
                return JoinOutcome::Ended(end);
            }
            if !state.has_leader {
                return JoinOutcome::Lead(self.lead(&mut state, group, has_waited));
            }
            let (sleeper, waker) = OneshotReceiver::new();
            state.waiting[index(group)].push(waker);
            drop(state);
            if let Some(end) = sleeper.sleep() {
                return JoinOutcome::Ended(end);
            }
            has_waited = true;
        }
    }

    /// Starts again after all that was collected became durable by other means. No thread waits.
    pub(crate) fn renew(&self) {
        let mut state = self.state.lock();
        assert!(!state.has_leader, "no thread writes a group any more");
        assert_eq!(state.pending_io, [0; 2], "no thread is in the transaction any more");
        state.durable = state.collecting;
        state.collecting += 1;
        state.failed = None;
    }

    /// Ends pending I/O of a group; an error fails the group.
    fn settle(&self, group: u64, result: Result<(), F>) {
        let mut state = self.state.lock();
        state.pending_io[index(group)] -= 1;
        let failed = result.map_err(|failure| {
            state.fail(group, failure);
            state.take_waiting()
        });
        drop(state);
        self.settled.notify_one();
        if let Err(waiting) = failed {
            wake_all(waiting, None);
        }
    }

    fn end(&self, group: u64, result: Result<(), F>) {
        let mut state = self.state.lock();
        state.has_leader = false;
        match result {
            Ok(()) => {
                assert!(group < state.collecting, "it was closed");
                state.durable = group;
                state.is_shared = state.waiting.iter().any(|waiting| !waiting.is_empty());
                let next = state.waiting[index(group + 1)].pop();
                let waiting = std::mem::take(&mut state.waiting[index(group)]);
                drop(state);
                wake_all(next, None);
                wake_all(waiting, Some(&Ok(())));
            }
            Err(failure) => {
                state.fail(group, failure);
                let waiting = state.take_waiting();
                drop(state);
                wake_all(waiting, None);
            }
        }
    }
}

impl<F: Clone> LogCommitLeader<'_, F> {
    /// Returns true if the leader waited for the previous group.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Returns true if other threads sync at the same time: one waited when the last group ended.
    pub(crate) fn is_shared(&self) -> bool {
        self.groups.state.lock().is_shared
    }

    /// Closes the group: from now on changes belong to the next one.
    pub(crate) fn close(&self) {
        let mut state = self.groups.state.lock();
        assert_eq!(self.group, state.collecting, "a group is closed once");
        state.collecting += 1;
    }

    /// Waits for all pending I/O of the group, which is closed; returns the failure if any failed.
    pub(crate) fn gather(&self) -> Result<(), F> {
        let mut state = self.groups.state.lock();
        assert!(self.group < state.collecting, "it was closed");
        while state.pending_io[index(self.group)] > 0 {
            self.groups.settled.wait_idle(&mut state);
        }
        state.end(self.group).unwrap_or(Ok(()))
    }

    /// Ends the group, which is durable or has failed.
    pub(crate) fn end(mut self, result: Result<(), F>) {
        self.has_ended = true;
        self.groups.end(self.group, result);
    }
}

impl<F: Clone> Drop for LogCommitLeader<'_, F> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.groups.end(self.group, Err(self.groups.abandoned.clone()));
        }
    }
}

impl<F: Clone> PendingIo<'_, F> {
    /// Ends the pending I/O, which has completed or failed.
    pub(crate) fn end(mut self, result: Result<(), F>) {
        self.has_ended = true;
        self.groups.settle(self.group, result);
    }
}

impl<F: Clone> Drop for PendingIo<'_, F> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.groups.settle(self.group, Err(self.groups.abandoned.clone()));
        }
    }
}

/// Returns the slot of a group, of two: at most one is being written while the next one collects.
fn index(group: u64) -> usize {
    usize::from(!group.is_multiple_of(2))
}

fn wake_all<F: Clone>(waiting: impl IntoIterator<Item = Waiting<F>>, end: Option<&Result<(), F>>) {
    waiting.into_iter().for_each(|one| one.wake(end.cloned()));
}
