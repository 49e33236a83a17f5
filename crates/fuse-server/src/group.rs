//! The mounts of one open filesystem.

use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};

/// The mounts of one open filesystem by this process. The default is a group without mounts.
#[derive(Clone, Debug, Default)]
pub struct MountGroup(Arc<AtomicUsize>);

/// A mount of a group.
pub(crate) struct Member(MountGroup);

impl MountGroup {
    pub(crate) fn join(&self) -> Member {
        self.0.fetch_add(1, Ordering::SeqCst);
        Member(self.clone())
    }
}

impl Member {
    /// Returns whether the group has no other mount.
    pub(crate) fn is_last(&self) -> bool {
        self.0.0.load(Ordering::SeqCst) == 1
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
