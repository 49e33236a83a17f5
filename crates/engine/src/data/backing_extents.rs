//! The extents of a file on disk, as they are read: pending, in flight or in the tree.
//!
//! 1. A relocation may move extents while a reader holds their addresses. Those that it looked up,
//!    and the bytes that it read there, are used only if the epoch of addresses is afterwards the
//!    one of the snapshot: else it looks them up again.

use userbtrfs_format::{InodeFlags, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{AddressEpoch, TransactionManager};

use crate::error::{InodeId, Result};
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
    /// The epoch of addresses; `None` while data is being relocated, or if it never is.
    pub(crate) epoch: Option<AddressEpoch>,
}

impl BackingExtents {
    /// Returns the present state of the file.
    pub(crate) fn new(inode: &Arc<Inode>, transactions: Option<&Arc<TransactionManager>>) -> Self {
        let id = inode.id();
        let item = inode.item();
        let free = item.flags.contains(InodeFlags::NODATASUM) || id.subvolume == TreeId::ROOT;
        let inode = Arc::clone(inode);
        let transactions = transactions.cloned();
        let epoch = transactions.as_ref().and_then(|transactions| transactions.address_epoch());
        Self { id, inode, size: item.size, checksummed: !free, transactions, arriving: None, epoch }
    }

    /// Returns true if addresses that were looked up since are still those of the file.
    pub(in crate::data) fn is_current(&self) -> bool {
        let Some(transactions) = &self.transactions else { return true };
        self.epoch.is_some() && self.epoch == transactions.address_epoch()
    }

    /// Waits until addresses can be looked up again. The caller is in no transaction.
    pub(in crate::data) fn wait_for_epoch(&self) -> Result<()> {
        match &self.transactions {
            Some(transactions) => Ok(transactions.wait_for_epoch()?),
            None => Ok(()),
        }
    }
}
