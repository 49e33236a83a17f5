//! Reasons to commit a transaction instead of writing a log.

use std::fmt;

use thiserror::Error;
use userbtrfs_sync::Arc;

use crate::error::Error as TransactionError;

/// Why a transaction must be committed in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FullCommitReason {
    /// Logs are disabled.
    Disabled,
    /// Something is stored in a block group that no durable superblock leads to.
    NewBlockGroup,
    /// There is no space for a log.
    NoSpace,
    /// A log could not be made, or written.
    Failed,
    /// Data that a log refers to could not be written.
    DataFailed,
    /// A file has more extents than are logged.
    TooManyExtents,
    /// An item is so large that a replay by Linux may find no space for it.
    LargeItem,
    /// The changes of an inode in this transaction are not tracked any more, or its log has extents
    /// from before its flags for checksums changed.
    Forgotten,
    /// The committed state of the space beyond a file's end is not known any more.
    SpaceBehindEnd,
    /// A directory would be logged whole that was moved, from which an inode was moved to another
    /// one, or in which names changed in a cycle.
    NameMoved,
    /// A subvolume was created, renamed or deleted.
    Subvolume,
    /// The superblock of the last commit lacks a feature that is used now.
    Feature,
}

impl FullCommitReason {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::Disabled,
        Self::NewBlockGroup,
        Self::NoSpace,
        Self::Failed,
        Self::DataFailed,
        Self::TooManyExtents,
        Self::LargeItem,
        Self::Forgotten,
        Self::SpaceBehindEnd,
        Self::NameMoved,
        Self::Subvolume,
        Self::Feature,
    ];

    /// Returns its index in [`Self::ALL`].
    pub(super) fn index(self) -> usize {
        Self::ALL.iter().position(|&reason| reason == self).expect("all are listed")
    }
}

impl fmt::Display for FullCommitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "tree log disabled",
            Self::NewBlockGroup => "new block group",
            Self::NoSpace => "no space for the log",
            Self::Failed => "log write error",
            Self::DataFailed => "data write error",
            Self::TooManyExtents => "too many extents",
            Self::LargeItem => "large item",
            Self::Forgotten => "log tracking overflow",
            Self::SpaceBehindEnd => "preallocation beyond EOF changed",
            Self::NameMoved => "name moved",
            Self::Subvolume => "subvolume added or removed",
            Self::Feature => "first use of a feature",
        })
    }
}

impl From<&TransactionError> for FullCommitReason {
    fn from(error: &TransactionError) -> Self {
        match error {
            TransactionError::NoSpace => Self::NoSpace,
            _ => Self::Failed,
        }
    }
}

/// Why a log commit is not durable. The transaction is marked: it must be committed.
#[derive(Clone, Debug, Error)]
pub enum LogFailure {
    /// The log commit was not written.
    #[error("the transaction must be committed: {0}")]
    Commit(FullCommitReason),
    /// Writing the log commit failed. Earlier writes, also of data, may have failed with it:
    /// callers that wait for those get an error even if the commit succeeds.
    #[error("the log cannot be written: {0}")]
    Failed(Arc<TransactionError>),
}

impl LogFailure {
    /// Returns the reason that marks the transaction.
    pub fn reason(&self) -> FullCommitReason {
        match self {
            Self::Commit(reason) => *reason,
            Self::Failed(_) => FullCommitReason::Failed,
        }
    }
}

impl From<FullCommitReason> for LogFailure {
    fn from(reason: FullCommitReason) -> Self {
        Self::Commit(reason)
    }
}

impl<E: Into<TransactionError>> From<E> for LogFailure {
    fn from(error: E) -> Self {
        Self::Failed(Arc::new(error.into()))
    }
}
