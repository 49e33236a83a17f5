//! Steps through a tree that is copied.
//!
//! 1. Each directory is entered, then left; what is in it comes between.
//! 2. A file begins, then comes its data in ascending order, then its end. What no data covers is
//!    a hole.
//! 3. A failure stands for one name, or for the file that has begun and has not ended; the steps go
//!    on behind it.

use std::ops::Range;
use std::path::PathBuf;

use rustix::io::Errno;
use userbtrfs_engine::api::{InodeId, Timestamp};

use super::ImportError;

/// The extended attributes of a source.
#[derive(Debug, Default)]
pub(super) struct Xattrs {
    /// Names and values.
    pub(super) found: Vec<(Vec<u8>, Vec<u8>)>,
    /// The names of those that are listed and cannot be read, and why.
    pub(super) unread: Vec<(Vec<u8>, Errno)>,
}

/// A step.
pub(super) enum TreeEvent {
    /// A directory, and what is in it follows.
    Enter(Node),
    /// The directory that was entered last, and not left, is complete.
    Leave,
    /// What has no content: a link, a device, a pipe or a socket.
    Other(Node),
    /// A file, and its content follows.
    Begin(Node),
    /// Data of the file that has begun.
    Data {
        /// Where it is in the file.
        offset: u64,
        /// Where it is in the bytes that come with the step.
        bytes: Range<usize>,
    },
    /// The file that has begun is complete.
    End {
        /// Its size in bytes.
        size: u64,
    },
    /// Something failed.
    Failed(ImportError),
}

/// What stands at a name.
pub(super) struct Node {
    /// The name it gets; none for a directory whose content alone is copied.
    pub(super) name: Option<Vec<u8>>,
    /// Where it is in the source.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    pub(super) xattrs: Xattrs,
    pub(super) origin: Origin,
    /// Whether it is no directory and has other names.
    pub(super) several: bool,
}

/// What it is.
pub(super) enum Kind {
    Directory,
    File,
    Symlink(Vec<u8>),
    /// A device, with its number, a pipe or a socket.
    Special((u32, u32)),
}

/// Which inode it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// Of the machine: its device and its number.
    Machine(u64, u64),
    /// Of the filesystem itself.
    Inside(InodeId),
}

/// Attributes as `stat` gives them.
#[derive(Clone, Copy)]
pub(super) struct Attributes {
    /// With the type.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
}
