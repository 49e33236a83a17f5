//! A mount: requests of the kernel to calls of the engine, and back.
//!
//! | file                     | holds                                            |
//! |--------------------------|--------------------------------------------------|
//! | `mounted`                | a mount from its beginning to its end            |
//! | `server`                 | which method answers which request               |
//! | `node_ids`               | inode numbers to FUSE node ids, by computing     |
//! | `lookup_counts`          | the inodes that the kernel knows, linked or not  |
//! | `recent_writes`          | the files that were written a moment ago         |
//! | `unreported_errors`      | writes that failed after their call had returned |
//! | `names`, `listing`       | lookup, creation, removal, rename; listings      |
//! | `attributes`, `contents` | attributes; reads and writes                     |
//! | `xattrs`, `ioctls`       | extended attributes; ioctls                      |
//! | `shutdown`               | the ioctl that ends all writing                  |
//! | `control`                | the socket that serves counters to the owner     |
//!
//! 1. There are no semantics here but those that the kernel leaves to a server: access lists are
//!    inherited and follow permissions, set-id bits and capabilities go with changes.
//! 2. The kernel checks permissions, by attributes and access lists; nothing here does.
//! 3. Attributes and names are the kernel's to keep without end: it makes all changes itself. Where
//!    it does not know what else a change did, it is told.
//! 4. Files and directories are not opened: a request names its inode, and that is all that is
//!    needed. An inode without a name stays until the kernel forgets it.
//! 5. A change is durable when the library says so; see [`Mounted`] for the end of a mount.

#![forbid(unsafe_code)]

mod attributes;
mod contents;
pub mod control;
mod ioctls;
mod listing;
mod lookup_counts;
mod mounted;
mod names;
mod node_ids;
mod recent_writes;
mod rights;
mod server;
mod shutdown;
mod unreported_errors;
mod xattrs;

pub use mounted::{EndError, Mounted, Options, StatsHandle, UnmountHandle};
/// How a directory is mounted at.
pub use userbtrfs_fuse::{
    Mount, MountError, MountFlags, MountMethod, MountOptions, Opcode, SessionError, StartError,
};

use userbtrfs_engine::api::Error;
use userbtrfs_fuse::Errno;

/// How the table of mounts calls this kind of filesystem, after `fuse.` or `fuseblk.`.
pub const KIND: &str = "userbtrfs";

/// The number by which a program learns of an error.
fn errno(error: impl std::borrow::Borrow<Error>) -> Errno {
    Errno::from_raw_os_error(error.borrow().errno())
}
