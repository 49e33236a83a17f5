//! Creates and deletes subvolumes, and makes snapshots, for the process that serves the mount.
//!
//! 1. Directories and subvolumes are named by the inode numbers that stat(2) shows in the mount: a
//!    path may lead through links and bind mounts, which only the kernel knows.
//! 2. The kernel does not see these changes, so that its cache of the name and of the directory is
//!    invalidated after each.
//! 3. Inodes of a deleted subvolume that the kernel references are kept until it forgets them:
//!    files that are open can still be used.

use userbtrfs_engine::api::{Dir, Error, Result, TreeId};
use userbtrfs_fuse::{Invalidation, Name, NodeId};

use crate::context::Context;

/// The permissions of a new subvolume.
const MODE: u32 = 0o755;

/// The changes of subvolumes. No thread that serves requests may call them.
pub(crate) struct SubvolumeOps<'a> {
    pub(crate) context: &'a Context,
}

impl SubvolumeOps<'_> {
    /// Creates an empty subvolume that belongs to the user of this process.
    pub(crate) fn create(&self, dir: u64, name: &[u8]) -> Result<()> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let dir = self.dir(dir)?.for_owner(uid, gid);
        dir.create_subvolume(name, MODE)?;
        self.invalidate(&dir, name);
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
        let Context { filesystem, ids, .. } = self.context;
        let source = filesystem.subvolume_at(&filesystem.inode(ids.inode(NodeId(source))))?;
        let dir = self.dir(dir)?;
        self.context.write_back();
        dir.snapshot(name, source.id, read_only)?;
        self.invalidate(&dir, name);
        Ok(())
    }

    /// Deletes a subvolume with its content, and returns its id.
    pub(crate) fn delete(&self, dir: u64, name: &[u8]) -> Result<TreeId> {
        let Context { ids, lookup_counts, .. } = self.context;
        let dir = self.dir(dir)?;
        let subvolume = dir.lookup(name)?.id().subvolume;
        if subvolume == self.context.filesystem.root().inode().id().subvolume {
            return Err(Error::NoSubvolume);
        }
        let is_in_it = |node: &NodeId| ids.inode(*node).subvolume == subvolume;
        let nodes = lookup_counts.nodes().into_iter().filter(is_in_it);
        let used: Vec<_> = nodes.map(|node| (node, self.context.inode(node))).collect();
        let deleted = dir.delete_subvolume(name)?;
        for (node, inode) in used {
            drop(lookup_counts.keep(node, inode));
        }
        self.invalidate(&dir, name);
        Ok(deleted)
    }

    fn dir(&self, number: u64) -> Result<Dir> {
        self.context.inode(NodeId(number)).open_dir()
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
