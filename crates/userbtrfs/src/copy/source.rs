//! The events of the walk through a tree that is copied.
//!
//! 1. Each directory is entered, then left; the events of its entries are between.
//! 2. A failure concerns one name; more events follow it.
//! 3. No symbolic link is followed, except in the path that the caller gives.

pub(super) mod host_tree;
pub(super) mod image_tree;

use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::io::Errno;
use userbtrfs_engine::api::{Inode, Timestamp};

use super::error::{CopyError, SideError};
pub(super) use super::origin::Origin;
use super::shared::SharedData;

/// A tree to copy.
pub(super) trait Source {
    type Content;

    /// Returns the next event.
    fn next(&mut self) -> Option<Event<Self::Content>>;
}

/// An event.
pub(super) enum Event<C> {
    /// A directory; the events of its entries follow.
    Enter(Entry),
    /// The directory that was entered last, and not left, is complete.
    Leave,
    /// A file without content: a link, a device, a pipe or a socket.
    Other(Entry),
    /// A regular file with its content.
    File(Entry, C),
    /// Something failed.
    Failed(CopyError),
}

/// The content of a file, which is not opened yet or may be given to another thread.
pub(super) trait Content {
    type Reader: ContentReader;

    fn into_reader(self) -> Self::Reader;
}

/// A reader of the content of a file.
pub(super) trait ContentReader {
    /// Reads the next bytes into the front of `room`, which is not empty.
    fn read(&mut self, room: &mut [u8]) -> Result<Piece, CopyError>;
}

/// A piece of the content of a file: data in ascending order, then the end. A range that no data
/// covers is a hole.
pub(super) enum Piece {
    Data {
        offset: u64,
        len: usize,
    },
    /// A range of data that was copied before, with another file.
    Shared(SharedData),
    End {
        size: u64,
        /// True if files that follow may share data with this one.
        shares: bool,
        /// A warning about the file, which is kept.
        remark: Option<CopyError>,
    },
}

/// An inode of the source, under one of its names.
pub(super) struct Entry {
    /// The name in its directory; empty for the first inode.
    pub(super) name: Vec<u8>,
    /// The path in the source.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    pub(super) origin: Origin,
    /// True if it has other names and is not a directory.
    pub(super) has_links: bool,
    pub(super) xattrs: LazyXattrs,
}

/// Returns true if a directory can hold an entry of this name: it does not lead elsewhere.
pub(super) fn is_entry_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// The kind of an inode.
pub(super) enum Kind {
    Directory,
    File,
    Symlink(Vec<u8>),
    /// A device, with its number, a pipe or a socket.
    Special((u32, u32)),
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

/// The extended attributes of a source.
#[derive(Default)]
pub(super) struct Xattrs {
    /// Names and values.
    pub(super) found: Vec<(Vec<u8>, Vec<u8>)>,
    /// The names of those that are listed but cannot be read, with the errors.
    pub(super) unread: Vec<(Vec<u8>, Errno)>,
    /// The error because of which there are no others.
    pub(super) failure: Option<SideError>,
}

/// Extended attributes that are read when they are first needed, by the thread that needs them.
pub(super) struct LazyXattrs {
    read: OnceLock<Xattrs>,
    inode: Option<Inode>,
}

impl LazyXattrs {
    /// Reads those of an inode when they are needed.
    pub(super) fn of(inode: Inode) -> Self {
        Self { read: OnceLock::new(), inode: Some(inode) }
    }

    pub(super) fn get(&self) -> &Xattrs {
        self.read.get_or_init(|| match self.inode.as_ref().map(Inode::xattrs) {
            None => Xattrs::default(),
            Some(Ok(found)) => Xattrs { found, ..Xattrs::default() },
            Some(Err(error)) => Xattrs { failure: Some(error.into()), ..Xattrs::default() },
        })
    }
}

impl From<Xattrs> for LazyXattrs {
    fn from(xattrs: Xattrs) -> Self {
        Self { read: xattrs.into(), inode: None }
    }
}
