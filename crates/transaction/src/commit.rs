//! Transactions: who changes trees, and how what they changed becomes durable.
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

/// What of all that waits is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// What is merged best at once. The rest, within the bounds of memory, waits for more of it.
    Most,
    /// All.
    All,
}

/// A room above that keeps changes in memory until they are merged into trees.
///
/// The calls come from threads that hold no lock but a transaction handle, except where a call
/// says more.
pub trait TransactionHooks: Send + Sync {
    /// Whether nothing waits to be merged.
    fn is_clean(&self) -> bool;

    /// Puts what waits into trees. Other threads may add more meanwhile, but not while a
    /// commit merges.
    fn merge(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()>;

    /// Writes what it holds for the device, and waits, where that gives back what was reserved
    /// for it. It is not called with a handle, but the caller may hold operation locks of inodes:
    /// only locks further down may be awaited.
    fn write_back(&self) -> Result<()> {
        Ok(())
    }

    /// The filesystem has turned read-only: what waits will never be merged.
    fn aborted(&self);
}
