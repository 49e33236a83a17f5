//! Trees, space and transactions: which trees exist, which space is allocated, and what a
//! transaction changes.
//!
//! | module      | holds                                                            |
//! |-------------|------------------------------------------------------------------|
//! | `manager`   | [`TransactionManager`]: all of it together, for the crates above |
//! | `roots`     | the trees, found by number                                       |
//! | `commit`    | transaction handles and the commit                               |
//! | `log`       | log trees, and how log commits become durable                    |
//! | `space`     | block groups, reservations, chunks and file data                 |
//! | `refs`      | extent references: delayed, and in the extent tree               |
//! | `free_tree` | the free space tree                                              |
//! | `checksums` | checksums of data: pending, and in their tree                    |

#![forbid(unsafe_code)]

pub mod checksums;
pub mod free_tree;
pub mod refs;

mod commit;
mod damage;
mod editor;
mod error;
mod log;
mod manager;
mod mountable;
mod roots;
mod space;

pub use commit::{CommitTrigger, Commits, FlushScope, Handle, HandleKind, TransactionHooks};
pub use damage::Damage;
pub use editor::Editor;
pub use error::{Error, Result};
pub use log::{
    FullCommitReason, LogFailure, LogStats, LogSyncPhase, LogSyncer, LogTransId, LogWriter,
    PendingIoToken,
};
pub use manager::{TransactionManager, TransactionOptions};
pub use roots::TreeRoots;
pub use space::discard::Discards;
pub use space::file_data::FileExtentRef;
pub use space::high_water::HighWaterRise;
pub use space::{
    CHUNK_LEN_MIN, DEVICE_START, FlushHint, ListedChunks, NewChunk, NocowGuard, Pinned,
    Reservation, Space, SpaceDamage, SpaceKind, Usage, bytes_for_items,
};
