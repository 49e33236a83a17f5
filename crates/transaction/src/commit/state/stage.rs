//! The data of the transaction state: numbers and a stage, without locks and waits.
//!
//! 1. `completed <= durable < running`, and `running` is at most two past `completed`.
//! 2. Only the running transaction has guards; they are counted by kind.

use thiserror::Error;

/// The kind of a guard, which decides how long into a commit it may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinKind {
    /// A thread that waits for the device meanwhile: a sync by the log, a merge that writes leaves
    /// early.
    Writing,
    /// A change on behalf of a caller.
    Operation,
    /// The completion of an ordered extent, for which open operations may wait.
    Finish,
    /// The committing thread's own work: see
    /// [`transaction_guard`](super::Commit::transaction_guard).
    Commit,
}

/// Why nothing is committed any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Failed {
    /// The first failure.
    #[error("the filesystem has turned read-only: {0}")]
    Error(String),
    /// A caller shut the filesystem down.
    #[error("the filesystem was shut down")]
    ShutDown,
}

/// The stage that the commit of the running transaction has reached.
///
/// ```text
///      transaction N                                   transaction N + 1
///
///      Running
///         |  exclude_writing: wait until
///         |  none of it is left
///      CommitPrep
///         |  exclude_operations: wait until
///         |  none is open
///      CommitStart
///         |  exclude_finish: wait until
///         |  none is open
///      CommitDoing
///         |  unblock  -------------------------------> Running
///      unblocked                                          |
///         |  durable: the superblock is on the device     |
///      durable                                            |
///         |  complete                                     |
///      completed  ------------------------------------->  |  exclude_writing, not before N
///                                                         |  is completed
///                                                      CommitPrep ...
///
///      any stage  -- fail, a leader dropped, a panic -->  failed, and N + 1 with it
/// ```
///
/// | stage       | writing         | operation       | finish          | commit (N's leader)     |
/// |-------------|-----------------|-----------------|-----------------|-------------------------|
/// | Running     | joins N         | joins N         | joins N         | joins N                 |
/// | CommitPrep  | waits for N + 1 | joins N         | joins N         | joins N                 |
/// | CommitStart | waits for N + 1 | waits for N + 1 | joins N         | joins N                 |
/// | CommitDoing | waits for N + 1 | waits for N + 1 | waits for N + 1 | joins N                 |
/// | unblocked   | joins N + 1     | joins N + 1     | joins N + 1     | has no guards any more  |
/// | failed      | error           | error           | error           | error at the next stage |
///
/// The stages from *unblocked* on are those of the transaction before the running one, and follow
/// from the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// All guards may join.
    Running,
    /// Guards of threads that wait for the device are shut out.
    CommitPrep,
    /// Operations are shut out, too.
    CommitStart,
    /// Completions of extents are shut out, too.
    CommitDoing,
}

/// The data behind the lock of the transaction state.
#[derive(Debug)]
pub(super) struct State {
    running: u64,
    stage: Stage,
    has_leader: bool,
    writing: u64,
    operations: u64,
    finishes: u64,
    durable: u64,
    completed: u64,
    failed: Option<Failed>,
}

impl State {
    pub(super) fn new(first: u64) -> Self {
        let before = first.checked_sub(1).expect("transactions are counted from one");
        Self {
            running: first,
            stage: Stage::Running,
            has_leader: false,
            writing: 0,
            operations: 0,
            finishes: 0,
            durable: before,
            completed: before,
            failed: None,
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    pub(super) fn check(&self) -> Result<(), Failed> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Records a failure; returns true if it is the first.
    pub(super) fn fail(&mut self, failed: Failed) -> bool {
        let is_first = !self.has_failed();
        self.failed.get_or_insert(failed);
        is_first
    }

    pub(super) fn is_durable(&self, generation: u64) -> bool {
        generation <= self.durable
    }

    pub(super) fn is_completed(&self, generation: u64) -> bool {
        generation <= self.completed
    }

    /// Returns true if the running transaction admits a guard of this kind.
    pub(super) fn admits(&self, kind: JoinKind) -> bool {
        match kind {
            JoinKind::Writing => self.stage == Stage::Running,
            JoinKind::Operation => matches!(self.stage, Stage::Running | Stage::CommitPrep),
            JoinKind::Finish => self.stage != Stage::CommitDoing,
            JoinKind::Commit => true,
        }
    }

    /// Counts a guard in; returns its transaction.
    pub(super) fn join(&mut self, kind: JoinKind) -> u64 {
        assert!(self.admits(kind) && !self.has_failed());
        if let Some(count) = self.count(kind) {
            *count += 1;
        }
        self.running
    }

    /// Counts a guard out; returns true if the leader waits for just that.
    pub(super) fn leave(&mut self, kind: JoinKind) -> bool {
        let Some(count) = self.count(kind) else { return false };
        *count = count.checked_sub(1).expect("a guard that leaves has joined");
        *count == 0 && !self.admits(kind)
    }

    /// Returns true if a guard of this kind is in the running transaction.
    pub(super) fn is_open(&mut self, kind: JoinKind) -> bool {
        self.count(kind).is_some_and(|count| *count > 0)
    }

    /// Returns the count of a kind; the leader's own guards are borrowed from it and not counted.
    fn count(&mut self, kind: JoinKind) -> Option<&mut u64> {
        match kind {
            JoinKind::Writing => Some(&mut self.writing),
            JoinKind::Operation => Some(&mut self.operations),
            JoinKind::Finish => Some(&mut self.finishes),
            JoinKind::Commit => None,
        }
    }

    /// Asks to lead the commit of this transaction; returns true if the caller leads it now.
    pub(super) fn lead(&mut self, generation: u64) -> bool {
        assert!(generation <= self.running, "a transaction that has not begun");
        generation == self.running && !std::mem::replace(&mut self.has_leader, true)
    }

    /// Returns true if transaction `generation` runs and no thread commits it.
    pub(super) fn has_no_leader(&self, generation: u64) -> bool {
        generation == self.running && !self.has_leader
    }

    /// Shuts out threads that wait for the device from the running transaction.
    pub(super) fn exclude_writing(&mut self) {
        assert!(self.completed + 1 == self.running, "the one before is written");
        self.advance(Stage::Running, Stage::CommitPrep);
    }

    /// Shuts out operations from the running transaction.
    pub(super) fn exclude_operations(&mut self) {
        assert!(self.writing == 0, "operations wait for no device");
        self.advance(Stage::CommitPrep, Stage::CommitStart);
    }

    /// Shuts out all guards from the running transaction.
    pub(super) fn exclude_finish(&mut self) {
        assert!(self.operations == 0, "no operation is open");
        self.advance(Stage::CommitStart, Stage::CommitDoing);
    }

    /// Begins the next transaction, now that this one is to be written; returns its number.
    pub(super) fn unblock(&mut self) -> u64 {
        assert!(self.operations == 0 && self.finishes == 0, "no guard is in it");
        self.advance(Stage::CommitDoing, Stage::Running);
        self.has_leader = false;
        self.running += 1;
        self.running
    }

    /// Records that the superblock of this transaction is durable.
    pub(super) fn set_durable(&mut self, generation: u64) {
        assert!(self.durable + 1 == generation && generation < self.running);
        self.durable = generation;
    }

    /// Records that nothing is left to do for this transaction.
    pub(super) fn set_completed(&mut self, generation: u64) {
        assert!(self.completed + 1 == generation && generation == self.durable);
        self.completed = generation;
    }

    fn advance(&mut self, from: Stage, to: Stage) {
        assert!(self.has_leader && self.stage == from, "stages come in order, by the leader");
        self.stage = to;
    }
}
