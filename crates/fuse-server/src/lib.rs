//! Serves a mounted filesystem: turns requests of the kernel into calls of the engine.
//!
//! | file                     | holds                                            |
//! |--------------------------|--------------------------------------------------|
//! | `mounted`                | the lifetime of a mount                          |
//! | `server`                 | the dispatch of requests to operations           |
//! | `ioctls`, `shutdown`     | ioctls; the one that ends all writing            |
//! | `names`, `listing`       | creation, removal, rename; listings              |
//! | `lookup`                 | lookup and forget                                |
//! | `attributes`, `contents` | attributes; reads and writes                     |
//! | `xattrs`                 | extended attributes                              |
//! | `subvolumes`             | changes of subvolumes                            |
//! | `sync`, `statfs`         | fsync, syncfs, the last commit; free space       |
//! | `context`                | the state of a mount that operations share       |
//! | `permissions`            | the permissions of directories, for ioctls       |
//! | `set_id`, `rights`       | set-id bits; checks that the kernel leaves out   |
//! | `node_ids`               | the conversion of inode numbers to FUSE node ids |
//! | `lookup_counts`          | the nodes that the kernel references, by count   |
//! | `listing_ends`           | where the listings of directories end            |
//! | `recent_writes`          | the files that were written a moment ago         |
//! | `unreported_errors`      | writes that failed after their call had returned |
//! | `group`                  | the mounts of one filesystem                     |
//! | `control`                | the socket that serves counters to the owner     |
//!
//! A file uses only files of its own row and of those below.
//!
//! 1. This crate implements only the semantics that the kernel leaves to a server: access lists are
//!    inherited and follow permissions, set-id bits and capabilities are cleared by changes.
//! 2. The kernel checks permissions, from attributes and access lists; this crate checks only what
//!    the kernel does not (`rights`).
//! 3. The kernel may cache attributes and names forever, since all changes pass through it. If a
//!    change has effects that the kernel does not know of, the server invalidates its cache.
//! 4. Files and directories have no open state: a request names its inode, which suffices. An inode
//!    without a name is kept until the kernel forgets it.
//! 5. A change is durable when the engine reports it as durable; see [`Mounted`] for the end of a
//!    mount.

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod attributes;
mod contents;
mod context;
pub mod control;
mod group;
mod ioctls;
mod listing;
mod listing_ends;
mod lookup;
mod lookup_counts;
mod mounted;
mod names;
mod node_ids;
mod permissions;
mod recent_writes;
mod rights;
mod server;
mod set_id;
mod shutdown;
mod statfs;
mod subvolumes;
mod sync;
mod unreported_errors;
mod xattrs;

pub use group::MountGroup;
pub use mounted::{EndError, Mounted, Options, StartError, StatsHandle, UnmountHandle};
/// The part of the FUSE crate's API that mounts a directory.
pub use userbtrfs_fuse::{
    Mount, MountError, MountFlags, MountMethod, MountOptions, Opcode, SessionError,
};

use userbtrfs_engine::api::Error;
use userbtrfs_fuse::Errno;

/// The filesystem subtype in the mount table, after `fuse.` or `fuseblk.`.
pub const KIND: &str = "userbtrfs";

/// Returns the errno of an engine error.
fn errno(error: impl std::borrow::Borrow<Error>) -> Errno {
    Errno::from_raw_os_error(error.borrow().errno())
}
