//! Events of the walk through a tree that is copied.
//!
//! 1. Each directory is entered, then left; the events of its entries are between.
//! 2. A file is its beginning, its data in ascending order, then its end. A range that no data
//!    covers is a hole.
//! 3. A failure concerns one name, or the file that has begun and has not ended; more events
//!    follow it.

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
    /// The names of those that are listed but cannot be read, with the errors.
    pub(super) unread: Vec<(Vec<u8>, Errno)>,
}

/// An event.
pub(super) enum TreeEvent {
    /// A directory; the events of its entries follow.
    Enter(Node),
    /// The directory that was entered last, and not left, is complete.
    Leave,
    /// A file without content: a link, a device, a pipe or a socket.
    Other(Node),
    /// A regular file; its content follows.
    Begin(Node),
    /// Data of the file that has begun.
    Data {
        /// Its offset in the file.
        offset: u64,
        /// Its range in the bytes that are passed with the event.
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

/// An inode of the source, under one of its names.
pub(super) struct Node {
    /// The name of the copy; `None` for a directory of which only the entries are copied.
    pub(super) name: Option<Vec<u8>>,
    /// The path in the source.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    pub(super) xattrs: Xattrs,
    pub(super) origin: Origin,
    /// True if it has other names and is not a directory.
    pub(super) several: bool,
}

/// The kind of an inode.
pub(super) enum Kind {
    Directory,
    File,
    Symlink(Vec<u8>),
    /// A device, with its number, a pipe or a socket.
    Special((u32, u32)),
}

/// The identity of an inode of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// An inode of the host: its device and inode number.
    Machine(u64, u64),
    /// An inode of the same filesystem.
    Inside(InodeId),
}

/// Attributes as `stat` returns them.
#[derive(Clone, Copy)]
pub(super) struct Attributes {
    /// With the file type.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
}
