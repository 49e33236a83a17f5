//! Looks names up, and counts the references of the kernel to their nodes.
//!
//! 1. The reference of an entry is counted before the entry is sent: the kernel may forget it at
//!    once.

use userbtrfs_engine::api::{self, Error, Inode, InodeId, Metadata};
use userbtrfs_fuse::{Entry, Errno, FOREVER, Name, NodeId, may_sleep};

use crate::attributes::AttributeOps;
use crate::context::Context;
use crate::errno;

/// LOOKUP and FORGET, and the entries of other answers.
pub(crate) struct LookupOps<'a> {
    pub(crate) context: &'a Context,
}

impl LookupOps<'_> {
    /// Returns the entry of a name.
    pub(crate) fn lookup(&self, parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        match name.as_bytes() {
            b"." => return self.lookup_node(parent),
            b".." => return self.lookup_parent(parent),
            _ => {}
        }
        let dir = self.context.dir(parent)?;
        match dir.lookup(name.as_bytes()) {
            Ok(inode) => {
                let metadata = inode.metadata().map_err(errno)?;
                self.entry_at(&metadata, || dir.target(name.as_bytes()))
            }
            Err(Error::NotFound) => Ok(Entry::absent(FOREVER)),
            Err(error) => Err(errno(error)),
        }
    }

    /// Removes references of the kernel to a node.
    pub(crate) fn forget(&self, node: NodeId, references: u64) {
        let Context { ids, lookup_counts, unreported_errors, .. } = self.context;
        if let Some(unused) = lookup_counts.remove(node, references) {
            may_sleep(|| drop(unused));
        }
        let file = ids.inode(node);
        if unreported_errors.may_have(file) && !lookup_counts.has(node) {
            unreported_errors.forget(file);
        }
    }

    /// Returns the entry of an inode, and counts a reference of the kernel to it.
    pub(crate) fn entry(&self, inode: &Inode) -> Result<Entry, Errno> {
        let metadata = inode.metadata().map_err(errno)?;
        self.entry_of(&metadata, self.context.ids.node(metadata.id)?)
    }

    /// Like `entry`, for a name that may be the place of a subvolume; `target` returns the inode
    /// that the directory entry names.
    pub(crate) fn entry_at(
        &self,
        metadata: &Metadata,
        target: impl FnOnce() -> api::Result<InodeId>,
    ) -> Result<Entry, Errno> {
        let ids = &self.context.ids;
        let node = if metadata.is_empty_place() {
            ids.place(metadata.id, target().map_err(errno)?.subvolume)?
        } else {
            ids.node(metadata.id)?
        };
        self.entry_of(metadata, node)
    }

    fn entry_of(&self, metadata: &Metadata, node: NodeId) -> Result<Entry, Errno> {
        let entry = AttributeOps { context: self.context }.entry(metadata, node)?;
        self.context.lookup_counts.add(node);
        Ok(entry)
    }

    /// Finds a node that the kernel has forgotten, for a file handle. The kernel compares the
    /// generation, since another inode may have the number.
    fn lookup_node(&self, node: NodeId) -> Result<Entry, Errno> {
        match self.context.inode(node).metadata() {
            Ok(metadata) if metadata.nlink == 0 => Err(Errno::STALE),
            Ok(metadata) => self.entry_of(&metadata, node),
            Err(Error::NoInode(_)) => Err(Errno::STALE),
            Err(error) => Err(errno(error)),
        }
    }

    /// Finds the directory of a directory, for a file handle. The root is its own parent.
    fn lookup_parent(&self, node: NodeId) -> Result<Entry, Errno> {
        let dir = self.context.dir(node)?;
        if node == NodeId::ROOT {
            return self.entry(dir.inode());
        }
        let filesystem = &self.context.filesystem;
        let id = dir.inode().id();
        let parent = dir.parent().map_err(errno)?.ok_or(Errno::STALE)?;
        if parent != id {
            return self.entry(&filesystem.inode(parent));
        }
        // The root of a subvolume.
        let info = filesystem.subvolume(id.subvolume).map_err(errno)?;
        let (Some(subvolume), Some(number)) = (info.parent, info.dir) else {
            return Err(Errno::STALE);
        };
        self.entry(&filesystem.inode(InodeId { subvolume, number }))
    }
}
