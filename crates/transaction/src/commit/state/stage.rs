//! What the gate knows: numbers and a stage, without locks and waits.
//!
//! 1. `completed <= durable < running`, and `running` is at most two past `completed`.
//! 2. Only the running transaction has members; they are counted by kind.

use super::{Failed, JoinKind};

/// How far the commit of the running transaction has come.
///
/// ```text
///      transaction N                                   transaction N + 1
///
///      Running
///         |  settle: nobody more who writes, wait
///         |  until none of them is left
///      Settled
///         |  close_door: no more operations, wait
///         |  until none is open
///      Closed
///         |  bar_finish: nobody more, wait
///         |  until no finish is open
///      Barred
///         |  hand_over  -----------------------------> Running
///      handed over                                        |
///         |  durable: the super is on the device          |
///      durable                                            |
///         |  complete                                     |
///      completed  ------------------------------------->  |  settle, not before N is completed
///                                                      Settled ...
///
///      any stage  -- fail, a leader dropped, a panic -->  failed, and N + 1 with it
/// ```
///
/// | stage       | writing         | operation       | finish          | commit (N's leader)     |
/// |-------------|-----------------|-----------------|-----------------|-------------------------|
/// | Running     | joins N         | joins N         | joins N         | joins N                 |
/// | Settled     | waits for N + 1 | joins N         | joins N         | joins N                 |
/// | Closed      | waits for N + 1 | waits for N + 1 | joins N         | joins N                 |
/// | Barred      | waits for N + 1 | waits for N + 1 | waits for N + 1 | joins N                 |
/// | handed over | joins N + 1     | joins N + 1     | joins N + 1     | has no tickets any more |
/// | failed      | error           | error           | error           | error at the next stage |
///
/// The stages from *handed over* on are those of the transaction before the running one, and
/// follow from the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// All may join.
    Running,
    /// All but who waits for the device.
    Settled,
    /// The door is closed to operations, too.
    Closed,
    /// And to the completion of extents.
    Barred,
}

/// The gate's state.
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

    /// Says whether it is the first failure.
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

    /// Whether the running transaction takes one more of this kind.
    pub(super) fn admits(&self, kind: JoinKind) -> bool {
        match kind {
            JoinKind::Writing => self.stage == Stage::Running,
            JoinKind::Operation => matches!(self.stage, Stage::Running | Stage::Settled),
            JoinKind::Finish => self.stage != Stage::Barred,
            JoinKind::Commit => true,
        }
    }

    /// Counts one more in; returns the transaction.
    pub(super) fn join(&mut self, kind: JoinKind) -> u64 {
        assert!(self.admits(kind) && !self.has_failed());
        if let Some(count) = self.count(kind) {
            *count += 1;
        }
        self.running
    }

    /// Counts one out; true when the leader waits for just that.
    pub(super) fn leave(&mut self, kind: JoinKind) -> bool {
        let Some(count) = self.count(kind) else { return false };
        *count = count.checked_sub(1).expect("who leaves has joined");
        *count == 0 && !self.admits(kind)
    }

    /// Whether one of this kind is in the running transaction.
    pub(super) fn is_open(&mut self, kind: JoinKind) -> bool {
        self.count(kind).is_some_and(|count| *count > 0)
    }

    /// The members of this kind; the leader's own tickets are borrowed from it and not counted.
    fn count(&mut self, kind: JoinKind) -> Option<&mut u64> {
        match kind {
            JoinKind::Writing => Some(&mut self.writing),
            JoinKind::Operation => Some(&mut self.operations),
            JoinKind::Finish => Some(&mut self.finishes),
            JoinKind::Commit => None,
        }
    }

    /// Whether who asks for the commit of this transaction is to lead it.
    pub(super) fn lead(&mut self, generation: u64) -> bool {
        assert!(generation <= self.running, "a transaction that has not begun");
        generation == self.running && !std::mem::replace(&mut self.has_leader, true)
    }

    /// Whether transaction `generation` runs, and nobody commits it.
    pub(super) fn is_left_alone(&self, generation: u64) -> bool {
        generation == self.running && !self.has_leader
    }

    /// The running transaction takes nobody more who waits for the device.
    pub(super) fn settle(&mut self) {
        assert!(self.completed + 1 == self.running, "the one before is written");
        self.advance(Stage::Running, Stage::Settled);
    }

    /// The running transaction takes no more operations.
    pub(super) fn close_door(&mut self) {
        assert!(self.writing == 0, "operations wait for no device");
        self.advance(Stage::Settled, Stage::Closed);
    }

    /// The running transaction takes nobody more.
    pub(super) fn bar_finish(&mut self) {
        assert!(self.operations == 0, "no operation is open behind a closed door");
        self.advance(Stage::Closed, Stage::Barred);
    }

    /// The running transaction is to be written, and the next one runs; returns its number.
    pub(super) fn unblock(&mut self) -> u64 {
        assert!(self.operations == 0 && self.finishes == 0, "nobody is in it");
        self.advance(Stage::Barred, Stage::Running);
        self.has_leader = false;
        self.running += 1;
        self.running
    }

    /// The super of this transaction is durable.
    pub(super) fn set_durable(&mut self, generation: u64) {
        assert!(self.durable + 1 == generation && generation < self.running);
        self.durable = generation;
    }

    /// Nothing more is to be done for this transaction.
    pub(super) fn set_completed(&mut self, generation: u64) {
        assert!(self.completed + 1 == generation && generation == self.durable);
        self.completed = generation;
    }

    fn advance(&mut self, from: Stage, to: Stage) {
        assert!(self.has_leader && self.stage == from, "stages come in order, by the leader");
        self.stage = to;
    }
}
