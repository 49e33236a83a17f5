//! The states of transactions: the handshake between threads that change a transaction and the one
//! that commits it.
//!
//! 1. There are at most two transactions: N + 1, which is *running*, and N, which is being written.
//!    A thread always joins the running one.
//! 2. Every guard that is counted belongs to the running transaction: N is unblocked only when no
//!    guard of it is left, and from then on nothing of it changes.
//! 3. A transaction has one leader, which takes it through its stages, in order, one call each.
//! 4. Each event has its own waiters: a thread that waits for the superblock of N is not woken
//!    before that is durable, whatever else happens to N.
//! 5. A failure is permanent: the first reason is kept, all waiters are woken with it, and no stage
//!    is entered any more. What became durable before it stays durable.
//! 6. A leader that gives up, and a panic while a guard is held, are failures: the half-done
//!    changes are never committed.
//! 7. A thread that changes names does not wait for the device: operations are shut out only when
//!    the threads that wait for it, in this transaction or to write the previous one, are done.
//! 8. A thread is in a transaction once: a guard, and leadership, are entered in the lock order as
//!    a transaction handle. So a leader does not wait for its own guard either.
//!
//! This module knows nothing of trees, space or devices, nor when a commit is due.

mod commit;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, shuttle))]
mod shuttle_models;
mod stage;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(test)]
mod world;

use std::fmt;
use std::thread::panicking;

use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::order::{Held, Identity};
use userbtrfs_sync::{Class, Condvar, Mutex, MutexGuard, OnceLock};

pub(crate) use commit::{Commit, CommitDoing, Open};
use stage::State;
pub(crate) use stage::{Failed, JoinKind};

/// The state of a filesystem's transactions.
pub(crate) struct TransactionState {
    state: Mutex<State>,
    /// The running transaction, for readers without the lock; changed under `state`.
    running: AtomicU64,
    events: StateWaiters,
    /// The callback for a failure.
    on_failure: OnceLock<OnFailure>,
}

/// A callback for a failure. It only passes the failure on, since the failing thread may hold
/// locks.
type OnFailure = Box<dyn Fn(Failed) + Send + Sync>;

/// The events that are waited for, each by its own waiters. A failure wakes all.
#[derive(Default)]
struct StateWaiters {
    /// No guard of the kind that the leader waits for is left. One waiter: the leader.
    drained: Condvar,
    /// The next transaction runs.
    unblocked: Condvar,
    /// The superblock of the transaction that is being written is durable.
    durable: Condvar,
    /// Space that this transaction freed may be reused. One of the waiters is the next leader.
    completed: Condvar,
}

/// The role of a thread that asks for a commit.
#[derive(Debug)]
pub(crate) enum CommitRole<'g> {
    /// The thread commits the transaction.
    Lead(Commit<'g, Open>),
    /// Another thread does, or has: see [`TransactionState::wait_durable`].
    Joined,
}

/// Membership in a transaction, which ends when the guard is dropped, on the thread that joined.
#[derive(Debug)]
#[must_use = "the transaction is left when the guard is dropped"]
pub(crate) struct TransactionGuard<'g> {
    transaction_state: &'g TransactionState,
    kind: JoinKind,
    generation: u64,
    /// True if the thread was panicking already when it joined.
    unwinding: bool,
    // Leaves the thread's list after the transaction is left: fields drop after `drop`.
    _held: Held,
}

impl TransactionState {
    /// Returns a state in which transaction `first` runs; those before it are durable.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            state: Mutex::new(Class::TransactionState, State::new(first)),
            running: AtomicU64::new(first),
            events: StateWaiters::default(),
            on_failure: OnceLock::new(),
        }
    }

    /// Returns the number of the running transaction. Without a guard it may be outdated at once.
    pub(crate) fn generation(&self) -> u64 {
        self.running.load(Ordering::Acquire)
    }

    /// Joins the running transaction; waits while it does not admit guards of this kind.
    #[track_caller]
    pub(crate) fn join(&self, kind: JoinKind) -> Result<TransactionGuard<'_>, Failed> {
        assert!(kind != JoinKind::Commit, "only the leader has guards of this kind");
        let held = Held::acquire(in_transaction());
        let mut state = self.state.lock();
        let is_excluded = |state: &mut State| !state.has_failed() && !state.admits(kind);
        self.events.unblocked.wait_while(&mut state, is_excluded);
        state.check()?;
        let generation = state.join(kind);
        Ok(TransactionGuard {
            transaction_state: self,
            kind,
            generation,
            unwinding: panicking(),
            _held: held,
        })
    }

    /// Asks for the commit of transaction `generation`, from a thread that is in no transaction.
    #[track_caller]
    pub(crate) fn begin_commit(&self, generation: u64) -> Result<CommitRole<'_>, Failed> {
        let held = Held::acquire(in_transaction());
        let mut state = self.state.lock();
        if state.is_durable(generation) {
            return Ok(CommitRole::Joined);
        }
        state.check()?;
        let leads = state.lead(generation);
        drop(state);
        Ok(if leads {
            CommitRole::Lead(Commit::new(self, generation, held))
        } else {
            CommitRole::Joined
        })
    }

    /// Returns true if transaction `generation` runs and no thread commits it.
    pub(crate) fn has_no_leader(&self, generation: u64) -> bool {
        self.state.lock().has_no_leader(generation)
    }

    /// Returns true if the superblock of transaction `generation` is durable.
    pub(crate) fn is_durable(&self, generation: u64) -> bool {
        self.state.lock().is_durable(generation)
    }

    /// Waits until the superblock of transaction `generation` is durable. Does not begin its
    /// commit.
    ///
    /// A thread in the running transaction may wait for the one before it.
    #[track_caller]
    pub(crate) fn wait_durable(&self, generation: u64) -> Result<(), Failed> {
        // A thread in the running transaction that waits for it would wait for itself.
        let _held = (generation >= self.generation()).then(|| Held::acquire(in_transaction()));
        let mut state = self.state.lock();
        while !state.is_durable(generation) {
            state.check()?;
            self.events.durable.wait_idle(&mut state);
        }
        Ok(())
    }

    /// Waits until transaction `generation` is completed: what it replaced may be reused.
    #[track_caller]
    pub(crate) fn wait_completed(&self, generation: u64) -> Result<(), Failed> {
        let _held = (generation >= self.generation()).then(|| Held::acquire(in_transaction()));
        self.completed(self.state.lock(), generation).map(drop)
    }

    /// Ends all commits, for this reason; the first of several reasons is kept and reported.
    pub(crate) fn fail(&self, why: impl Into<String>) {
        let failed = Failed::Error(why.into());
        if self.end(failed.clone())
            && let Some(tell) = self.on_failure.get()
        {
            tell(failed);
        }
    }

    /// Registers a callback for the next failure; not for an earlier one, nor for a shutdown.
    /// Panics if called twice.
    pub(crate) fn on_failure(&self, tell: impl Fn(Failed) + Send + Sync + 'static) {
        assert!(self.on_failure.set(Box::new(tell)).is_ok(), "the callback is registered once");
    }

    /// Ends all commits, because a caller asked for it; the first of several reasons is kept.
    pub(crate) fn shut_down(&self) {
        self.end(Failed::ShutDown);
    }

    /// Returns true if this was the first reason.
    fn end(&self, failed: Failed) -> bool {
        let is_first = self.state.lock().fail(failed);
        let StateWaiters { drained, unblocked, durable, completed } = &self.events;
        for event in [drained, unblocked, durable, completed] {
            event.notify_all();
        }
        is_first
    }

    /// Returns an error if there was a failure.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        self.state.lock().check()
    }

    /// Sleeps until transaction `generation` is completed; returns the state, still locked.
    fn completed<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        generation: u64,
    ) -> Result<MutexGuard<'a, State>, Failed> {
        while !state.is_completed(generation) {
            state.check()?;
            self.events.completed.wait_idle(&mut state);
        }
        Ok(state)
    }
}

impl fmt::Debug for TransactionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionState")
            .field("running", &self.generation())
            .finish_non_exhaustive()
    }
}

impl TransactionGuard<'_> {
    /// The number of the transaction joined.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for TransactionGuard<'_> {
    fn drop(&mut self) {
        if panicking() && !self.unwinding {
            self.transaction_state
                .fail(format!("a panic left transaction {} half changed", self.generation));
        }
        if self.transaction_state.state.lock().leave(self.kind) {
            self.transaction_state.events.drained.notify_one();
        }
    }
}

/// The identity of guards and leaders in the lock order.
fn in_transaction() -> Identity {
    Identity::of(Class::TransactionHandle)
}
