//! Trees, space and transactions: which trees exist, which space is allocated, and what a
//! transaction changes.
//!
//! | module      | holds                                                             |
//! |-------------|-------------------------------------------------------------------|
//! | `manager`   | [`TransactionManager`]: composes all below, for the crates above  |
//! | `commit`    | transaction handles and the commit                                |
//! | `log`       | log trees, and how log commits become durable                     |
//! | `context`   | what handles, commits and logs share; the source of tree blocks   |
//! | `space`     | block groups, reservations, chunks and file data                  |
//! | `refs`      | extent references: delayed, and in the extent tree                |
//! | `free_tree` | the free space tree                                               |
//! | `checksums` | checksums of data: pending, and in their tree                     |
//! | `drop_tree` | dropping the trees of deleted subvolumes                          |
//! | `range_set` | sets of numbers stored as ranges                                  |
//! | `roots`     | the trees, found by number                                        |
//! | `subvolume` | creation, snapshots and deletion of subvolumes                    |

#![forbid(unsafe_code)]

pub mod checksums;
pub mod free_tree;
pub mod refs;
pub mod subvolume;

mod commit;
mod context;
mod damage;
mod drop_tree;
mod editor;
mod error;
#[cfg(feature = "experiments")]
mod experiment;
mod log;
mod manager;
mod mountable;
mod options;
mod range_set;
mod relocate;
mod roots;
mod space;
mod units;

pub use commit::{CommitTrigger, Commits, FlushScope, Handle, HandleKind, TransactionHooks};
pub use damage::Damage;
pub use drop_tree::DropProgress;
pub use editor::Editor;
pub use error::{Error, Result};
#[cfg(feature = "experiments")]
pub use experiment::{Experiment, NoSuchExperiment};
pub use log::{
    FullCommitReason, LogFailure, LogStats, LogSyncPhase, LogSyncer, LogTransId, LogWriter,
    PendingIoToken,
};
pub use manager::TransactionManager;
pub use options::TransactionOptions;
pub use range_set::{Coalesced, RangeSet};
pub use refs::FileExtentRef;
pub use relocate::{AddressEpoch, RelocationStats};
pub use roots::TreeRoots;
pub use space::discard::Discards;
pub use space::high_water::HighWaterRise;
pub use space::{
    CHUNK_LEN_MIN, DEVICE_START, FlushHint, ListedChunks, NewChunk, NocowExclusion, NocowGuard,
    Pinned, Reservation, Space, SpaceDamage, SpaceKind, Usage, bytes_for_items,
};
pub use userbtrfs_btree::DropCounts;
