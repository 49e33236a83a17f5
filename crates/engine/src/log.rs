//! The tree log: what an fsync logs, and how a log is replayed.
//!
//! | file                | holds                                                           |
//! |---------------------|-----------------------------------------------------------------|
//! | `sync`              | fsync: writeback, the log, or a full commit                     |
//! | `collect`           | which inodes an fsync logs, and how much of each                |
//! | `parents`           | which directories are logged with an inode, or need a commit    |
//! | `exists`, `content` | the items that log names and existence, and those that log data |
//! | `draft`             | batches of items for the log tree                               |
//! | `items`             | the items of a pending log, parsed                              |
//! | `replay`            | the replay, when a filesystem is opened                         |
//! | `trace`             | the record of each fsync                                        |

mod collect;
mod content;
mod draft;
mod exists;
mod items;
mod parents;
mod replay;
mod sync;
mod sync_stats;
mod trace;

pub use replay::{IncompleteFile, ReplayProgress, Replayed, SkippedItem};
pub(crate) use replay::{ReplayOptions, discard, is_pending, may_be_hidden, replay};
pub(crate) use sync::Log;
pub use sync_stats::SyncStats;
pub use trace::{SyncOutcome, SyncRecord};
