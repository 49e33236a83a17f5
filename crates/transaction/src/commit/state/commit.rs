//! The leader's side of the gate: a commit as a value that changes its type at each stage.
//!
//! 1. A step consumes the commit and returns it in the next stage, or fails; then it is gone.
//! 2. A commit that is dropped before it is completed fails the gate.
//! 3. There are tickets of the kind `Commit` only before the hand-over, and none outlives it:
//!    they borrow the commit that the hand-over consumes.
//! 4. It stays on its thread, and stands in the lock order as a transaction handle all the time.

use std::fmt;
use std::marker::PhantomData;
use std::thread::panicking;

use userbtrfs_sync::atomic::Ordering;
use userbtrfs_sync::order::Held;

use super::stage::State;
use super::{Failed, JoinKind, TransactionGuard, TransactionState, in_transaction};

/// The commit of one transaction, which has come to the stage `S`.
#[must_use = "a commit that is dropped fails the filesystem"]
pub(crate) struct Commit<'g, S> {
    leader: Leader<'g>,
    stage: PhantomData<S>,
}

/// Everybody may still join the transaction.
pub(crate) enum Open {}
/// Nobody who waits for the device is in the transaction any more.
pub(crate) enum CommitPrep {}
/// No operation is in the transaction any more.
pub(crate) enum CommitStart {}
/// Nobody but the leader is.
pub(crate) enum CommitDoing {}
/// The next transaction runs; this one is as it will be on the device.
pub(crate) enum Unblocked {}
/// The super is durable.
pub(crate) enum SuperCommitted {}

/// A stage in which the transaction may still be changed by its leader.
pub(crate) trait Changing {}
impl Changing for Open {}
impl Changing for CommitPrep {}
impl Changing for CommitStart {}
impl Changing for CommitDoing {}

/// The duty to bring a transaction to its end.
struct Leader<'g> {
    transaction_state: &'g TransactionState,
    generation: u64,
    is_done: bool,
    _held: Held,
}

impl<'g> Commit<'g, Open> {
    pub(super) fn new(
        transaction_state: &'g TransactionState,
        generation: u64,
        held: Held,
    ) -> Self {
        let leader = Leader { transaction_state, generation, is_done: false, _held: held };
        Self { leader, stage: PhantomData }
    }

    /// Waits until the transaction before this one is completed; then takes nobody more who waits
    /// for the device, and waits until none of them is left. Operations go on meanwhile.
    pub(crate) fn settle(self) -> Result<Commit<'g, CommitPrep>, Failed> {
        let Leader { transaction_state, generation, .. } = self.leader;
        drop(transaction_state.completed(transaction_state.state.lock(), generation - 1)?);
        self.leader.drain(JoinKind::Writing, State::settle)?;
        Ok(self.advanced())
    }
}

impl<'g> Commit<'g, CommitPrep> {
    /// Takes no more operations, and waits until none is open.
    pub(crate) fn close_door(self) -> Result<Commit<'g, CommitStart>, Failed> {
        self.leader.drain(JoinKind::Operation, State::close_door)?;
        Ok(self.advanced())
    }
}

impl<'g> Commit<'g, CommitStart> {
    /// Lets nobody more in, and waits until no completion of an extent is open.
    pub(crate) fn bar_finish(self) -> Result<Commit<'g, CommitDoing>, Failed> {
        self.leader.drain(JoinKind::Finish, State::bar_finish)?;
        Ok(self.advanced())
    }
}

impl<'g> Commit<'g, CommitDoing> {
    /// Lets the next transaction run.
    pub(crate) fn unblock(self) -> Result<Commit<'g, Unblocked>, Failed> {
        let Leader { transaction_state, .. } = self.leader;
        let mut state = transaction_state.state.lock();
        state.check()?;
        transaction_state.running.store(state.unblock(), Ordering::Release);
        drop(state);
        transaction_state.events.handed_over.notify_all();
        Ok(self.advanced())
    }
}

impl<'g> Commit<'g, Unblocked> {
    /// The super is durable: wakes who waited for that.
    ///
    /// After a failure it is an error, whatever the device now holds.
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
    /// What the transaction replaced is free: the next one may be committed.
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

    /// A ticket for the leader's own changes; it never waits.
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
    /// Shuts one kind out, and waits until none of it is in the transaction.
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
