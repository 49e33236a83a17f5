//! Subvolumes: information about them, and their changes.

use userbtrfs_format::{RootFlags, RootItem, TreeId};
use uuid::Uuid;

use super::{Dir, Filesystem, Inode};
use crate::error::{Error, InodeId, Result};
use crate::inode::{NewKind, ROOT_DIR, ops};
use crate::share::{self, Subvolume, Writable};

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

    /// Sets the subvolume that is mounted when none is named. Durable with the next commit.
    pub fn set_default_subvolume(&self, id: TreeId) -> Result<()> {
        self.writable()?.set_default(share::subvolume(self.inner.tree_roots(), id)?.id)
    }

    /// Sets whether a subvolume may be changed. Durable with the next commit. An open file that was
    /// written to can still be written to, as in Linux. The UUID that a
    /// subvolume was received with stays: a caller that lets it be changed should remove that
    /// ([`Self::set_received_uuid`]), since it is not what was received any more.
    pub fn set_subvolume_read_only(&self, id: TreeId, read_only: bool) -> Result<()> {
        let id = share::subvolume(self.inner.tree_roots(), id)?.id;
        self.writable()?.set_read_only(id, read_only)
    }

    /// Sets the UUID that a subvolume was received with; nil if it was not received. Durable with
    /// the next commit.
    pub fn set_received_uuid(&self, id: TreeId, received: Uuid) -> Result<()> {
        let id = share::subvolume(self.inner.tree_roots(), id)?.id;
        self.writable()?.set_received_uuid(id, received)
    }

    /// Returns the deleted subvolumes whose space is not freed yet, by id. They have no parent,
    /// name or path any more.
    pub fn deleted_subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        let deleted = share::deleted_subvolumes(self.inner.tree_roots())?;
        deleted.into_iter().map(|subvolume| self.describe(subvolume)).collect()
    }

    /// Waits until the space of these deleted subvolumes is freed, in memory: it can be allocated
    /// after the next commit. Files in them that are open keep them. Returns whether that is so;
    /// returns false early once `may_wait`, which is called several times a second, does.
    pub fn wait_for_deleted(&self, ids: &[TreeId], may_wait: impl Fn() -> bool) -> Result<bool> {
        self.inner.cleaner.as_ref().ok_or(Error::ReadOnly)?.wait(ids, may_wait)
    }

    fn writable(&self) -> Result<Writable<'_>> {
        let transactions = self.inner.transactions.as_ref().ok_or(Error::ReadOnly)?;
        Ok(Writable {
            namespace: &self.inner.namespace,
            writer: self.inner.writer()?,
            transactions,
        })
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

/// Subvolumes in a directory.
impl Dir {
    /// Creates an empty subvolume with these permissions, less the umask of the handle, and returns
    /// its root directory. Its owner is that of new inodes; it inherits properties from the
    /// subvolume that contains it, and nothing else. Durable with the next commit.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name exists, [`Error::NoSpace`], and those of a new directory.
    pub fn create_subvolume(&self, name: &[u8], mode: u32) -> Result<Dir> {
        let inode = self.inode();
        let new = self.new_inode(NewKind::Directory, mode);
        let id = ops::create_subvolume(inode.namespace(), inode.id(), name, &new)?;
        inode.filesystem().subvolume_root(id)?.open_dir()
    }

    /// Makes a snapshot of a subvolume, and returns its id. It has all that was written before the
    /// call, and is durable when this returns: the transaction is committed. Subvolumes that the
    /// source contains are empty directories in it, but not the snapshot itself. Other changes of
    /// this directory wait until the snapshot is made.
    ///
    /// # Errors
    /// [`Error::NoSubvolume`] if there is no such subvolume, [`Error::Exists`] if the name exists,
    /// [`Error::Unwritten`] if data could not be written, [`Error::NoSpace`].
    pub fn snapshot(&self, name: &[u8], source: TreeId, read_only: bool) -> Result<TreeId> {
        let inode = self.inode();
        inode.filesystem().writable()?.snapshot(source, inode.id(), name, read_only)
    }

    /// Deletes the subvolume with this name, with all of its content, and returns its id. The name
    /// is gone at once; the space is freed in the background. Durable with the next commit. Files
    /// that are open can still be used until they are closed.
    ///
    /// # Errors
    /// [`Error::NoSubvolume`] if the name is that of something else, [`Error::NotEmpty`] if the
    /// subvolume contains others, [`Error::NotPermitted`] if it is the default subvolume.
    pub fn delete_subvolume(&self, name: &[u8]) -> Result<TreeId> {
        let deleted = self.remove_subvolume(name, false)?;
        deleted.ok_or(Error::NoSubvolume)
    }

    /// Removes a subvolume, or the name of one that a snapshot did not copy.
    pub(super) fn remove_subvolume(&self, name: &[u8], only_empty: bool) -> Result<Option<TreeId>> {
        let inode = self.inode();
        let deleted = ops::remove_subvolume(inode.namespace(), inode.id(), name, only_empty)?;
        if let Some(((id, deleted_in), cleaner)) = deleted.zip(inode.inner().cleaner.as_ref()) {
            cleaner.queue(id, deleted_in);
        }
        Ok(deleted.map(|(id, _)| id))
    }
}
