//! btrfs in user space: the public library.
//!
//! A [`Filesystem`] is opened on an image file or a block device, without the kernel's driver
//! and without privilege. [`copy::export`] copies trees out of it, [`copy::import`] copies them in,
//! and [`mkfs`] makes empty ones.
//!
//! 1. A filesystem is changed only if it was opened for writing.
//! 2. Every call may be made from any thread.

#![forbid(unsafe_code)]

pub mod copy;
pub mod dump;

pub use copy::counted::Counted;
pub use userbtrfs_codec::compress::DecompressError;
pub use userbtrfs_device as device;
pub use userbtrfs_engine::api::*;
pub use userbtrfs_format::{
    BlockError, BlockGroupFlags, ChunkError, ItemError, ItemKind, Key, Logical, Physical, Profile,
    Quoted, SuperblockError,
};
pub use userbtrfs_fuse_server as mount;
pub use userbtrfs_mkfs as mkfs;
pub use userbtrfs_volume::{MirrorError, OpenError, ReadError, SuperblockMirrorError};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
