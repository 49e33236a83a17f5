//! btrfs in user space: the library's face.
//!
//! A [`Filesystem`] is opened on an image file or a block device, without the kernel's driver
//! and without privilege. [`extract`] copies trees out of it.
//!
//! 1. Nothing here changes an image so far: every call reads.
//! 2. Every call may be made from any thread.

#![forbid(unsafe_code)]

pub mod dump;
pub mod extract;

pub use userbtrfs_codec::compress::DecompressError;
pub use userbtrfs_device as device;
pub use userbtrfs_engine::api::*;
pub use userbtrfs_format::{
    BlockError, BlockGroupFlags, ChunkError, ItemError, ItemKind, Key, Logical, Physical, Profile,
    Quoted, SuperblockError,
};
pub use userbtrfs_volume::{CopyError, OpenError, ReadError, SuperblockCopyError};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
