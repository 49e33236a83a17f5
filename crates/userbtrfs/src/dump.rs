//! Dumps: what stands on disk, item by item, as text or as JSON.
//!
//! The text is that of `btrfs inspect-internal dump-super` and `dump-tree` (btrfs-progs 6.2).
//!
//! 1. A dump needs memory for one path of tree blocks, whatever the size of the filesystem.
//! 2. A damaged block is reported, and the blocks beside it are dumped all the same.
//! 3. What is shown passed the checks of the parsers; damaged bytes themselves are not shown.
//! 4. Control characters, backslashes and invalid UTF-8 in names are escaped in text. In JSON, a
//!    name that is not UTF-8 has its bytes in hexadecimal in a second field.
//! 5. Where 6.2 knows no name for a flag, or shows nothing of a kind, more is said; times are UTC.

mod block;
mod item;
mod log;
mod names;
mod output;
mod record;
mod superblock;
mod time;
mod trees;

use std::io;

use thiserror::Error;
use userbtrfs_format::TreeId;

pub use log::dump_log;
pub use superblock::dump_super;
pub use trees::dump_tree;

/// How a dump is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Which trees are dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeSelection {
    /// All: the root, chunk and log root trees, then each tree that has a ROOT_ITEM.
    All,
    /// This one, or all of this object id where there are several (relocation).
    One(TreeId),
}

/// Why a dump ends early.
#[derive(Debug, Error)]
pub enum DumpError {
    /// The output does not take it.
    #[error("cannot write the dump: {0}")]
    Output(#[from] io::Error),
    /// There is no such tree.
    #[error("there is no tree {0}")]
    NoTree(TreeId),
}
