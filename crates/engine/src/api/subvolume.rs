//! Information about subvolumes.

use userbtrfs_format::{RootFlags, RootItem, TreeId};

use super::{Filesystem, Inode};
use crate::error::{Error, InodeId, Result};
use crate::inode::ROOT_DIR;
use crate::share::{self, Subvolume};

/// A subvolume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubvolumeInfo {
    /// The id.
    pub id: TreeId,
    /// The id of the subvolume that contains it; `None` for the top level.
    pub parent: Option<TreeId>,
    /// The directory there that has its name; `None` for the top level.
    pub dir: Option<u64>,
    /// The name; empty for the top level.
    pub name: Vec<u8>,
    /// The path from the top level, without a leading slash; empty for the top level.
    pub path: Vec<u8>,
    /// The item in the root tree.
    pub root: RootItem,
}

impl SubvolumeInfo {
    /// Returns true if it may not be changed.
    pub fn is_read_only(&self) -> bool {
        self.root.flags.contains(RootFlags::READ_ONLY)
    }
}

impl Filesystem {
    /// Returns all subvolumes except the top level, by id. Those being deleted are hidden.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        share::subvolumes(self.inner.tree_roots())?.into_iter().map(|s| self.describe(s)).collect()
    }

    /// Returns the subvolume of an id; 5 is the top level.
    pub fn subvolume(&self, id: TreeId) -> Result<SubvolumeInfo> {
        self.describe(share::subvolume(self.inner.tree_roots(), id)?)
    }

    /// Returns the subvolume whose root directory is this inode.
    pub fn subvolume_at(&self, inode: &Inode) -> Result<SubvolumeInfo> {
        match inode.id().number {
            ROOT_DIR => self.subvolume(inode.id().subvolume),
            _ => Err(Error::NoSubvolume),
        }
    }

    /// Returns the id of the subvolume that is mounted when none is named.
    pub fn default_subvolume(&self) -> Result<TreeId> {
        share::default_subvolume(self.inner.tree_roots())
    }

    /// Returns the handle on a subvolume's root directory.
    pub fn subvolume_root(&self, id: TreeId) -> Result<Inode> {
        let subvolume = share::subvolume(self.inner.tree_roots(), id)?.id;
        Ok(self.inode(InodeId { subvolume, number: ROOT_DIR }))
    }

    fn describe(&self, subvolume: Subvolume) -> Result<SubvolumeInfo> {
        let path = share::path_of(&self.inner.nodes, &subvolume)?;
        let Subvolume { id, root, parent } = subvolume;
        let (parent, dir, name) = match parent {
            Some((parent, dir, name)) => (Some(parent), Some(dir), name),
            None => (None, None, Vec::new()),
        };
        Ok(SubvolumeInfo { id, parent, dir, name, path, root })
    }
}
