//! Inodes of the model.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::manifest::{Bytes, Kind, Mode, Time};

use super::content::Content;
use super::outcome::Outcome;

/// The maximum length of a name, in bytes.
pub(super) const NAME_MAX: usize = 255;

/// The number of an inode, which is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub(super) u64);

/// The root directory.
pub(super) const ROOT: Id = Id(256);

/// The type of an inode, with the data specific to that type.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A directory: its entries by name.
    Dir(BTreeMap<Vec<u8>, Id>),
    /// A regular file: its content.
    File(Content),
    /// A symbolic link: its target.
    Symlink(Bytes),
    /// Any other type; the numbers only matter for devices.
    Special(Kind, (u32, u32)),
}

impl Node {
    pub(super) fn dir() -> Self {
        Self::Dir(BTreeMap::new())
    }

    pub(super) fn file() -> Self {
        Self::File(Content::default())
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Dir(_) => Kind::Dir,
            Self::File(_) => Kind::File,
            Self::Symlink(_) => Kind::Symlink,
            Self::Special(kind, _) => *kind,
        }
    }

    pub(super) fn entries(&self) -> Option<&BTreeMap<Vec<u8>, Id>> {
        match self {
            Self::Dir(entries) => Some(entries),
            _ => None,
        }
    }

    /// Fails if the inode cannot be opened.
    pub(super) fn check_opening(&self) -> Outcome {
        match self {
            Self::Dir(_) | Self::File(_) => Ok(()),
            Self::Symlink(_) => Err(Errno::LOOP),
            Self::Special(..) => Err(Errno::INVAL),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) node: Node,
    pub(super) mode: Mode,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    /// Whether it was created without a name and may be linked.
    pub(super) is_linkable: bool,
    /// The root directory of its subvolume.
    pub(super) subvolume: Id,
    /// Whether it is an empty directory that a snapshot has in place of a subvolume.
    pub(super) is_stub: bool,
    /// The parent of a directory; the root is its own parent.
    pub(super) parent: Option<Id>,
    /// As `FS_*_FL` bits.
    pub(super) flags: u32,
    /// The time of the last access, if known.
    pub(super) atime: Option<Time>,
    /// The time of the last change of content, if known.
    pub(super) mtime: Option<Time>,
    pub(super) xattrs: BTreeMap<Bytes, Bytes>,
}

impl Inode {
    /// Creates an inode without a name.
    pub(super) fn new(node: Node, mode: Mode) -> Self {
        Self {
            node,
            mode,
            uid: 0,
            gid: 0,
            nlink: 0,
            is_linkable: false,
            subvolume: ROOT,
            is_stub: false,
            parent: None,
            flags: 0,
            atime: None,
            mtime: None,
            xattrs: BTreeMap::new(),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.node, Node::Dir(_))
    }

    /// Inherits from the directory: the subvolume, the nocow flag, and if it is set-group-id, the
    /// group and (for a directory) that bit.
    pub(super) fn inherit(&mut self, dir: &Inode) {
        self.subvolume = dir.subvolume;
        if matches!(self.node, Node::Dir(_) | Node::File(_)) {
            self.flags |= dir.flags & NOCOW;
        }
        if dir.mode.bits() & SET_GROUP_ID != 0 {
            self.gid = dir.gid;
            if self.is_dir() {
                self.mode = Mode::new(self.mode.bits() | SET_GROUP_ID);
            }
        }
    }
}

/// Data is overwritten in place (`FS_NOCOW_FL` of `linux/fs.h`).
pub(super) const NOCOW: u32 = 0x80_0000;

/// Bits of a mode.
pub(super) const SET_USER_ID: u32 = 0o4000;
pub(super) const SET_GROUP_ID: u32 = 0o2000;
pub(super) const GROUP_EXECUTES: u32 = 0o0010;
