//! The result of a replay.

use std::ops::{Range, RangeInclusive};

use userbtrfs_format::{Key, TreeId};

use crate::error::{Error, InodeId};

/// The result of a replay.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// The last committed transaction, which the logs follow.
    pub generation: u64,
    /// The subvolumes with a log.
    pub subvolumes: u64,
    /// Inodes that were logged.
    pub inodes: u64,
    /// Names that were added.
    pub names_added: u64,
    /// Names that were removed.
    pub names_removed: u64,
    /// Ranges of files that were logged.
    pub extents: u64,
    /// Inodes that were left without a name, and are deleted.
    pub deleted: u64,
    /// Damaged parts that were skipped, if that was requested.
    pub left_out: Vec<SkippedItem>,
    /// Files whose logged contents are damaged.
    pub incomplete: Vec<IncompleteFile>,
}

/// A damaged part of a log that was skipped.
#[derive(Debug)]
#[non_exhaustive]
pub struct SkippedItem {
    /// The subvolume; `None` for the list of logs itself.
    pub subvolume: Option<TreeId>,
    /// The item; `None` for a tree block.
    pub key: Option<Key>,
    /// The numbers of the inodes whose items a tree block may have.
    pub inodes: Option<RangeInclusive<u64>>,
    /// The damage.
    pub error: Error,
}

/// A file whose logged contents are damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IncompleteFile {
    /// The file.
    pub inode: InodeId,
    /// Its size when it was logged, in bytes.
    pub size: u64,
    /// The ranges of bytes that may have been logged, and cannot be had; in order.
    pub missing: Vec<Range<u64>>,
    /// Whether the rest of the contents was replayed: then the missing ranges hold what the last
    /// commit has there, or zeros. Otherwise the file has the contents of the last commit, and is
    /// empty if it is new.
    pub is_partial: bool,
}
