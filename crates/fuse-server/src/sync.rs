//! Makes changes durable: fsync, syncfs, and the commit at the end of a mount.

use userbtrfs_engine::api;
use userbtrfs_fuse::{Errno, NodeId};

use crate::context::Context;
use crate::errno;

/// FSYNC, FSYNCDIR, SYNCFS, `BTRFS_IOC_SYNC`, and the end of a mount.
pub(crate) struct SyncOps<'a> {
    pub(crate) context: &'a Context,
}

impl SyncOps<'_> {
    /// Makes an inode durable.
    pub(crate) fn fsync(&self, node: NodeId) -> Result<(), Errno> {
        self.context.inode(node).sync_all().map_err(errno)
    }

    /// Makes everything durable that the kernel has written back.
    pub(crate) fn syncfs(&self) -> Result<(), Errno> {
        self.context.filesystem.commit().map_err(errno)
    }

    /// Makes everything durable, including data that the kernel caches.
    pub(crate) fn sync_all(&self) -> Result<(), Errno> {
        self.context.write_back();
        self.syncfs()
    }

    /// Leaves the group. If no mount is left in it, openers of the image wait for the end from now
    /// on. Returns whether that is so.
    pub(crate) fn leave_group(&self) -> bool {
        let is_last = self.context.member.leave();
        if is_last {
            self.context.filesystem.mark_closing();
        }
        is_last
    }

    /// Releases the inodes without a name and makes everything durable, so that nothing is left to
    /// be written or discarded. Called when there are no more requests. If it is the last mount,
    /// openers of the image wait for the end from now on.
    pub(crate) fn finish(&self) -> api::Result<()> {
        let Context { filesystem, lookup_counts, .. } = self.context;
        let is_last = self.leave_group();
        drop(lookup_counts.clear());
        // After a shutdown the error is expected: its caller chose what is durable.
        let is_shut_down = filesystem.is_shut_down();
        // Another mount may have inodes open that have no name.
        let done = if is_last { filesystem.finish() } else { filesystem.commit() };
        if is_shut_down { Ok(()) } else { done }
    }
}
