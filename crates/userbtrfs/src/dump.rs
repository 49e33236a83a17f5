//! Dumps of what is stored on disk, item by item, as text or as JSON.
//!
//! The text is that of `btrfs inspect-internal dump-super` and `dump-tree` (btrfs-progs 6.2).
//!
//! 1. A dump needs memory for one path of tree blocks, whatever the size of the filesystem.
//! 2. A damaged block is reported, and its siblings are still dumped.
//! 3. Only data that passed the checks of the parsers is shown; damaged bytes are not shown.
//! 4. Control characters, backslashes and invalid UTF-8 in names are escaped in text. In JSON, a
//!    name that is not UTF-8 has its bytes in hexadecimal in a second field.
//! 5. If 6.2 has no name for a flag, or shows nothing of a kind, more is shown; times are UTC.

mod block;
mod flags;
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

/// The output format of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines of text for people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// The trees to dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeSelection {
    /// All: the root, chunk and log root trees, then each tree that has a ROOT_ITEM.
    All,
    /// This one, or all with this object id if there are several (relocation).
    One(TreeId),
}

/// An error that ends a dump.
#[derive(Debug, Error)]
pub enum DumpError {
    /// The dump cannot be written to its output.
    #[error("cannot write the dump: {0}")]
    Output(#[from] io::Error),
    /// There is no such tree.
    #[error("there is no tree {0}")]
    NoTree(TreeId),
    /// The tree was not found, and part of the root tree is damaged, which was reported.
    #[error("tree {0} was not found: the root tree is damaged")]
    LostTree(TreeId),
}
