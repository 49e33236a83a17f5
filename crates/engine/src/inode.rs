//! Inodes and names, in memory and in their trees.
//!
//! | folder      | holds                                                                     |
//! |-------------|---------------------------------------------------------------------------|
//! | `incore`    | an inode in memory, and the cache of them                                 |
//! | `dir`       | directory entries, lookup and listing                                     |
//! | `pending`   | delayed items: changes that are not yet in a tree                         |
//! | `log_state` | the state of each inode in the tree log                                   |
//! | `tree`      | reads from the trees                                                      |
//! | `ops`       | the operations: create, link, unlink, rename, attributes, xattrs, orphans |
//! | `flush`     | delayed items into trees                                                  |
//!
//! 1. The inode in memory is authoritative; the tree is its durable image.
//! 2. Reads look into the delayed items, newest first, then into the tree. Deferred DIR_ITEMs are
//!    the oldest of the delayed items.
//! 3. Entries of a directory are listed by their index, so that a position stays valid while
//!    entries are added and removed.
//! 4. A name is looked up by its hash, and compared in full with the names of the same hash.
//! 5. Every check that can fail is done before anything is changed; a flush finds nothing to
//!    refuse.

mod dir;
#[cfg(all(test, shuttle))]
pub(crate) mod exploring;
mod flush;
mod incore;
mod log_state;
mod ops;
mod pending;
#[cfg(all(test, shuttle))]
mod shuttle_models;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use dir::entry::{Entry, EntryTarget, Link, subvolume_name};
pub(crate) use dir::lookup::{DirPosition, NamesToLog};
pub(crate) use flush::run::DelayedItemsFlusher;
pub(crate) use incore::extent_map::{ExtentMap, ExtentMapKind, InlineData};
pub(crate) use incore::inode::{EXTENTS_MAX, InMemory, Inode};
pub(crate) use log_state::range_set::{Coalesced, RangeSet};
pub(crate) use log_state::tracker::{
    LogMode, LogTracker, LoggedState, PreviousLogState, RemovedName,
};
pub(crate) use ops::create::{NewInode, NewKind};
pub(crate) use ops::file_extents::{FileChange, InodeEvents};
#[cfg(test)]
pub(crate) use ops::orphan::EXTENTS_PER_STEP;
pub(crate) use ops::orphan::InodeRef;
pub(crate) use ops::property::FLAGS as COMPRESSION_FLAGS;
pub(crate) use ops::rename::RenameKind;
pub(crate) use ops::replay::NamesItem;
pub use ops::setattr::Membership;
pub(crate) use ops::setattr::SetAttributes;
pub(crate) use ops::xattr::{PutXattr, XattrKind};
pub(crate) use pending::delayed_items::{IndexedLink, RefIndex};
pub(crate) use pending::extents::{ExtentChanges, reference};
pub(crate) use tree::ondisk::lookup_in_roots;
pub(crate) use userbtrfs_transaction::TreeRoots;

use std::sync::Weak;

use userbtrfs_format::{FileKind, InodeFlags};
use userbtrfs_sync::{Arc, Class, Mutex, OnceLock};
use userbtrfs_transaction::TransactionManager;

use crate::error::{Error, InodeId, Result};
use dir::dcache::DentryBudget;
use incore::inode_cache::InodeCache;
use pending::delayed_inodes::DelayedInodes;
use pending::reservation::DelayedReservation;
use tree::subvolume::{Subvolume, Subvolumes};

/// The inode number of a subvolume's root directory.
pub(crate) const ROOT_DIR: u64 = 256;

/// The inode number of an empty directory that stands in for a subvolume which a snapshot did not
/// copy.
pub const EMPTY_DIR: u64 = 2;

/// The factor by which the dentry caches may take more memory than the delayed items.
const NAMES_SHARE: usize = 2;

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
    /// Bytes of deferred DIR_ITEMs above which these are flushed, too.
    pub(crate) late_bytes: usize,
    /// Flags of each new file, in addition to those inherited from its directory.
    pub(crate) file_flags: InodeFlags,
}

/// The inodes of a filesystem.
pub(crate) struct Inodes {
    tree_roots: Arc<TreeRoots>,
    options: InodesOptions,
    table: InodeCache,
    /// The memory limit of all dentry caches.
    budget: Arc<DentryBudget>,
    subvolumes: Subvolumes,
    waiting: DelayedInodes,
    /// Directories with deferred DIR_ITEMs.
    late: DelayedInodes,
    delayed_reservation: DelayedReservation,
    /// The log state of the inodes.
    log_tracker: LogTracker,
    /// Held while a directory changes its parent.
    renames: Mutex<()>,
    /// Held while delayed items are flushed.
    merging: Mutex<()>,
    /// Notified when a file is deleted; it keeps the data of files in memory.
    watch: OnceLock<Weak<dyn InodeEvents>>,
    /// Orphans whose deletion failed, each with the transaction in which it failed.
    undeleted: Mutex<Vec<(u64, Arc<Inode>)>>,
    /// `None` if the filesystem is open read-only. Delayed items hold reservations of the
    /// transaction manager and must be dropped before it: fields are dropped in this order.
    transactions: Option<Arc<TransactionManager>>,
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
            budget: Arc::new(DentryBudget::new(NAMES_SHARE * options.pending_max)),
            subvolumes: Subvolumes::new(),
            waiting: DelayedInodes::new(),
            late: DelayedInodes::new(),
            delayed_reservation: DelayedReservation::new(),
            log_tracker: LogTracker::new((options.pending_max / LOGGED_BYTES).max(LOGGED_MIN)),
            renames: Mutex::new(Class::RenameMutex, ()),
            merging: Mutex::new(Class::PendingMerge, ()),
            watch: OnceLock::new(),
            undeleted: Mutex::new(Class::CacheShard, Vec::new()),
            transactions,
        }
    }

    /// Returns the log state of the inodes.
    pub(crate) fn log_tracker(&self) -> &LogTracker {
        &self.log_tracker
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
        let inode = Inode::unknown(id, self.tree_roots.tree(id.subvolume)?);
        Ok(self.table.insert(Arc::new(inode), self.running()))
    }

    /// Returns the number of the running transaction, or 0 if the filesystem is read-only.
    fn running(&self) -> u64 {
        self.transactions.as_ref().map_or(0, |transactions| transactions.generation())
    }

    /// Returns the subvolume of inodes that are about to change, after deleting the orphans that an
    /// earlier mount left in it. The caller holds no lock.
    fn subvolume_to_change(&self, id: InodeId) -> Result<Arc<Subvolume>> {
        self.transactions()?;
        let subvolume = self.subvolumes.get(&self.tree_roots, id.subvolume)?;
        self.delete_left(id.subvolume, &subvolume);
        Ok(subvolume)
    }

    /// Returns an inode that is to be changed. The caller holds no lock.
    fn inode_to_change(&self, id: InodeId) -> Result<Arc<Inode>> {
        if id.number == EMPTY_DIR {
            return Err(Error::NotPermitted);
        }
        self.subvolume_to_change(id)?;
        self.inode(id)
    }

    /// Returns a directory that is to be changed. The caller holds no lock.
    fn directory_to_change(&self, id: InodeId) -> Result<Arc<Inode>> {
        let inode = self.inode_to_change(id)?;
        let (kind, flags) = inode.kind_and_flags();
        match kind {
            FileKind::Directory if flags.contains(InodeFlags::IMMUTABLE) => {
                Err(Error::NotPermitted)
            }
            FileKind::Directory => Ok(inode),
            _ => Err(Error::NotADirectory),
        }
    }
}

/// Checks that the flags of an inode allow it to be changed, linked or unlinked.
fn check_mutable(inode: &Inode) -> Result<()> {
    if inode.kind_and_flags().1.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}
