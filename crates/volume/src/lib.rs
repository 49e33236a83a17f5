//! The volume: the logical address space of a filesystem on its device, with mirrored copies.
//!
//! It finds the superblock and reads the chunk tree with a plain walker; it then maps and reads
//! logical ranges. A volume opened for writing also writes ranges, adds and removes chunks, and
//! replaces the superblock.
//!
//! Invariants:
//!
//! 1. A volume can be opened only if all its features can be read; the error names those that
//!    cannot.
//! 2. Chunks never overlap and every stripe lies on its device.
//! 3. A range is translated as a whole: one that crosses the end of a chunk is an error, since no
//!    extent or tree block does.
//! 4. [`Volume::read_block`] returns verified tree blocks. It tries each copy in turn; its error
//!    lists every copy with the check that failed.
//! 5. A volume opened from a superblock mirror is read-only, and has a warning in
//!    [`Volume::warnings`].
//! 6. A volume can be opened for writing only if all its features and states permit writing; the
//!    error names those that do not. A volume opened for reading never changes the device.
//! 7. A write goes to every copy of its range, and never to a copy of the superblock.
//! 8. A copy that a read finds bad is recorded. Only a caller that knows that the range still has
//!    the same owner and content rewrites it: see `repair`.
//! 9. After a failed flush or a failed write of the primary superblock, all later flushes and
//!    superblock writes fail: see `flush_tracker`.
//!
//! It has no caching, no tree search and no data checksums. The caller orders writes, flushes and
//! superblock writes; only the order of the superblock's copies is determined here.

#![forbid(unsafe_code)]

mod bad_mirrors;
mod chunk_map;
mod data;
mod error;
mod flush_tracker;
mod node_bytes;
mod open;
mod read;
mod repair;
mod superblocks;
mod volume;
mod walker;
mod warning;
mod write;

pub use bad_mirrors::{BadMirror, MirrorStats};
pub use chunk_map::{ChunkMap, Mapping, Range};
pub use data::PendingWrites;
pub use error::{MirrorError, OpenError, ReadError, SuperblockMirrorError, WriteError};
pub use node_bytes::{NodeBytes, TreeBlock};
pub use read::PendingReads;
pub use superblocks::read_copy as read_superblock_copy;
pub use userbtrfs_device::{Buffer, Slice};
pub use volume::Volume;
pub use walker::{BlockReader, Walk, walk};
pub use warning::Warning;
