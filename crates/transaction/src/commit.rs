//! Transactions: handles, under which trees are changed, and the commit, which makes the changes
//! durable.
//!
//! | file              | holds                                                    |
//! |-------------------|----------------------------------------------------------|
//! | `state`           | the states of transactions: joining, leaving, committing |
//! | `handle`          | a transaction handle: the right to change trees          |
//! | `run`             | the commit, stage by stage                               |
//! | `writeout`        | writing dirty nodes before the commit                    |
//! | `trigger`         | why transactions were committed                          |
//! | `space_items`     | the items that a commit writes about space               |
//! | `roots`, `quotas` | root items; the quota status item                        |
//! | `superblock`      | the superblock that ends a commit                        |
//! | `worker`          | the background thread that commits                       |

mod handle;
mod quotas;
mod roots;
mod run;
mod space_items;
mod state;
mod superblock;
mod trigger;
mod worker;
mod writeout;

pub use handle::{Handle, HandleKind};
pub(crate) use roots::ChangedRoots;
pub(crate) use state::{Failed, TransactionState};
pub(crate) use trigger::CommitCounts;
pub use trigger::{CommitTrigger, Commits};
pub(crate) use worker::Worker;

use crate::error::Result;

/// Which delayed changes a flush merges into trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// Those that are best merged at once. The rest stays delayed, within the bounds of memory,
    /// until there is more of it.
    Most,
    /// All.
    All,
}

/// A module of the crates above that delays changes in memory until they are merged into trees.
///
/// The calls come from threads that hold no lock except a transaction handle, unless a method says
/// otherwise.
pub trait TransactionHooks: Send + Sync {
    /// Returns true if no changes are delayed.
    fn is_clean(&self) -> bool;

    /// Merges delayed changes into trees. Other threads may add more meanwhile, but not while a
    /// commit merges.
    fn merge(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()>;

    /// Writes cached data to the device and waits for it, if that releases reserved space. The
    /// caller has no handle, but may hold operation locks of inodes: the call may only wait for
    /// locks further down the lock order.
    fn write_back(&self) -> Result<()> {
        Ok(())
    }

    /// Reports that the filesystem has turned read-only: delayed changes will never be merged.
    fn aborted(&self);
}
