//! The facts of a subvolume that a writer needs.
//!
//! 1. They are read from the tree before anything in the subvolume changes: new inode numbers
//!    continue from there, and the orphans were left by an earlier mount.

use std::collections::{BTreeSet, HashMap};

use userbtrfs_btree::{ShortKeys, Tree};
use userbtrfs_format::{LAST_FREE_OBJECTID, TreeId};
use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::error::{Error, Result};
use crate::inode::TreeRoots;
use crate::inode::tree::ondisk;

/// A subvolume that is written to, or in which orphans are deleted.
pub(in crate::inode) struct Subvolume {
    pub(in crate::inode) tree: Arc<Tree>,
    next_number: AtomicU64,
    /// Orphans that an earlier mount left, or that a snapshot copied.
    left: Mutex<Vec<u64>>,
    read_only: AtomicBool,
}

/// The subvolumes that were deleted since the filesystem was opened: no inode is loaded from them
/// any more. Inodes that are in memory stay until they are not used.
pub(in crate::inode) struct DeletedSubvolumes {
    /// Whether there is any: looked up without a lock.
    is_any: AtomicBool,
    ids: Mutex<BTreeSet<TreeId>>,
}

impl DeletedSubvolumes {
    pub(in crate::inode) fn new() -> Self {
        let ids = Mutex::new(Class::CacheShard, BTreeSet::new());
        Self { is_any: AtomicBool::new(false), ids }
    }

    pub(in crate::inode) fn add(&self, id: TreeId) {
        self.ids.lock().insert(id);
        self.is_any.store(true, Ordering::Release);
    }

    /// Returns true if a subvolume was deleted.
    pub(in crate::inode) fn contains(&self, id: TreeId) -> bool {
        self.is_any.load(Ordering::Acquire) && self.ids.lock().contains(&id)
    }

    /// Returns [`Error::NotFound`] if a subvolume was deleted.
    pub(in crate::inode) fn check(&self, id: TreeId) -> Result<()> {
        if self.contains(id) { Err(Error::NotFound) } else { Ok(()) }
    }
}

/// The subvolumes that were written to, or in which orphans were deleted.
pub(in crate::inode) struct Subvolumes {
    found: Mutex<HashMap<TreeId, Arc<Subvolume>, ShortKeys>>,
}

impl Subvolumes {
    pub(in crate::inode) fn new() -> Self {
        Self { found: Mutex::new(Class::CacheShard, HashMap::default()) }
    }

    /// Returns a subvolume by number, or [`Error::ReadOnly`] if it is read-only.
    pub(in crate::inode) fn get(
        &self,
        tree_roots: &TreeRoots,
        id: TreeId,
    ) -> Result<Arc<Subvolume>> {
        let subvolume = self.find(tree_roots, id)?;
        if subvolume.read_only.load(Ordering::Acquire) {
            Err(Error::ReadOnly)
        } else {
            Ok(subvolume)
        }
    }

    /// Returns a subvolume by number, also a read-only one.
    pub(in crate::inode) fn find(
        &self,
        tree_roots: &TreeRoots,
        id: TreeId,
    ) -> Result<Arc<Subvolume>> {
        if let Some(known) = self.found.lock().get(&id) {
            return Ok(Arc::clone(known));
        }
        let subvolume = Arc::new(Subvolume::load(tree_roots, id)?);
        Ok(Arc::clone(self.found.lock().entry(id).or_insert(subvolume)))
    }

    /// Records that a subvolume may, or may not, be changed from now on.
    pub(in crate::inode) fn set_read_only(&self, id: TreeId, read_only: bool) {
        if let Some(subvolume) = self.found.lock().get(&id) {
            subvolume.read_only.store(read_only, Ordering::Release);
        }
    }

    /// Drops what is known of a subvolume that is deleted.
    pub(in crate::inode) fn forget(&self, id: TreeId) {
        self.found.lock().remove(&id);
    }
}

impl Subvolume {
    fn load(tree_roots: &TreeRoots, id: TreeId) -> Result<Self> {
        if !id.is_subvolume() {
            return Err(Error::NoSubvolume);
        }
        let read_only = AtomicBool::new(ondisk::is_read_only(tree_roots, id)?);
        let tree = tree_roots.tree(id)?;
        let next_number = AtomicU64::new(ondisk::next_number(tree_roots, &tree)?);
        let left = Mutex::new(Class::CacheShard, ondisk::orphans(tree_roots, &tree)?);
        Ok(Self { tree, next_number, left, read_only })
    }

    /// Returns a number for a new inode.
    pub(in crate::inode) fn take_number(&self) -> Result<u64> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        if number > LAST_FREE_OBJECTID {
            self.next_number.store(LAST_FREE_OBJECTID + 1, Ordering::Relaxed);
            return Err(Error::NoSpace);
        }
        Ok(number)
    }

    /// Takes the orphans that an earlier mount left, or that a snapshot copied.
    pub(in crate::inode) fn take_left(&self) -> Vec<u64> {
        std::mem::take(&mut *self.left.lock())
    }
}
