//! The lock order: the one list of it.
//!
//! 1. A thread that holds a lock takes only locks of classes declared after that lock's class.
//! 2. Two locks of one class are held together only as [`Class::together`] says.
//! 3. Nothing is taken after [`Class::DeviceQueue`].

use std::fmt;

/// What a lock guards, outermost first: declaration order is the lock order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Moves of directories between parents: at most one at a time in a filesystem.
    RenameMutex,
    /// The operation lock of a directory whose entries change.
    ParentDirectory,
    /// The operation lock of an inode that is named, unlinked, or written.
    ChildInode,
    /// The turns of those for whom space is made, one at a time.
    Shortage,
    /// The writing back of one file's dirty data: one at a time, held over its I/O.
    Writeback,
    /// A range of the bytes of one file.
    FileRange,
    /// Membership in a running transaction.
    TransactionHandle,
    /// The merging of pending entries, or of checksums, into trees: one at a time.
    PendingMerge,
    /// The logs of the running transaction.
    LogRoot,
    /// The making of new chunks.
    ChunkAllocation,
    /// A node or leaf of any tree: a `TreeLock`.
    TreeBlock,
    /// Which trees the running transaction changed.
    ChangedRoots,
    /// What an inode holds in memory: pending entries, extent map. Nothing is awaited under it.
    InodeState,
    /// The blocks of one file in memory, and which of its ranges are locked. Bytes are copied
    /// under it, nothing is awaited.
    FileContents,
    /// Reference changes not yet in the extent tree; checksums not yet in theirs.
    DelayedRefs,
    /// The free space of one block group.
    BlockGroup,
    /// Counters of space used and reserved.
    SpaceCounters,
    /// How far transactions have come, and how many are in them: short, taken to join and leave.
    TransactionState,
    /// One shard of a cache's index.
    CacheShard,
    /// Logical addresses to places on devices.
    ChunkMap,
    /// The threads of a FUSE mount, who is to be told of interrupts, and which nodes the kernel
    /// knows: short, nothing is taken under it.
    FuseSession,
    /// Requests in flight to one device. Nothing is taken after it.
    DeviceQueue,
}

/// When two locks of one class may be held by one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Never.
    No,
    /// As a sorted set: (subvolume, number) rises from each lock to the next.
    Ascending,
    /// By a token of `Nesting`.
    ByToken,
}

impl Class {
    /// The rule for two locks of this class.
    pub(crate) fn together(self) -> Together {
        match self {
            Self::ParentDirectory | Self::ChildInode | Self::FileRange => Together::Ascending,
            Self::TreeBlock => Together::ByToken,
            _ => Together::No,
        }
    }

    /// The class in words, as messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RenameMutex => "rename mutex",
            Self::ParentDirectory => "parent directory",
            Self::ChildInode => "child inode",
            Self::Shortage => "shortage",
            Self::Writeback => "writeback",
            Self::FileRange => "file range",
            Self::TransactionHandle => "transaction handle",
            Self::PendingMerge => "pending merge",
            Self::LogRoot => "log root",
            Self::ChunkAllocation => "chunk allocation",
            Self::TreeBlock => "tree block",
            Self::ChangedRoots => "changed roots",
            Self::InodeState => "inode state",
            Self::FileContents => "file contents",
            Self::DelayedRefs => "delayed refs",
            Self::BlockGroup => "block group",
            Self::SpaceCounters => "space counters",
            Self::TransactionState => "transaction state",
            Self::CacheShard => "cache shard",
            Self::ChunkMap => "chunk map",
            Self::FuseSession => "fuse session",
            Self::DeviceQueue => "device queue",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
