//! The handshake of those whose changes of logs are written together.
//!
//! 1. Groups are numbered. What is changed belongs to the one that is *collecting*; all before it
//!    are durable but at most one, which is being written.
//! 2. A group has one leader: the first who wants it durable while no other group is being written.
//!    It closes the group, writes it, and says how that ended.
//! 3. Who wants a group durable that is being written, or collecting while another is being
//!    written, sleeps. The end of a group wakes all who wait for it, and before them one of those
//!    who wait for the next. They are told how it ended, and need no lock for that: of a thousand
//!    none waits for another one to run.
//! 4. A failure is that of the group and of all after it, until logs begin anew: these rest on what
//!    was not written. A leader that is gone has failed.
//! 5. Who changes something may give a *pledge* with it, that something else will be so. The leader
//!    waits for the pledges of its group, and whoever breaks one fails the group.
//!
//! What it does not do: it knows nothing of trees, of transactions or of devices.

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(test)]
mod world;

use userbtrfs_sync::{Class, Condvar, Mutex, OneshotReceiver, OneshotSender};

/// Where changes of logs gather; `F` says how a group failed.
pub(crate) struct LogCommits<F> {
    state: Mutex<State<F>>,
    /// For the leader, who waits for pledges.
    settled: Condvar,
    /// How a group fails whose leader is gone.
    abandoned: F,
}

struct State<F> {
    collecting: u64,
    /// The last group that is durable.
    durable: u64,
    has_leader: bool,
    /// Whether somebody waited when the last group ended.
    is_shared: bool,
    /// How many pledges are open in the groups of even and of odd numbers.
    pledged: [usize; 2],
    /// Who waits for them.
    waiting: [Vec<Waiting<F>>; 2],
    /// The first group that failed.
    failed: Option<(u64, F)>,
}

/// One who waits: is told how the group ended, or else to look again.
type Waiting<F> = OneshotSender<Option<Result<(), F>>>;

/// What one becomes who wants a group durable.
pub(crate) enum JoinOutcome<'g, F: Clone> {
    /// It is durable, or failed.
    Ended(Result<(), F>),
    /// Its leader.
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

/// What was promised to a group.
#[must_use = "a pledge that is dropped is broken"]
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

    /// All who wait.
    fn take_waiting(&mut self) -> Vec<Waiting<F>> {
        self.waiting.iter_mut().flat_map(std::mem::take).collect()
    }
}

impl<F: Clone> State<F> {
    /// How a group ended, if it has.
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
    /// Nothing is changed yet.
    pub(crate) fn new(abandoned: F) -> Self {
        let state = State {
            collecting: 1,
            durable: 0,
            has_leader: false,
            is_shared: false,
            pledged: [0; 2],
            waiting: [Vec::new(), Vec::new()],
            failed: None,
        };
        let state = Mutex::new(Class::TransactionState, state);
        Self { state, settled: Condvar::new(), abandoned }
    }

    /// The group that changes belong to. It stays so while the caller keeps leaders from closing
    /// it.
    pub(crate) fn collecting(&self) -> u64 {
        self.state.lock().collecting
    }

    /// Promises something to the group that changes belong to; the caller keeps leaders from
    /// closing it.
    pub(crate) fn pending_io(&self) -> PendingIo<'_, F> {
        let mut state = self.state.lock();
        let group = state.collecting;
        state.pledged[index(group)] += 1;
        PendingIo { groups: self, group, has_ended: false }
    }

    /// The duty to write a group, where that is to be had without waiting.
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

    /// Waits until a group is durable or failed, or until the caller is to write it.
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

    /// Begins anew: all that was collected is durable by other means. Nobody waits.
    pub(crate) fn renew(&self) {
        let mut state = self.state.lock();
        assert!(!state.has_leader, "nobody writes a group any more");
        assert_eq!(state.pledged, [0; 2], "nobody is in the transaction any more");
        state.durable = state.collecting;
        state.collecting += 1;
        state.failed = None;
    }

    /// A pledge is kept, or broken.
    fn settle(&self, group: u64, result: Result<(), F>) {
        let mut state = self.state.lock();
        state.pledged[index(group)] -= 1;
        let broken = result.map_err(|failure| {
            state.fail(group, failure);
            state.take_waiting()
        });
        drop(state);
        self.settled.notify_one();
        if let Err(waiting) = broken {
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
    /// Whether it waited for the group before.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Whether others sync at the same time: somebody waited when the last group ended.
    pub(crate) fn is_shared(&self) -> bool {
        self.groups.state.lock().is_shared
    }

    /// From now on changes belong to the next group.
    pub(crate) fn close(&self) {
        let mut state = self.groups.state.lock();
        assert_eq!(self.group, state.collecting, "a group is closed once");
        state.collecting += 1;
    }

    /// Waits for all pledges of the group, which is closed; gives how one was broken.
    pub(crate) fn gather(&self) -> Result<(), F> {
        let mut state = self.groups.state.lock();
        assert!(self.group < state.collecting, "it was closed");
        while state.pledged[index(self.group)] > 0 {
            self.groups.settled.wait_idle(&mut state);
        }
        state.end(self.group).unwrap_or(Ok(()))
    }

    /// The group is durable, or has failed.
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
    /// What was promised is so, or it will never be.
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

/// By which of two a group is kept: at most one is being written while the next one collects.
fn index(group: u64) -> usize {
    usize::from(!group.is_multiple_of(2))
}

fn wake_all<F: Clone>(waiting: impl IntoIterator<Item = Waiting<F>>, end: Option<&Result<(), F>>) {
    waiting.into_iter().for_each(|one| one.wake(end.cloned()));
}
