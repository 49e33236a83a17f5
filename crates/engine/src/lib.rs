//! The filesystem: inodes, data, subvolumes, and the public API over them.
//!
//! | module  | what it is                                            | calls         |
//! |---------|-------------------------------------------------------|---------------|
//! | `inode` | inodes, directories, names, extended attributes       | lower crates  |
//! | `data`  | data of files: in memory, in extents, and in flight   | `inode`       |
//! | `log`   | the tree log: what is logged, and its replay          | `inode` `data`|
//! | `share` | subvolumes and snapshots                              | `inode` `data`|
//! | `api`   | the public face, in the manner of `std::fs`           | all of them   |
//!
//! Invariants:
//!
//! 1. Bytes of a file leave the engine only after their checksum was verified, unless the file has
//!    none by its NODATASUM flag.
//! 2. Damage that can be repaired from another mirror is; otherwise the error names the file, the
//!    offset and both checksums.
//! 3. A change is in memory, and visible to every call, when its own call returns; it is durable,
//!    together with all before it, after the next commit that was requested.
//! 4. Every call takes `&self`, is synchronous, and may be made from any thread.

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

pub mod acl;
pub mod api;
mod clock;
mod compression;
mod data;
mod error;
mod inode;
mod log;
mod share;
mod units;

pub use error::{DataError, Error, InodeId, LogDamage, LogError, Result, Unwritten};
