//! The state that the operations on names and inodes share, above [`Inodes`].
//!
//! Reading, and changing the content of a file, needs [`Inodes`] alone; creating, linking, renaming
//! and deleting need a [`Namespace`].

use std::sync::Weak;

use userbtrfs_format::FileKind;
use userbtrfs_sync::{Arc, Class, Mutex, OnceLock};

use crate::error::InodeId;
use crate::inode::tree::subvolume::Subvolumes;
use crate::inode::{Inode, Inodes};

/// Events of inodes, for the component that keeps the data of files in memory.
pub(crate) trait InodeEvents: Send + Sync {
    /// Called after a file was deleted: it cannot be changed any more. No lock is held.
    fn gone(&self, id: InodeId);
}

/// The state that the operations on names and inodes share.
pub(crate) struct Namespace {
    pub(in crate::inode) inodes: Arc<Inodes>,
    pub(in crate::inode) subvolumes: Subvolumes,
    /// Held while a directory changes its parent.
    pub(in crate::inode) renames: Mutex<()>,
    /// Orphans whose deletion failed, each with the transaction in which it failed.
    pub(in crate::inode) undeleted: Mutex<Vec<(u64, Arc<Inode>)>>,
    /// Notified when a file is deleted; it keeps the data of files in memory.
    watch: OnceLock<Weak<dyn InodeEvents>>,
}

impl Namespace {
    /// Creates the state of a filesystem with these inodes.
    pub(crate) fn new(inodes: Arc<Inodes>) -> Self {
        Self {
            inodes,
            subvolumes: Subvolumes::new(),
            renames: Mutex::new(Class::RenameMutex, ()),
            undeleted: Mutex::new(Class::CacheShard, Vec::new()),
            watch: OnceLock::new(),
        }
    }

    /// Returns the inodes.
    pub(crate) fn inodes(&self) -> &Arc<Inodes> {
        &self.inodes
    }

    /// Sets, once, the receiver of inode events.
    pub(crate) fn watch(&self, watch: Weak<dyn InodeEvents>) {
        assert!(self.watch.set(watch).is_ok(), "named once");
    }

    /// Notifies the receiver that a file was deleted. No lock is held.
    pub(in crate::inode) fn tell_gone(&self, inode: &Inode) {
        let watch = self.watch.get().and_then(Weak::upgrade);
        if let Some(watch) = watch.filter(|_| inode.kind() == FileKind::Regular) {
            watch.gone(inode.id());
        }
    }
}
