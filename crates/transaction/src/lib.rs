//! The books: which trees there are, which space is whose, and what a transaction changes.
//!
//! | module      | what it is                                                       |
//! |-------------|------------------------------------------------------------------|
//! | `tree_roots`    | the trees, found by number                                       |
//! | `refs`      | references of extents: delayed, and in the extent tree           |
//! | `free_tree` | the free space tree                                              |
//! | `checksums` | checksums of data: those that wait, and those in their tree      |
//! | `space`     | block groups, reservations and chunks, in memory                 |
//! | `txn`       | handles, and the commit                                          |
//! | `log`       | tree logs: their trees, and how groups of changes become durable |
//! | `high_water`   | how much was changed or reserved at once, at most                |
//! | `transactions`    | all of it together, as the rooms above see it                    |
//! | `reserve`   | reservations, and what is done where space is short              |
//! | `turns`     | whose turn it is to have space made                              |
//! | `data`      | the space, the checksums and the users of file data              |
//! | `discard`   | giving freed space back to the device                            |

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
