//! Group commit of changes of logs: which thread writes a log commit, and which threads wait for
//! it.
//!
//! 1. Log commits are numbered by `log_transid`. Changes belong to the one that is *collecting*;
//!    all before it are durable, except at most one, which is being written.
//! 2. A log commit has one leader: the first thread that syncs it while no other log commit is
//!    being written. The leader closes the log commit, writes it, and reports how that ended.
//! 3. A thread that syncs a log commit that is being written, or that is collecting while another
//!    is being written, sleeps. The end of a log commit wakes all threads that wait for it, after
//!    one of those that wait for the next. They receive the result without taking a lock: of a
//!    thousand threads none waits for another one to run.
//! 4. A failure is that of the log commit and of all after it, until `renew`: these depend on what
//!    was not written. A leader that is dropped without a result has failed.
//! 5. A change can have *pending I/O*: something that must complete as well. The leader
//!    waits for the pending I/O of its log commit; if any fails, the log commit fails.
//!
//! This module knows nothing of trees, transactions or devices.

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(test)]
mod world;

use userbtrfs_sync::{Class, Condvar, Mutex, OneshotReceiver, OneshotSender};

/// The log commits of the running transaction; `F` is the reason why a log commit failed.
pub(crate) struct LogCommits<F> {
    state: Mutex<State<F>>,
    /// Wakes the leader that waits for pending I/O.
    settled: Condvar,
    /// The failure of a log commit whose leader was dropped.
    abandoned: F,
}

struct State<F> {
    collecting: u64,
    /// The last log commit that is durable.
    durable: u64,
    has_leader: bool,
    /// True if a thread waited when the last log commit ended.
    is_shared: bool,
    /// The number of pending I/Os in the log commits of even and of odd numbers.
    pending_io: [usize; 2],
    /// The threads that wait for these log commits.
    waiting: [Vec<Waiting<F>>; 2],
    /// The first log commit that failed.
    failed: Option<(u64, F)>,
}

/// Wakes a waiting thread with the result of its log commit, or with `None` to check again.
type Waiting<F> = OneshotSender<Option<Result<(), F>>>;

/// The result of joining a log commit.
pub(crate) enum JoinOutcome<'g, F: Clone> {
    /// The log commit is durable, or failed.
    Ended(Result<(), F>),
    /// The caller leads the log commit.
    Lead(LogCommitLeader<'g, F>),
}

/// The duty to write a log commit.
#[must_use = "a log commit whose leader is gone has failed"]
pub(crate) struct LogCommitLeader<'g, F: Clone> {
    commits: &'g LogCommits<F>,
    log_transid: u64,
    has_waited: bool,
    has_ended: bool,
}

/// Pending I/O of a log commit.
#[must_use = "pending I/O that is dropped has failed"]
pub(crate) struct PendingIo<'g, F: Clone> {
    commits: &'g LogCommits<F>,
    log_transid: u64,
    has_ended: bool,
}

impl<F> State<F> {
    fn fail(&mut self, log_transid: u64, failure: F) {
        if self.failed.as_ref().is_none_or(|(first, _)| log_transid < *first) {
            self.failed = Some((log_transid, failure));
        }
    }

    /// Takes all waiting threads.
    fn take_waiting(&mut self) -> Vec<Waiting<F>> {
        self.waiting.iter_mut().flat_map(std::mem::take).collect()
    }
}

impl<F: Clone> State<F> {
    /// Returns how a log commit ended; `None` if it has not.
    fn end(&self, log_transid: u64) -> Option<Result<(), F>> {
        assert!(log_transid <= self.collecting, "a log commit that has not begun");
        let failed = self.failed.as_ref().filter(|(first, _)| log_transid >= *first);
        match failed {
            Some((_, failure)) => Some(Err(failure.clone())),
            None => (log_transid <= self.durable).then_some(Ok(())),
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

    /// Returns the log commit that changes belong to. It remains so while the caller prevents
    /// leaders from closing it.
    pub(crate) fn collecting(&self) -> u64 {
        self.state.lock().collecting
    }

    /// Adds pending I/O to the log commit that changes belong to; the caller prevents leaders from
    /// closing it.
    pub(crate) fn pending_io(&self) -> PendingIo<'_, F> {
        let mut state = self.state.lock();
        let log_transid = state.collecting;
        state.pending_io[index(log_transid)] += 1;
        PendingIo { commits: self, log_transid, has_ended: false }
    }

    /// Makes the caller the leader of a log commit; `None` if it would have to wait or the log
    /// commit has ended.
    pub(crate) fn try_lead(&self, log_transid: u64) -> Option<LogCommitLeader<'_, F>> {
        let mut state = self.state.lock();
        let is_free = state.end(log_transid).is_none() && !state.has_leader;
        is_free.then(|| self.lead(&mut state, log_transid, false))
    }

    fn lead(
        &self,
        state: &mut State<F>,
        log_transid: u64,
        has_waited: bool,
    ) -> LogCommitLeader<'_, F> {
        assert_eq!(log_transid, state.collecting, "what is closed has a leader");
        state.has_leader = true;
        LogCommitLeader { commits: self, log_transid, has_waited, has_ended: false }
    }

    /// Waits until a log commit is durable or failed, or until the caller leads it.
    pub(crate) fn join(&self, log_transid: u64) -> JoinOutcome<'_, F> {
        let mut has_waited = false;
        loop {
            let mut state = self.state.lock();
            if let Some(end) = state.end(log_transid) {
                return JoinOutcome::Ended(end);
            }
            if !state.has_leader {
                return JoinOutcome::Lead(self.lead(&mut state, log_transid, has_waited));
            }
            let (sleeper, waker) = OneshotReceiver::new();
            state.waiting[index(log_transid)].push(waker);
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
        assert!(!state.has_leader, "no thread writes a log commit any more");
        assert_eq!(state.pending_io, [0; 2], "no thread is in the transaction any more");
        state.durable = state.collecting;
        state.collecting += 1;
        state.failed = None;
    }

    /// Ends pending I/O of a log commit; an error fails the log commit.
    fn settle(&self, log_transid: u64, result: Result<(), F>) {
        let mut state = self.state.lock();
        state.pending_io[index(log_transid)] -= 1;
        let failed = result.map_err(|failure| {
            state.fail(log_transid, failure);
            state.take_waiting()
        });
        drop(state);
        self.settled.notify_one();
        if let Err(waiting) = failed {
            wake_all(waiting, None);
        }
    }

    fn end(&self, log_transid: u64, result: Result<(), F>) {
        let mut state = self.state.lock();
        state.has_leader = false;
        match result {
            Ok(()) => {
                assert!(log_transid < state.collecting, "it was closed");
                state.durable = log_transid;
                state.is_shared = state.waiting.iter().any(|waiting| !waiting.is_empty());
                let next = state.waiting[index(log_transid + 1)].pop();
                let waiting = std::mem::take(&mut state.waiting[index(log_transid)]);
                drop(state);
                wake_all(next, None);
                wake_all(waiting, Some(&Ok(())));
            }
            Err(failure) => {
                state.fail(log_transid, failure);
                let waiting = state.take_waiting();
                drop(state);
                wake_all(waiting, None);
            }
        }
    }
}

impl<F: Clone> LogCommitLeader<'_, F> {
    /// Returns true if the leader waited for the previous log commit.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Returns true if other threads sync at the same time: one waited when the last log commit
    /// ended.
    pub(crate) fn is_shared(&self) -> bool {
        self.commits.state.lock().is_shared
    }

    /// Closes the log commit: from now on changes belong to the next one.
    pub(crate) fn close(&self) {
        let mut state = self.commits.state.lock();
        assert_eq!(self.log_transid, state.collecting, "a log commit is closed once");
        state.collecting += 1;
    }

    /// Waits for all pending I/O of the log commit, which is closed; returns the failure if any
    /// failed.
    pub(crate) fn gather(&self) -> Result<(), F> {
        let mut state = self.commits.state.lock();
        assert!(self.log_transid < state.collecting, "it was closed");
        while state.pending_io[index(self.log_transid)] > 0 {
            self.commits.settled.wait_idle(&mut state);
        }
        state.end(self.log_transid).unwrap_or(Ok(()))
    }

    /// Ends the log commit, which is durable or has failed.
    pub(crate) fn end(mut self, result: Result<(), F>) {
        self.has_ended = true;
        self.commits.end(self.log_transid, result);
    }
}

impl<F: Clone> Drop for LogCommitLeader<'_, F> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.commits.end(self.log_transid, Err(self.commits.abandoned.clone()));
        }
    }
}

impl<F: Clone> PendingIo<'_, F> {
    /// Ends the pending I/O, which has completed or failed.
    pub(crate) fn end(mut self, result: Result<(), F>) {
        self.has_ended = true;
        self.commits.settle(self.log_transid, result);
    }
}

impl<F: Clone> Drop for PendingIo<'_, F> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.commits.settle(self.log_transid, Err(self.commits.abandoned.clone()));
        }
    }
}

/// Returns the slot of a log commit, of two: at most one is being written while the next one
/// collects.
fn index(log_transid: u64) -> usize {
    usize::from(!log_transid.is_multiple_of(2))
}

fn wake_all<F: Clone>(waiting: impl IntoIterator<Item = Waiting<F>>, end: Option<&Result<(), F>>) {
    waiting.into_iter().for_each(|one| one.wake(end.cloned()));
}
