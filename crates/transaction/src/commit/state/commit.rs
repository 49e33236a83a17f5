//! The leader's side of the transaction state: a commit as a value that changes its type at each
//! stage.
//!
//! 1. A step consumes the commit and returns it in the next stage, or fails and drops it.
//! 2. A commit that is dropped before it is completed fails the transaction state.
//! 3. Guards of the kind `Commit` exist only before `unblock`, and none outlives it: they borrow
//!    the commit that `unblock` consumes.
//! 4. It stays on its thread, and is in the lock order as a transaction handle all the time.

use std::fmt;
use std::marker::PhantomData;
use std::thread::panicking;

use userbtrfs_sync::atomic::Ordering;
use userbtrfs_sync::order::Held;

use super::guard::{TransactionGuard, TransactionState, in_transaction};
use super::stage::{Failed, JoinKind, State};

/// The role of a thread that asks for a commit.
#[derive(Debug)]
pub(crate) enum CommitRole<'g> {
    /// The thread commits the transaction.
    Lead(Commit<'g, Open>),
    /// Another thread does, or has: see [`TransactionState::wait_durable`].
    Joined,
}

/// The commit of one transaction, at the stage `S`.
#[must_use = "a commit that is dropped fails the filesystem"]
pub(crate) struct Commit<'g, S> {
    leader: Leader<'g>,
    stage: PhantomData<S>,
}

/// All threads may still join the transaction.
pub(crate) enum Open {}
/// No thread that waits for the device is in the transaction any more.
pub(crate) enum CommitPrep {}
/// No operation is in the transaction any more.
pub(crate) enum CommitStart {}
/// Only the leader is in the transaction.
pub(crate) enum CommitDoing {}
/// The next transaction runs; this one has its final contents.
pub(crate) enum Unblocked {}
/// The superblock is durable.
pub(crate) enum SuperCommitted {}

/// A stage in which the transaction may still be changed by its leader.
pub(crate) trait Changing {}
impl Changing for Open {}
impl Changing for CommitPrep {}
impl Changing for CommitStart {}
impl Changing for CommitDoing {}

/// The duty to complete a transaction.
struct Leader<'g> {
    transaction_state: &'g TransactionState,
    generation: u64,
    is_done: bool,
    _held: Held,
}

impl TransactionState {
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
}

impl<'g> Commit<'g, Open> {
    fn new(transaction_state: &'g TransactionState, generation: u64, held: Held) -> Self {
        let leader = Leader { transaction_state, generation, is_done: false, _held: held };
        Self { leader, stage: PhantomData }
    }

    /// Waits until the previous transaction is completed; then admits no more threads that wait for
    /// the device, and waits until none of them is left. Operations continue meanwhile.
    pub(crate) fn exclude_writing(self) -> Result<Commit<'g, CommitPrep>, Failed> {
        let Leader { transaction_state, generation, .. } = self.leader;
        drop(transaction_state.completed(transaction_state.state.lock(), generation - 1)?);
        self.leader.drain(JoinKind::Writing, State::exclude_writing)?;
        Ok(self.advanced())
    }
}

impl<'g> Commit<'g, CommitPrep> {
    /// Admits no more operations, and waits until none is open.
    pub(crate) fn exclude_operations(self) -> Result<Commit<'g, CommitStart>, Failed> {
        self.leader.drain(JoinKind::Operation, State::exclude_operations)?;
        Ok(self.advanced())
    }
}

impl<'g> Commit<'g, CommitStart> {
    /// Admits no more guards, and waits until no completion of an extent is open.
    pub(crate) fn exclude_finish(self) -> Result<Commit<'g, CommitDoing>, Failed> {
        self.leader.drain(JoinKind::Finish, State::exclude_finish)?;
        Ok(self.advanced())
    }
}

impl<'g> Commit<'g, CommitDoing> {
    /// Makes the next transaction the running one.
    pub(crate) fn unblock(self) -> Result<Commit<'g, Unblocked>, Failed> {
        let Leader { transaction_state, .. } = self.leader;
        let mut state = transaction_state.state.lock();
        state.check()?;
        transaction_state.running.store(state.unblock(), Ordering::Release);
        drop(state);
        transaction_state.events.unblocked.notify_all();
        Ok(self.advanced())
    }
}

impl<'g> Commit<'g, Unblocked> {
    /// Records that the superblock is durable, and wakes the threads that wait for that.
    ///
    /// Returns an error after a failure, whatever the device now holds.
    pub(crate) fn durable(self) -> Result<Commit<'g, SuperCommitted>, Failed> {
        let Leader { transaction_state, generation, .. } = self.leader;
        let mut state = transaction_state.state.lock();
        state.check()?;
        state.set_durable(generation);
        drop(state);
        transaction_state.events.durable.notify_all();
        Ok(self.advanced())
    }
}

impl Commit<'_, SuperCommitted> {
    /// Completes the transaction: what it replaced is free, and the next one may be committed.
    pub(crate) fn complete(mut self) {
        let Leader { transaction_state, generation, .. } = self.leader;
        transaction_state.state.lock().set_completed(generation);
        transaction_state.events.completed.notify_all();
        self.leader.is_done = true;
    }
}

impl<'g, S> Commit<'g, S> {
    /// The number of the transaction.
    pub(crate) fn generation(&self) -> u64 {
        self.leader.generation
    }

    /// Returns a guard for the leader's own changes; never waits.
    pub(crate) fn transaction_guard(&self) -> TransactionGuard<'_>
    where
        S: Changing,
    {
        let Leader { transaction_state, generation, .. } = self.leader;
        let held = Held::tried(in_transaction());
        TransactionGuard {
            transaction_state,
            kind: JoinKind::Commit,
            generation,
            unwinding: panicking(),
            _held: held,
        }
    }

    fn advanced<T>(self) -> Commit<'g, T> {
        Commit { leader: self.leader, stage: PhantomData }
    }
}

impl<S> fmt::Debug for Commit<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl Leader<'_> {
    /// Shuts out one kind of guard, and waits until none of it is in the transaction.
    fn drain(&self, kind: JoinKind, shut_out: impl FnOnce(&mut State)) -> Result<(), Failed> {
        let mut state = self.transaction_state.state.lock();
        state.check()?;
        shut_out(&mut state);
        let busy = |state: &mut State| !state.has_failed() && state.is_open(kind);
        self.transaction_state.events.drained.wait_while(&mut state, busy);
        state.check()
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.transaction_state
                .fail(format!("the commit of transaction {} was given up", self.generation));
        }
    }
}
