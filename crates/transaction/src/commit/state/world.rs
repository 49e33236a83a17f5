//! A test harness around a transaction state: threads that change and commit, and the invariants.
//!
//! 1. A change counts for the transaction of its guard, relaxed: a leader that sees all changes of
//!    its transaction sees them by the transaction state alone.
//! 2. At most one transaction is being written at a time.

use userbtrfs_sync::atomic::{AtomicUsize, Ordering};

use super::commit::CommitStart;
use super::{Commit, CommitDoing, CommitRole, Failed, JoinKind, Open, TransactionState};

/// The first transaction of a world.
pub(super) const FIRST: u64 = 7;
/// The number of transactions that a world can hold.
const TRANSACTIONS: usize = if cfg!(loom) { 4 } else { 4096 };

/// A transaction state, and what is done through it.
pub(super) struct World {
    pub(super) transaction_state: TransactionState,
    /// Changes made, by transaction.
    changes: Vec<AtomicUsize>,
    /// Changes that the commit found, by transaction.
    found: Vec<AtomicUsize>,
    /// The number of transactions that are unblocked and not completed.
    writing: AtomicUsize,
}

impl World {
    pub(super) fn new() -> Self {
        let zeros = |_| AtomicUsize::new(0);
        Self {
            transaction_state: TransactionState::new(FIRST),
            changes: (0..TRANSACTIONS).map(zeros).collect(),
            found: (0..TRANSACTIONS).map(zeros).collect(),
            writing: AtomicUsize::new(0),
        }
    }

    /// Makes one change; returns the transaction it is in.
    pub(super) fn change(&self, kind: JoinKind) -> Result<u64, Failed> {
        let transaction_guard = self.transaction_state.join(kind)?;
        assert_eq!(
            transaction_guard.generation(),
            self.transaction_state.generation(),
            "a guard holds its transaction"
        );
        at(&self.changes, transaction_guard.generation()).fetch_add(1, Ordering::Relaxed);
        assert_eq!(
            transaction_guard.generation(),
            self.transaction_state.generation(),
            "a guard holds its transaction"
        );
        Ok(transaction_guard.generation())
    }

    /// Commits the running transaction, or waits for the thread that does; returns true if this one
    /// did.
    #[cfg(loom)]
    pub(super) fn sync(&self) -> Result<bool, Failed> {
        self.sync_up_to(self.transaction_state.generation())
    }

    /// Commits this transaction, or waits for the thread that does; returns true if this one did.
    pub(super) fn sync_up_to(&self, generation: u64) -> Result<bool, Failed> {
        match self.transaction_state.begin_commit(generation)? {
            CommitRole::Lead(commit) => self.lead(commit).map(|()| true),
            CommitRole::Joined => self.transaction_state.wait_durable(generation).map(|()| false),
        }
    }

    /// Takes a commit from its beginning to its end.
    pub(super) fn lead(&self, commit: Commit<'_, Open>) -> Result<(), Failed> {
        let commit = self.shut(commit.exclude_writing()?.exclude_operations()?)?;
        self.write(commit)
    }

    /// Shuts out all guards; the leader's own change is the last.
    pub(super) fn shut<'g>(
        &self,
        commit: Commit<'g, CommitStart>,
    ) -> Result<Commit<'g, CommitDoing>, Failed> {
        let commit = commit.exclude_finish()?;
        let transaction_guard = commit.transaction_guard();
        at(&self.changes, transaction_guard.generation()).fetch_add(1, Ordering::Relaxed);
        drop(transaction_guard);
        let found = at(&self.changes, commit.generation()).load(Ordering::Relaxed);
        at(&self.found, commit.generation()).store(found, Ordering::Relaxed);
        Ok(commit)
    }

    /// Unblocks the next transaction, writes this one and completes it.
    pub(super) fn write(&self, commit: Commit<'_, CommitDoing>) -> Result<(), Failed> {
        let commit = commit.unblock()?;
        assert_eq!(self.writing.fetch_add(1, Ordering::Relaxed), 0, "one is written at a time");
        let commit = commit.durable()?;
        assert_eq!(self.writing.fetch_sub(1, Ordering::Relaxed), 1);
        commit.complete();
        Ok(())
    }

    /// Checks that nothing was changed in a committed transaction after its leader had looked.
    pub(super) fn verify(&self, commits: u64) {
        assert_eq!(
            self.transaction_state.generation(),
            FIRST + commits,
            "each hand-over begins one more"
        );
        for generation in FIRST..self.transaction_state.generation() {
            let changes = at(&self.changes, generation).load(Ordering::Relaxed);
            let found = at(&self.found, generation).load(Ordering::Relaxed);
            assert_eq!(changes, found, "transaction {generation} was changed behind its leader");
        }
    }
}

fn at(counts: &[AtomicUsize], generation: u64) -> &AtomicUsize {
    &counts[usize::try_from(generation - FIRST).unwrap()]
}
