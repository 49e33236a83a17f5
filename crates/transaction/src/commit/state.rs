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
//! `stage` has the numbers, `guard` the lock and the waiters, `commit` the leader's side.
//!
//! This module knows nothing of trees, space or devices, nor when a commit is due.

mod commit;
mod guard;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, shuttle))]
mod shuttle_models;
mod stage;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(test)]
mod world;

pub(crate) use commit::{Commit, CommitDoing, CommitRole, Open};
pub(crate) use guard::{TransactionGuard, TransactionState};
pub(crate) use stage::{Failed, JoinKind};
