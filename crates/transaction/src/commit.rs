//! Transactions: handles, under which trees are changed, and the commit, which makes the changes
//! durable.
//!
//! | file              | holds                                                    |
//! |-------------------|----------------------------------------------------------|
//! | `state`           | the states of transactions: joining, leaving, committing |
//! | `handle`          | a transaction handle: the right to change trees          |
//! | `writeout`        | writing dirty nodes before the commit                    |
//! | `hooks`           | the calls into the crates above                          |
//! | `run`             | the commit, stage by stage                               |
//! | `space_items`     | the items that a commit writes about space               |
//! | `roots`, `quotas` | root items; the quota status item                        |
//! | `space_cache`     | the removal of space caches of older kernels             |
//! | `superblock`      | the superblock that ends a commit                        |
//! | `trigger`         | why transactions were committed                          |
//! | `delayed`         | merging delayed changes between commits                  |
//! | `worker`          | the background thread that merges and commits            |

mod delayed;
mod handle;
mod hooks;
mod quotas;
mod roots;
mod run;
mod space_cache;
mod space_items;
mod state;
mod superblock;
mod trigger;
mod worker;
mod writeout;

pub(crate) use delayed::DelayedFlusher;
pub use handle::{Handle, HandleKind};
pub(crate) use hooks::Hooks;
pub use hooks::{FlushScope, TransactionHooks};
pub(crate) use roots::{ChangedRoots, move_root};
pub(crate) use run::Committer;
pub(crate) use state::{Failed, TransactionState};
pub(crate) use trigger::CommitCounts;
pub use trigger::{CommitTrigger, Commits};
pub(crate) use worker::{Task, Worker, WorkerRequests};
