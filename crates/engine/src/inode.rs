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
//! 1. The inode in memory is the truth; the tree is its durable image.
//! 2. Reads look into what waits, newest first, then into the tree. What comes late is the oldest
//!    of what waits.
//! 3. Entries of a directory are listed by their index, so that a position stays good while
//!    entries come and go.
//! 4. A name is looked up by its hash, and compared in full among those that hash alike.
//! 5. What can fail is decided before anything is changed, never when it is merged.

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
pub(crate) use pending::extents::{
    ExtentChanges, Inline, PendingExtent, PendingExtentKind, reference,
};
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

/// The number of a subvolume's root directory.
pub(crate) const ROOT_DIR: u64 = 256;

/// The number that the place of a subvolume has where only its name was snapshotted.
pub const EMPTY_DIR: u64 = 2;

/// How much more memory the known names of directories may take than what waits.
const NAMES_SHARE: usize = 2;

/// About what it takes in memory to know that an inode is in the log, in bytes.
const LOGGED_BYTES: usize = 128;

/// So many inodes may be in the log at least: what they take is little.
const LOGGED_MIN: usize = 4096;

/// How much is kept in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodesOptions {
    /// About how many inodes that nobody uses.
    pub(crate) inodes_max: usize,
    /// Bytes of changes above which a merge is due.
    pub(crate) pending_max: usize,
    /// Bytes of names that come late above which these are merged, too.
    pub(crate) late_bytes: usize,
    /// Flags that each new file gets, beside what its directory passes on.
    pub(crate) file_flags: InodeFlags,
}

/// The inodes of a filesystem.
pub(crate) struct Inodes {
    tree_roots: Arc<TreeRoots>,
    options: InodesOptions,
    table: InodeCache,
    /// Of memory for names of directories.
    budget: Arc<DentryBudget>,
    subvolumes: Subvolumes,
    waiting: DelayedInodes,
    /// Directories with names that come late.
    late: DelayedInodes,
    delayed_reservation: DelayedReservation,
    /// What the log may have to know.
    log_tracker: LogTracker,
    /// Held while a directory changes its parent.
    renames: Mutex<()>,
    /// Held while changes are merged.
    merging: Mutex<()>,
    /// Who keeps data of files in memory.
    watch: OnceLock<Weak<dyn InodeEvents>>,
    /// Inodes without a name that could not be deleted, and in which transaction that was.
    undeleted: Mutex<Vec<(u64, Arc<Inode>)>>,
    /// Nothing where the filesystem is open for reading. What waits holds space that the ledger
    /// promised, and goes before it: fields are dropped in this order.
    transactions: Option<Arc<TransactionManager>>,
}

impl Inodes {
    /// The inodes of a filesystem that is open for reading.
    pub(crate) fn read_only(tree_roots: Arc<TreeRoots>, options: InodesOptions) -> Self {
        Self::new(tree_roots, None, options)
    }

    /// The inodes of a filesystem that is open for writing.
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

    /// What the log may have to know.
    pub(crate) fn log_tracker(&self) -> &LogTracker {
        &self.log_tracker
    }

    /// The trees.
    pub(crate) fn tree_roots(&self) -> &Arc<TreeRoots> {
        &self.tree_roots
    }

    /// The inode of a number.
    pub(crate) fn inode(&self, id: InodeId) -> Result<Arc<Inode>> {
        let known = self.table.get(id).map_or_else(|| self.enter(id), Ok)?;
        known.load(&self.tree_roots, &self.budget)?;
        Ok(known)
    }

    /// The inode of a number, if it is in memory, whatever is known of it.
    pub(crate) fn in_table(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.table.get(id)
    }

    /// What is in memory of an inode.
    pub(crate) fn in_memory(&self, id: InodeId) -> InMemory {
        self.table.peek(id).map_or(InMemory::Nothing, |inode| inode.in_memory())
    }

    /// Puts an inode into the table whose state is not known.
    fn enter(&self, id: InodeId) -> Result<Arc<Inode>> {
        let inode = Inode::unknown(id, self.tree_roots.tree(id.subvolume)?);
        Ok(self.table.insert(Arc::new(inode), self.running()))
    }

    /// The number of the running transaction; 0 where there is none.
    fn running(&self) -> u64 {
        self.transactions.as_ref().map_or(0, |transactions| transactions.generation())
    }

    /// The subvolume of inodes that are about to change. What an earlier run left in it without
    /// a name is deleted first. No lock is held.
    fn subvolume_to_change(&self, id: InodeId) -> Result<Arc<Subvolume>> {
        self.transactions()?;
        let subvolume = self.subvolumes.get(&self.tree_roots, id.subvolume)?;
        self.delete_left(id.subvolume, &subvolume);
        Ok(subvolume)
    }

    /// The inode of a number, to be changed. No lock is held.
    fn inode_to_change(&self, id: InodeId) -> Result<Arc<Inode>> {
        if id.number == EMPTY_DIR {
            return Err(Error::NotPermitted);
        }
        self.subvolume_to_change(id)?;
        self.inode(id)
    }

    /// The directory of a number, to be changed. No lock is held.
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

/// Checks that the flags of an inode let it be changed, named, or lose a name.
fn check_mutable(inode: &Inode) -> Result<()> {
    match inode.kind_and_flags().1.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}
