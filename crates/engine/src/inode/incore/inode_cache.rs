//! The inodes in memory, by number.
//!
//! 1. There is at most one [`Inode`] for a number, which all users share.
//! 2. Only inodes without other references are dropped, oldest first; one that was used since it
//!    was last considered stays for another round. The list of delayed inodes holds a reference.
//! 3. A directory that the running transaction changed stays: it knows which indexes were used. So
//!    does a file whose size exceeds its size in the tree.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use userbtrfs_btree::ShortKeys;
use userbtrfs_format::{FileKind, TreeId};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::error::InodeId;
use crate::inode::Inode;

const SHARDS: usize = 16;

/// The number of old inodes to consider when one is added.
const LOOKS: usize = 2;

/// A sharded cache of inodes, by number (Linux: the inode hash table).
pub(in crate::inode) struct InodeCache {
    shards: Vec<Mutex<Shard>>,
    /// The most inodes that each shard keeps, except those in use.
    shard_max: usize,
}

#[derive(Default)]
struct Shard {
    inodes: HashMap<InodeId, Place, ShortKeys>,
    /// Inodes of the shard, oldest first; some may have been removed.
    ages: VecDeque<InodeId>,
}

struct Place {
    inode: Arc<Inode>,
    used: bool,
}

impl InodeCache {
    /// Creates a cache of about `inodes_max` inodes.
    pub(in crate::inode) fn new(inodes_max: usize) -> Self {
        let shard = || Mutex::new(Class::CacheShard, Shard::default());
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Self { shards, shard_max: inodes_max.div_ceil(SHARDS) }
    }

    fn shard(&self, id: InodeId) -> &Mutex<Shard> {
        let [low, ..] = id.number.to_le_bytes();
        &self.shards[usize::from(low) % SHARDS]
    }

    /// Returns the inode of a number if it is cached, and marks it used.
    pub(in crate::inode) fn get(&self, id: InodeId) -> Option<Arc<Inode>> {
        let mut shard = self.shard(id).lock();
        let place = shard.inodes.get_mut(&id)?;
        place.used = true;
        Some(Arc::clone(&place.inode))
    }

    /// Like [`InodeCache::get`], but does not mark the inode used.
    pub(in crate::inode) fn peek(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.shard(id).lock().inodes.get(&id).map(|place| Arc::clone(&place.inode))
    }

    /// Adds an inode unless there is one of its number, and returns the one that is cached.
    /// `running` is the number of the running transaction.
    pub(in crate::inode) fn insert(&self, inode: Arc<Inode>, running: u64) -> Arc<Inode> {
        let mut shard = self.shard(inode.id()).lock();
        match shard.inodes.entry(inode.id()) {
            Entry::Occupied(there) => return Arc::clone(&there.get().inode),
            Entry::Vacant(free) => free.insert(Place { inode: Arc::clone(&inode), used: false }),
        };
        shard.ages.push_back(inode.id());
        shard.shrink(self.shard_max, running);
        inode
    }

    /// Removes the inodes of a deleted subvolume that nothing else holds; returns true if none is
    /// left.
    pub(in crate::inode) fn evict(&self, subvolume: TreeId) -> bool {
        let mut is_empty = true;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let is_unused = |id: &InodeId, place: &mut Place| {
                id.subvolume == subvolume && Arc::strong_count(&place.inode) == 1
            };
            let dropped: Vec<_> = shard.inodes.extract_if(is_unused).collect();
            is_empty &= !shard.inodes.keys().any(|id| id.subvolume == subvolume);
            drop(shard);
            drop(dropped);
        }
        is_empty
    }

    /// Removes an inode that is deleted.
    pub(in crate::inode) fn remove(&self, id: InodeId) {
        self.shard(id).lock().inodes.remove(&id);
    }
}

impl Shard {
    fn shrink(&mut self, max: usize, running: u64) {
        for _ in 0..LOOKS {
            if self.ages.len() <= max {
                return;
            }
            let Some(oldest) = self.ages.pop_front() else { return };
            let Some(place) = self.inodes.get_mut(&oldest) else { continue };
            if std::mem::take(&mut place.used) || !is_idle(&place.inode, running) {
                self.ages.push_back(oldest);
            } else {
                self.inodes.remove(&oldest);
            }
        }
    }
}

/// Returns true if the inode can be dropped without losing anything: only the cache holds it.
fn is_idle(inode: &Arc<Inode>, running: u64) -> bool {
    if Arc::strong_count(inode) > 1 {
        return false;
    }
    let Some(state) = inode.try_state() else { return true };
    let is_dir = state.item.kind == FileKind::Directory;
    let is_changed = state.item.transid >= running && !state.dead;
    let is_known = is_dir && state.next_index.is_some() && is_changed;
    !is_known && state.disk_size.is_none()
}
