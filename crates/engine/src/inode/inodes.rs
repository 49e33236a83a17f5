//! The inodes of a filesystem: the cache of them, their delayed items, and the space that is
//! reserved for these.
//!
//! 1. There is one [`Inode`] in memory for each number: all operations share its locks.
//! 2. Space is reserved before an operation joins the transaction, and is kept with the delayed
//!    items until these are in trees.
//! 3. Nothing here knows an operation: those are functions in [`crate::inode::dir`],
//!    [`crate::inode::ops`] and [`crate::inode::flush`].

use userbtrfs_codec::Compression;
use userbtrfs_format::{InodeFlags, TreeId, item_len_max};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_transaction::{Handle, Reservation, TransactionManager};

use crate::error::{Error, InodeId, Result};
use crate::inode::TreeRoots;
use crate::inode::dir::dcache::DentryBudget;
use crate::inode::incore::inode::{InMemory, Inode};
use crate::inode::incore::inode_cache::InodeCache;
use crate::inode::log_state::tracker::LogTracker;
use crate::inode::pending::delayed_inodes::DelayedInodes;
use crate::inode::pending::reservation::DelayedReservation;
use crate::inode::tree::subvolume::DeletedSubvolumes;

/// The fraction of the limit of delayed items at which a worker begins to flush, so that a commit
/// finds little left.
const EARLY: usize = 8;

/// The approximate memory, in bytes, of the log state of an inode.
const LOGGED_BYTES: usize = 128;

/// The least limit on inodes in the log: their state takes little memory.
const LOGGED_MIN: usize = 4096;

/// Limits on what is kept in memory, and the flags of new files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodesOptions {
    /// The approximate number of unused inodes to keep.
    pub(crate) inodes_max: usize,
    /// Bytes of delayed items above which they are flushed.
    pub(crate) pending_max: usize,
    /// Bytes of all cached names.
    pub(crate) names_max: usize,
    /// Bytes of deferred DIR_ITEMs above which these are flushed, too.
    pub(crate) late_bytes: usize,
    /// Flags of each new file, in addition to those inherited from its directory.
    pub(crate) file_flags: InodeFlags,
    /// The kind of compression of inodes that have only the flag.
    pub(crate) compression: Compression,
}

/// The inodes of a filesystem.
pub(crate) struct Inodes {
    pub(in crate::inode) tree_roots: Arc<TreeRoots>,
    pub(in crate::inode) options: InodesOptions,
    pub(in crate::inode) table: InodeCache,
    /// Subvolumes that were deleted.
    pub(in crate::inode) deleted: DeletedSubvolumes,
    /// The memory limit of all dentry caches.
    pub(in crate::inode) budget: Arc<DentryBudget>,
    pub(in crate::inode) waiting: DelayedInodes,
    /// Directories with deferred DIR_ITEMs.
    pub(in crate::inode) late: DelayedInodes,
    pub(in crate::inode) delayed_reservation: DelayedReservation,
    /// The log state of the inodes.
    pub(in crate::inode) log_tracker: LogTracker,
    /// Held while delayed items are flushed.
    pub(in crate::inode) merging: Mutex<()>,
    /// `None` if the filesystem is open read-only. Delayed items hold reservations of the
    /// transaction manager and must be dropped before it: fields are dropped in this order.
    pub(in crate::inode) transactions: Option<Arc<TransactionManager>>,
}

impl Inodes {
    /// Creates the inodes of a filesystem that is open read-only.
    pub(crate) fn read_only(tree_roots: Arc<TreeRoots>, options: InodesOptions) -> Self {
        Self::new(tree_roots, None, options)
    }

    /// Creates the inodes of a filesystem that is open for writing.
    pub(crate) fn writable(transactions: Arc<TransactionManager>, options: InodesOptions) -> Self {
        Self::new(Arc::clone(transactions.tree_roots()), Some(transactions), options)
    }

    fn new(
        tree_roots: Arc<TreeRoots>,
        transactions: Option<Arc<TransactionManager>>,
        options: InodesOptions,
    ) -> Self {
        Self {
            tree_roots,
            options,
            table: InodeCache::new(options.inodes_max),
            deleted: DeletedSubvolumes::new(),
            budget: Arc::new(DentryBudget::new(options.names_max)),
            waiting: DelayedInodes::new(),
            late: DelayedInodes::new(),
            delayed_reservation: DelayedReservation::new(),
            log_tracker: LogTracker::new((options.pending_max / LOGGED_BYTES).max(LOGGED_MIN)),
            merging: Mutex::new(Class::PendingMerge, ()),
            transactions,
        }
    }

    /// Returns the log state of the inodes.
    pub(crate) fn log_tracker(&self) -> &LogTracker {
        &self.log_tracker
    }

    /// Returns the approximate memory of changes that are not in trees yet.
    pub(crate) fn delayed_bytes(&self) -> usize {
        self.waiting.bytes() + self.late.bytes()
    }

    /// Returns the tree roots.
    pub(crate) fn tree_roots(&self) -> &Arc<TreeRoots> {
        &self.tree_roots
    }

    /// Returns an inode by number, and loads it if it is not in memory.
    pub(crate) fn inode(&self, id: InodeId) -> Result<Arc<Inode>> {
        let known = self.table.get(id).map_or_else(|| self.enter(id), Ok)?;
        known.load(&self.tree_roots, &self.budget)?;
        Ok(known)
    }

    /// Returns true if a subvolume was deleted since the filesystem was opened.
    pub(crate) fn is_deleted(&self, subvolume: TreeId) -> bool {
        self.deleted.contains(subvolume)
    }

    /// Returns an inode by number if it is cached, loaded or not.
    pub(crate) fn in_table(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.table.get(id)
    }

    /// Returns what memory holds of an inode.
    pub(crate) fn in_memory(&self, id: InodeId) -> InMemory {
        self.table.peek(id).map_or(InMemory::Nothing, |inode| inode.in_memory())
    }

    /// Adds an inode, not yet loaded, to the cache.
    fn enter(&self, id: InodeId) -> Result<Arc<Inode>> {
        self.deleted.check(id.subvolume)?;
        let inode = Inode::unknown(id, self.tree_roots.tree(id.subvolume)?);
        Ok(self.table.insert(Arc::new(inode), self.running()))
    }

    /// Returns the number of the running transaction, or 0 if the filesystem is read-only.
    pub(in crate::inode) fn running(&self) -> u64 {
        self.transactions.as_ref().map_or(0, |transactions| transactions.generation())
    }

    /// Returns the most bytes that an item may have.
    pub(crate) fn item_max(&self) -> usize {
        item_len_max(self.tree_roots.store().volume().geometry().nodesize)
    }

    /// Returns true if delayed items exceed the bound of memory.
    pub(in crate::inode) fn has_too_many_delayed_items(&self) -> bool {
        self.waiting.bytes() > self.options.pending_max
    }

    /// Flushes, or requests a flush, if delayed items take too much memory. The caller holds no
    /// lock.
    pub(in crate::inode) fn relieve(&self) -> Result<()> {
        let waiting = self.waiting.bytes();
        let max = self.options.pending_max;
        let transactions = self.transactions()?;
        if waiting > max {
            transactions.merge_most()?;
        } else if waiting > max / EARLY {
            transactions.request_merge();
        }
        Ok(())
    }

    /// Returns the transaction manager, or [`Error::ReadOnly`] if there is none.
    pub(crate) fn transactions(&self) -> Result<&Arc<TransactionManager>> {
        self.transactions.as_ref().ok_or(Error::ReadOnly)
    }

    /// Reserves space for changing `items` items. The caller holds no locks except operation locks.
    pub(crate) fn reserve(&self, items: u64) -> Result<Reservation> {
        self.relieve()?;
        Ok(self.transactions()?.reserve(items)?)
    }

    /// Like [`Inodes::reserve`], for a change that adds a name; `None` if there is no space, which
    /// the caller reports if nothing else is wrong. The caller holds no lock.
    pub(in crate::inode) fn reserve_for_name(&self, items: u64) -> Result<Option<Reservation>> {
        match self.reserve(items) {
            Ok(reservation) => Ok(Some(reservation)),
            Err(Error::NoSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reserves space for removing items, or replacing them by no larger ones; such space is
    /// available even if no other is. The caller holds no locks except operation locks.
    pub(crate) fn reserve_for_removal(&self, items: u64) -> Result<Reservation> {
        self.relieve()?;
        Ok(self.transactions()?.reserve_for_removal(items)?)
    }

    /// Reserves space for replaying `items` items of a log, before any other operation runs.
    pub(in crate::inode) fn reserve_for_replay(&self, items: u64) -> Result<Reservation> {
        self.relieve()?;
        Ok(self.transactions()?.reserve_for_replay(items)?)
    }

    /// Keeps a reservation for the delayed items.
    pub(in crate::inode) fn hold(&self, handle: &Handle<'_>, promised: Option<Reservation>) {
        let bytes = self.delayed_bytes();
        if let Some(promised) = promised {
            self.delayed_reservation.hold(promised, handle.max_space_for(bytes as u64));
        }
    }
}
