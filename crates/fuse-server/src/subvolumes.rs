//! Creates and deletes subvolumes, and makes snapshots, for ioctls and for the process that serves
//! the mount.
//!
//! 1. The process names directories and subvolumes by the inode numbers that stat(2) shows in the
//!    mount: a path may lead through links and bind mounts, which only the kernel knows.
//! 2. The kernel does not see these changes, so that its cache of the name and of the directory is
//!    invalidated after each.
//! 3. Inodes of a deleted subvolume that the kernel references are kept until it forgets them:
//!    files that are open can still be used. Their names are invalidated, or the kernel would keep
//!    the inodes after their last use, and the space of the subvolume would not be freed.

use userbtrfs_engine::api::{Dir, Error, Inode, InodeId, Result, SubvolumeInfo, TreeId};
use userbtrfs_fuse::{Invalidation, Name, NodeId};

use crate::context::Context;

/// The permissions of a new subvolume that the serving process creates.
const MODE: u32 = 0o755;

/// The changes of subvolumes. A thread that serves requests must call them in `may_wait`.
pub(crate) struct SubvolumeOps<'a> {
    pub(crate) context: &'a Context,
}

impl SubvolumeOps<'_> {
    /// Creates an empty subvolume that belongs to the user of this process.
    pub(crate) fn create(&self, dir: u64, name: &[u8]) -> Result<()> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        self.create_in(&self.dir(dir)?.for_owner(uid, gid), name, MODE)
    }

    /// Creates an empty subvolume that belongs to the owner of new inodes of the handle.
    pub(crate) fn create_in(&self, dir: &Dir, name: &[u8], mode: u32) -> Result<()> {
        dir.create_subvolume(name, mode)?;
        self.invalidate(dir, name);
        Ok(())
    }

    /// Makes a snapshot of the subvolume whose root directory has the number `source`, of all that
    /// was written before the call.
    pub(crate) fn snapshot(
        &self,
        source: u64,
        dir: u64,
        name: &[u8],
        read_only: bool,
    ) -> Result<()> {
        self.snapshot_in(&self.dir(dir)?, name, self.at(source)?.id, read_only)
    }

    /// Makes a snapshot of a subvolume, of all that was written before the call.
    pub(crate) fn snapshot_in(
        &self,
        dir: &Dir,
        name: &[u8],
        source: TreeId,
        read_only: bool,
    ) -> Result<()> {
        self.context.write_back();
        dir.snapshot(name, source, read_only)?;
        self.invalidate(dir, name);
        Ok(())
    }

    /// Deletes a subvolume with its content, and returns its id.
    pub(crate) fn delete(&self, dir: u64, name: &[u8]) -> Result<TreeId> {
        self.delete_in(&self.dir(dir)?, name)
    }

    /// Deletes a subvolume with its content, and returns its id.
    pub(crate) fn delete_in(&self, dir: &Dir, name: &[u8]) -> Result<TreeId> {
        let Context { filesystem, ids, lookup_counts, .. } = self.context;
        let subvolume = filesystem.subvolume_at(&dir.lookup(name)?)?.id;
        if subvolume == filesystem.root().inode().id().subvolume {
            return Err(Error::NoSubvolume);
        }
        let is_in_it = |node: &NodeId| ids.inode(*node).subvolume == subvolume;
        let nodes = lookup_counts.nodes().into_iter().filter(is_in_it);
        let used: Vec<_> = nodes.map(|node| (node, self.context.inode(node))).collect();
        let deleted = dir.delete_subvolume(name)?;
        for (node, inode) in &used {
            drop(lookup_counts.keep(*node, inode.clone()));
        }
        self.invalidate(dir, name);
        let referenced = used.iter().filter(|(node, _)| lookup_counts.has(*node));
        referenced.for_each(|(_, inode)| self.invalidate_names(inode));
        Ok(deleted)
    }

    /// Deletes the subvolume with this id, and returns its path from the top level.
    pub(crate) fn delete_by_id(&self, id: TreeId) -> Result<Vec<u8>> {
        let filesystem = &self.context.filesystem;
        let info = filesystem.subvolume(id)?;
        let (Some(subvolume), Some(number)) = (info.parent, info.dir) else {
            return Err(Error::IsRoot);
        };
        let dir = filesystem.inode(InodeId { subvolume, number }).open_dir()?;
        self.delete_in(&dir, &info.name)?;
        Ok(info.path)
    }

    /// Returns the subvolume that contains the inode with this number.
    pub(crate) fn containing(&self, number: u64) -> Result<SubvolumeInfo> {
        let inode = self.context.inode(NodeId(number));
        self.context.filesystem.subvolume(inode.id().subvolume)
    }

    /// Returns the subvolume whose root directory has this number.
    pub(crate) fn at(&self, number: u64) -> Result<SubvolumeInfo> {
        self.context.filesystem.subvolume_at(&self.context.inode(NodeId(number)))
    }

    fn dir(&self, number: u64) -> Result<Dir> {
        self.context.inode(NodeId(number)).open_dir()
    }

    /// Makes the kernel forget the names of an inode in a deleted subvolume that is in use, so that
    /// it forgets the inode once it is not used any more.
    fn invalidate_names(&self, inode: &Inode) {
        // An error means that the inode is gone.
        for (dir, name) in inode.names().unwrap_or_default() {
            let node = self.context.ids.node(dir.id());
            if let (Ok(node), Some(name)) = (node, Name::new(&name)) {
                let _ = self.context.notifier().invalidate_entry(node, name, false);
            }
        }
    }

    fn invalidate(&self, dir: &Dir, name: &[u8]) {
        let node = self.context.ids.node(dir.inode().id());
        if let (Ok(node), Some(name)) = (node, Name::new(name)) {
            // A failure means that the mount has ended, and its cache with it.
            let notifier = self.context.notifier();
            let _ = notifier.invalidate_entry(node, name, false);
            let _ = notifier.invalidate_inode(node, Invalidation::Attributes);
        }
    }
}
