//! The lock order: the one list of it.
//!
//! 1. A thread that holds a lock takes only locks of classes declared after that lock's class.
//! 2. Two locks of one class are held together only as [`Class::together`] allows.
//! 3. Nothing is taken after [`Class::DeviceQueue`].

use std::fmt;

/// The classes of locks, outermost first: declaration order is the lock order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The thread that drops deleted subvolumes: held while it is started or joined.
    CleanerThread,
    /// The queue of deleted subvolumes.
    SubvolumeQueue,
    /// Moves of directories between parents: at most one at a time in a filesystem.
    RenameMutex,
    /// The operation lock of a directory whose entries change.
    ParentDirectory,
    /// The operation lock of an inode that is named, unlinked, or written.
    ChildInode,
    /// The queue of reservations that wait for space: space is reclaimed for one at a time.
    ReserveTickets,
    /// The writeback of the dirty data of one file, held over its I/O. Threads that share extents
    /// between two files hold both.
    Writeback,
    /// A range of the bytes of one file.
    FileRange,
    /// Membership in a running transaction.
    TransactionHandle,
    /// Running delayed items, or adding pending checksums to their tree: one at a time.
    PendingMerge,
    /// The root items of subvolumes and the UUID tree: one change at a time.
    SubvolumeRoots,
    /// The logs of the running transaction.
    LogRoot,
    /// The allocation of new chunks.
    ChunkAllocation,
    /// A node or leaf of any tree: a `TreeLock`.
    TreeBlock,
    /// The set of trees that the running transaction changed.
    ChangedRoots,
    /// The state of an inode in memory: delayed items, extent map. Nothing is awaited under it.
    InodeState,
    /// The cached blocks of one file, and its locked ranges. Bytes are copied under it, nothing is
    /// awaited.
    FileContents,
    /// Reference changes not yet in the extent tree; checksums not yet in the checksum tree.
    DelayedRefs,
    /// The free space of one block group.
    BlockGroup,
    /// Counters of space used and reserved.
    SpaceCounters,
    /// The states of transactions, and the number of their members: held briefly, to join and
    /// leave.
    TransactionState,
    /// One shard of a cache's index.
    CacheShard,
    /// The map of logical addresses to device addresses.
    ChunkMap,
    /// The threads of a FUSE mount, the receivers of interrupts, and the nodes that the kernel
    /// knows: held briefly, nothing is taken under it.
    FuseSession,
    /// Requests in flight to one device. Nothing is taken after it.
    DeviceQueue,
}

/// The rule by which one thread may hold two locks of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Never.
    No,
    /// As a sorted set: (subvolume, number) increases from each lock to the next.
    Ascending,
    /// With a token of `Nesting`.
    ByToken,
}

impl Class {
    /// Returns the rule for two locks of this class.
    pub(crate) fn together(self) -> Together {
        match self {
            Self::ParentDirectory | Self::ChildInode | Self::Writeback | Self::FileRange => {
                Together::Ascending
            }
            Self::TreeBlock => Together::ByToken,
            _ => Together::No,
        }
    }

    /// Returns the name of the class in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::CleanerThread => "cleaner thread",
            Self::SubvolumeQueue => "queue of deleted subvolumes",
            Self::RenameMutex => "rename mutex",
            Self::ParentDirectory => "parent directory",
            Self::ChildInode => "child inode",
            Self::ReserveTickets => "reserve tickets",
            Self::Writeback => "writeback",
            Self::FileRange => "file range",
            Self::TransactionHandle => "transaction handle",
            Self::PendingMerge => "pending merge",
            Self::SubvolumeRoots => "root items of subvolumes",
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
