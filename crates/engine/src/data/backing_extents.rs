//! The extents of a file on disk, as they are read: pending, in flight or in the tree.

use userbtrfs_format::{InodeFlags, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::TransactionManager;

use crate::error::InodeId;
use crate::inode::{ExtentChanges, Inode};

/// A snapshot of the state that is needed to read a file from disk.
#[derive(Clone)]
pub(crate) struct BackingExtents {
    /// The file.
    pub(crate) id: InodeId,
    /// The inode, which knows the extents that are not in the tree yet.
    pub(crate) inode: Arc<Inode>,
    /// The size in bytes.
    pub(crate) size: u64,
    /// Whether the data has checksums.
    pub(crate) checksummed: bool,
    /// Knows the checksums that are not in their tree yet; `None` if none can be pending.
    pub(crate) transactions: Option<Arc<TransactionManager>>,
    /// Extents in flight, which will replace those on disk; `None` if the reader ignores them.
    pub(crate) arriving: Option<Arc<ExtentChanges>>,
}

impl BackingExtents {
    /// Returns the present state of the file.
    pub(crate) fn new(inode: &Arc<Inode>, transactions: Option<&Arc<TransactionManager>>) -> Self {
        let id = inode.id();
        let item = inode.item();
        let free = item.flags.contains(InodeFlags::NODATASUM) || id.subvolume == TreeId::ROOT;
        let inode = Arc::clone(inode);
        let transactions = transactions.cloned();
        Self { id, inode, size: item.size, checksummed: !free, transactions, arriving: None }
    }
}
