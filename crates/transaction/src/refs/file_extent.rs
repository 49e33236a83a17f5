//! References of files to extents, as files know them.

use userbtrfs_btree::{Backref, Extent};
use userbtrfs_format::{Logical, TreeId};

/// A reference of a file to an extent on disk.
#[derive(Clone, Copy, Debug)]
pub struct FileExtentRef {
    /// The subvolume of the file.
    pub root: TreeId,
    /// The inode number of the file.
    pub inode: u64,
    /// The offset in the file where the whole extent would start, in bytes: it wraps below 0.
    pub offset: u64,
    /// The address of the extent.
    pub logical: Logical,
    /// Its length on disk, in bytes.
    pub len: u64,
}

impl FileExtentRef {
    pub(crate) fn extent(&self) -> Extent {
        Extent::Data { logical: self.logical, len: self.len }
    }

    pub(crate) fn backref(&self) -> Backref {
        Backref::File { root: self.root, inode: self.inode, offset: self.offset }
    }
}
