//! The public API, in the manner of `std::fs`.
//!
//! [`Filesystem`] is an open filesystem; paths in it are absolute and start at its root: the
//! subvolume that [`OpenOptions`] names, or the default one. [`Inode`] is a handle on any inode; it
//! opens files as [`File`] and directories as [`Dir`].
//!
//! 1. Nothing here interprets bytes of the disk; it combines the results of the other modules.
//! 2. A change is visible at once to every call, and durable after a commit.
//! 3. A path never leaves the root: `..` of the root is the root, and an absolute symbolic link
//!    starts there.

mod attributes;
mod by_path;
mod clone;
mod defragment;
mod entries;
#[cfg(feature = "experiments")]
mod experiments;
mod extent_sharing;
mod file;
mod file_open_options;
mod filesystem;
mod image_path;
mod inode;
mod items;
mod options;
mod path;
mod reader;
mod resize;
mod seek;
#[cfg(all(test, shuttle))]
mod shuttle_models;
mod space;
mod stats;
mod subvolume;
#[cfg(test)]
mod tests;
mod walk;
mod write;

pub use crate::clock::now;
pub use crate::compression::{Compress, Recompress};
pub use crate::data::{Allocate, Deduped, Defragment};
pub use crate::error::{
    DataError, Error, InodeId, LogDamage, LogError, PathCall, PathError, PathOperation, PathResult,
    Result, Unwritten,
};
pub use crate::inode::EMPTY_DIR;
pub use crate::inode::Membership;
pub use crate::log::{
    IncompleteFile, ReplayProgress, Replayed, SkippedItem, SyncOutcome, SyncRecord, SyncStats,
};
pub use attributes::{Attributes, XattrMode};
pub use entries::RenameMode;
pub use extent_sharing::{ExtentSharing, FileUse, SharedRange};
pub use file::{Extent, ExtentKind, File};
pub use file_open_options::FileOpenOptions;
pub use filesystem::{Filesystem, Shutdown};
pub use image_path::ImagePath;
pub use inode::{Dir, DirEntries, DirEntry, FileType, Inode, Metadata};
pub use options::{OpenOptions, PendingLog};
pub use path::join_path;
pub use reader::{Chunk, FileReader};
pub use resize::{ImageLength, NewSize};
pub use space::{SpaceUse, StatFs, Usage};
pub use stats::{DirtyStats, Stats};
pub use subvolume::SubvolumeInfo;
pub use userbtrfs_btree::CacheStats;
pub use userbtrfs_codec::compress::{Compression, CompressionMethod, MethodError};
pub use userbtrfs_device::{Buffer, Direct, IoUring, Region, Slice};
pub use userbtrfs_format::{FileKind, InodeFlags, ItemKind, Key, Timestamp, TreeId};
pub use userbtrfs_transaction::{
    CommitTrigger, Commits, Discards, FullCommitReason, LogStats, RelocationStats,
};
#[cfg(feature = "experiments")]
pub use userbtrfs_transaction::{Experiment, NoSuchExperiment};
pub use userbtrfs_volume::{MirrorStats, Warning};
pub use walk::{Walk, WalkEntry};
pub use write::FileWriter;
