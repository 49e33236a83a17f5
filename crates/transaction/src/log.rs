//! Tree logs, which make changes durable before their transaction is committed.
//!
//! | file          | holds                                                          |
//! |---------------|----------------------------------------------------------------|
//! | `writer`      | the logs of a transaction, and changes of them                 |
//! | `commits`     | log commits: which fsyncs share one, and which thread leads it |
//! | `commit`      | writing one: nodes, flush, superblock                          |
//! | `blocks`      | the tree blocks of logs                                        |
//! | `checksums`   | checksums in a log                                             |
//! | `full_commit` | why a transaction is committed instead                         |
//! | `stats`       | counters                                                       |
//!
//! 1. A log is a tree of one subvolume and one transaction, N. It and the tree of the log roots,
//!    which leads to all logs, are changed under one lock, by threads that have a handle of N.
//! 2. Its nodes are of generation N and of owner TREE_LOG; neither the extent tree nor the free
//!    space tree has them. A node that was submitted to the device is not overwritten as long as a
//!    superblock may lead to it.
//! 3. The superblock that leads to a log is the one of N - 1, which is durable before.
//! 4. If a log may be incomplete or wrong, N is marked before the lock is released: none of its
//!    logs is written any more, and a thread that needs durability commits N. The first reason is
//!    kept.
//! 5. The commit of N drops its logs: blocks that were written are pinned, the rest are freed.
//!    N + 1 begins without logs and without a mark.
//!
//! A *log commit* has the changes of logs that are written together. This module does not
//! know what is logged, nor when.

mod blocks;
mod checksums;
mod commit;
mod commits;
mod full_commit;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(feature = "experiments")]
mod range_locks;
mod stats;
mod writer;

pub(crate) use commit::sync;
pub use commit::{LogSyncPhase, LogSyncer};
pub use full_commit::{FullCommitReason, LogFailure};
pub use stats::LogStats;
pub(crate) use writer::SubvolumeLogs;
pub use writer::{LogTransId, LogWriter, PendingIoToken};
