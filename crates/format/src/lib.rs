//! Parsing and encoding of the on-disk structures of btrfs. No I/O, no caches.
//!
//! `docs/format.md` lists the offset, the rule and the source of every field.
//!
//! Invariants:
//!
//! 1. Raw structures are private. Every value that leaves this crate has been validated and
//!    cannot hold a value that its type forbids.
//! 2. A [`TreeBlock`] exists only after its checksum, header, key order, item bounds and the
//!    content of each item were verified, or it was created by this crate, which keeps its order
//!    and bounds through every change. Its accessors cannot fail, and it is verified before it is
//!    written.
//! 3. Each check has an error variant of its own, which names the block, the slot and the key
//!    concerned.
//! 4. No `as`, no unchecked arithmetic, no host-endian bytes.

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]
#![deny(clippy::as_conversions, clippy::arithmetic_side_effects)]

mod address;
mod backref;
mod block;
mod check;
mod chunk;
mod device;
mod dir;
mod error;
mod extent;
mod feature;
mod flags;
mod geometry;
mod inode;
mod item;
mod key;
mod misc;
mod root;
mod space;
mod superblock;
mod text;

pub use address::{Logical, Physical, TreeId};
pub use backref::{ExtentFlags, ExtentItem, InlineRef, KeyedRef, MetadataLevel};
pub use block::{
    BlockError, BlockFlags, ChildPointer, Expectation, Header, NewBlock, TreeBlock, item_len_max,
    item_space,
};
pub use chunk::{
    BlockGroupFlags, Chunk, Profile, STRIPE_LEN, Stripe, encode_sys_chunk_array, sys_chunk_array,
};
pub use device::{DeviceExtent, DeviceItem};
pub use dir::{DirEntry, DirEntryKind, dir_entries};
pub use error::{ChunkError, ItemError};
pub use extent::{
    FileExtent, FileExtentKind, HoleExtent, InlineExtent, MAX_COMPRESSED_EXTENT, RegularExtent,
};
pub use flags::{CompatRoFlags, IncompatFlags, SuperblockFlags};
pub use geometry::Geometry;
pub use inode::{FileKind, InodeFlags, InodeItem, InodeName, Timestamp, inode_extrefs, inode_refs};
pub use item::Item;
pub use key::{ItemKind, Key};
pub use misc::{
    BalanceArgs, BalanceItem, DevReplaceItem, DevStats, QgroupInfo, QgroupLimit, QgroupStatus,
    V1SpaceCache, dir_log_end, encode_uuid_subvolumes, uuid_key, uuid_of_key, uuid_subvolumes,
};
pub use root::{RootExtension, RootFlags, RootInode, RootItem, RootRef};
pub use space::{BlockGroupItem, FreeSpaceInfo, csum_count};
pub use superblock::{
    BackupRoot, LABEL_LEN_MAX, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, SYS_CHUNK_ARRAY_SIZE,
    Superblock, SuperblockError,
};
pub use text::Quoted;

/// The only sector size that this crate supports, in bytes.
pub const SECTOR_SIZE: u32 = 4096;

/// [`SECTOR_SIZE`] for offsets and lengths.
pub const SECTOR: u64 = 4096;

/// The highest level that a tree block may have.
pub const MAX_LEVEL: u8 = 7;

/// The longest name of a directory entry or extended attribute, in bytes.
pub const NAME_LEN_MAX: usize = 255;

/// The object id of a subvolume's root directory, and the lowest one that a file may have.
pub const FIRST_FREE_OBJECTID: u64 = 256;

/// The last object id that a file or a subvolume may have (-256).
pub const LAST_FREE_OBJECTID: u64 = u64::MAX - 255;

/// The object id of ORPHAN_ITEMs: of inodes in a subvolume, of deleted subvolumes in the root tree.
pub const ORPHAN_OBJECTID: u64 = u64::MAX - 4;
