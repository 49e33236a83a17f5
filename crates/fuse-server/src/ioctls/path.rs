//! Paths of inodes in their subvolume, for the ioctls that look inodes up.

use userbtrfs_engine::api::{Error, Inode};
use userbtrfs_fuse::Errno;

use crate::errno;

/// The root directory of each subvolume.
pub(super) const ROOT_DIR: u64 = 256;

/// Returns the directories of an inode, with its name in each of them.
pub(super) fn links(inode: &Inode) -> Result<Vec<(Inode, Vec<u8>)>, Errno> {
    match inode.names() {
        Err(Error::NoInode(_)) => Err(Errno::NOENT),
        names => names.map_err(errno),
    }
}

/// A path with a slash after each name, from its last name on.
pub(super) struct ReversePath {
    names: Vec<Vec<u8>>,
    len: usize,
    /// The size of the field for the path, with the terminating NUL.
    size: usize,
}

impl ReversePath {
    pub(super) fn new(size: usize) -> Self {
        Self { names: Vec::new(), len: 0, size }
    }

    /// Adds the name before all others; fails if the path no longer fits.
    pub(super) fn push(&mut self, name: &[u8]) -> Result<(), Errno> {
        self.len += name.len() + 1;
        if self.len >= self.size {
            return Err(Errno::NAMETOOLONG);
        }
        self.names.push([name, b"/"].concat());
        Ok(())
    }

    /// Returns the path from its first name on.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.names.reverse();
        self.names.concat()
    }
}
