//! The books: which trees there are, which space is whose, and what a transaction changes.
//!
//! | module   | what it is                                                          |
//! |----------|---------------------------------------------------------------------|
//! | `forest` | the trees, found by number                                          |
//! | `refs`   | references of extents: delayed, and in the extent tree              |
//! | `free_tree` | the free space tree                                              |
//! | `checksums` | checksums of data that is freed                                  |
//! | `space`  | block groups, reservations and chunks, in memory                    |
//! | `txn`    | handles, and the commit                                             |
//! | `ledger` | all of it together, as the rooms above see it                       |

#![forbid(unsafe_code)]

pub mod checksums;
pub mod free_tree;
pub mod refs;

mod damage;
mod editor;
mod error;
mod forest;
mod ledger;
mod space;
mod txn;

pub use damage::Damage;
pub use editor::Editor;
pub use error::{Error, Result};
pub use forest::Forest;
pub use ledger::{Ledger, LedgerOptions};
pub use space::{
    Kind, NewChunk, Pinned, Reservation, Shortage, Space, SpaceDamage, Usage, bytes_for_items,
};
pub use txn::{Handle, HandleKind, Merge, Participant};
