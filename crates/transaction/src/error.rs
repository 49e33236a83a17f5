//! Errors of this crate.

use thiserror::Error;
use userbtrfs_btree::{EditError, SealError, SourceError};
use userbtrfs_format::{Key, TreeId};
use userbtrfs_volume::{ReadError, WriteError};

use crate::commit::Failed;
use crate::damage::Damage;
use crate::space::SpaceDamage;

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A tree block cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A required tree does not exist.
    #[error("tree {0} has no root")]
    NoTree(TreeId),
    /// A tree would exceed the maximum height.
    #[error("tree {0} has all levels that there are, and they are full")]
    TooHigh(TreeId),
    /// The filesystem's records of its space contradict each other.
    #[error(transparent)]
    Space(#[from] SpaceDamage),
    /// Trees contradict each other, or themselves.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A write to the device failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A tree block to be written is invalid: no reader would accept it.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The filesystem is in a state in which it cannot be written.
    #[error("cannot be opened for writing: {0}")]
    Unwritable(&'static str),
    /// The root of a tree cannot be read, without which Linux does not mount the filesystem.
    #[error("cannot be opened for writing: {tree}: {source}")]
    Root {
        /// The tree.
        tree: TreeId,
        /// The fault of its root.
        source: ReadError,
    },
    /// The root of a tree holds an item without an inode; Linux does not mount such a filesystem.
    #[error("cannot be opened for writing: {tree}: item {key} has no inode")]
    NoOwner {
        /// The tree.
        tree: TreeId,
        /// The key of the item.
        key: Key,
    },
    /// A tree has unknown flags; Linux does not mount such a filesystem.
    #[error("cannot be opened for writing: {tree}: unknown root flags {flags:#x}")]
    RootFlags {
        /// The tree.
        tree: TreeId,
        /// All of its flags.
        flags: u64,
    },
    /// An inode in the root of a tree has unknown flags; Linux does not mount such a filesystem.
    #[error("cannot be opened for writing: {tree}: unknown flags {flags:#x} of inode {inode}")]
    InodeFlags {
        /// The tree.
        tree: TreeId,
        /// The number of the inode.
        inode: u64,
        /// All of its flags.
        flags: u64,
    },
    /// An earlier failure turned the filesystem read-only.
    #[error("the filesystem has turned read-only: {0}")]
    ReadOnly(String),
    /// A caller shut the filesystem down.
    #[error("the filesystem was shut down")]
    ShutDown,
    /// The thread that commits in the background cannot be started.
    #[error("cannot start a thread: {0}")]
    NoThread(std::io::Error),
    /// A subvolume that is being deleted.
    #[error("subvolume {0} is being deleted")]
    DeletedSubvolume(TreeId),
    /// A subvolume that contains others.
    #[error("subvolume {0} contains other subvolumes")]
    SubvolumeNotEmpty(TreeId),
    /// The subvolume that is mounted when none is named.
    #[error("subvolume {0} is the default subvolume")]
    DefaultSubvolume(TreeId),
    /// A block group that cannot be relocated while a deleted subvolume is being dropped.
    #[error("a deleted subvolume is still being dropped")]
    TreeBeingDropped,
    /// A block group that cannot be relocated now; nothing is changed.
    #[error("a block group cannot be relocated: {0}")]
    NotRelocated(&'static str),
    /// No space is left, and none can be reclaimed.
    #[error("no space left on the device")]
    NoSpace,
}

impl Error {
    /// Returns the error of a source of blocks.
    pub(crate) fn from_source(error: SourceError) -> Self {
        *error.downcast().expect("a source of blocks fails with an error of this crate")
    }
}

impl From<EditError> for Error {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Read(error) => Self::Read(error),
            EditError::NoSpace(_) => Self::NoSpace,
            EditError::TooHigh(tree) => Self::TooHigh(tree),
            EditError::Source(error) => Self::from_source(error),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Error(why) => Self::ReadOnly(why),
            Failed::ShutDown => Self::ShutDown,
        }
    }
}
