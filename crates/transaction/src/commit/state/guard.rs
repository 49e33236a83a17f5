//! The side of the threads that change a transaction: its state, and the guards of those threads.

use std::fmt;
use std::thread::panicking;

use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::order::{Held, Identity};
use userbtrfs_sync::{Class, Condvar, Mutex, MutexGuard, OnceLock};

use super::stage::{Failed, JoinKind, State};

/// The state of a filesystem's transactions.
pub(crate) struct TransactionState {
    pub(super) state: Mutex<State>,
    /// The running transaction, for readers without the lock; changed under `state`.
    pub(super) running: AtomicU64,
    pub(super) events: StateWaiters,
    /// The callback for a failure.
    on_failure: OnceLock<OnFailure>,
}

/// A callback for a failure. It only passes the failure on, since the failing thread may hold
/// locks.
type OnFailure = Box<dyn Fn(Failed) + Send + Sync>;

/// The events that are waited for, each by its own waiters. A failure wakes all.
#[derive(Default)]
pub(super) struct StateWaiters {
    /// No guard of the kind that the leader waits for is left. One waiter: the leader.
    pub(super) drained: Condvar,
    /// The next transaction runs.
    pub(super) unblocked: Condvar,
    /// The superblock of the transaction that is being written is durable.
    pub(super) durable: Condvar,
    /// Space that this transaction freed may be reused. One of the waiters is the next leader.
    pub(super) completed: Condvar,
}

/// Membership in a transaction, which ends when the guard is dropped, on the thread that joined.
#[derive(Debug)]
#[must_use = "the transaction is left when the guard is dropped"]
pub(crate) struct TransactionGuard<'g> {
    pub(super) transaction_state: &'g TransactionState,
    pub(super) kind: JoinKind,
    pub(super) generation: u64,
    /// True if the thread was panicking already when it joined.
    pub(super) unwinding: bool,
    // Leaves the thread's list after the transaction is left: fields drop after `drop`.
    pub(super) _held: Held,
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

    /// Returns true if transaction `generation` runs and no thread commits it.
    pub(crate) fn has_no_leader(&self, generation: u64) -> bool {
        self.state.lock().has_no_leader(generation)
    }

    /// Returns true if the superblock of transaction `generation` is durable.
    pub(crate) fn is_durable(&self, generation: u64) -> bool {
        self.state.lock().is_durable(generation)
    }

    /// Waits until the transaction after `generation` runs. Does not begin the commit.
    #[track_caller]
    pub(crate) fn wait_unblocked(&self, generation: u64) -> Result<(), Failed> {
        let _held = Held::acquire(in_transaction());
        let mut state = self.state.lock();
        while self.generation() <= generation {
            state.check()?;
            self.events.unblocked.wait_idle(&mut state);
        }
        Ok(())
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
    pub(super) fn completed<'a>(
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
pub(super) fn in_transaction() -> Identity {
    Identity::of(Class::TransactionHandle)
}
