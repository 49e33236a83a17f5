//! The inodes with delayed items, and the memory that these take.

use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::inode::Inode;

const SHARDS: usize = 16;

/// A sharded list of inodes with delayed items, and their size in memory.
pub(in crate::inode) struct DelayedInodes {
    shards: Vec<Mutex<Vec<Arc<Inode>>>>,
    bytes: AtomicUsize,
}

impl DelayedInodes {
    pub(in crate::inode) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Class::CacheShard, Vec::new())).collect();
        Self { shards, bytes: AtomicUsize::new(0) }
    }

    /// Adds an inode, which no other thread changes now. It may be listed more than once.
    pub(in crate::inode) fn add(&self, inode: &Arc<Inode>, bytes: usize) {
        // Count first: a flush may finish with it before this returns.
        self.grow(bytes);
        let [low, ..] = inode.number().to_le_bytes();
        self.shards[usize::from(low) % SHARDS].lock().push(Arc::clone(inode));
    }

    pub(in crate::inode) fn grow(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(in crate::inode) fn shrink(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Release);
    }

    /// Returns the approximate memory that the changes take.
    pub(in crate::inode) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns true if nothing is delayed. Changes that were taken count until their bytes are
    /// subtracted, after they are in the tree: if this returns true, the tree has all changes.
    pub(in crate::inode) fn is_empty(&self) -> bool {
        self.bytes() == 0 && self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Takes all inodes, in the order of their items: by subvolume, then number.
    pub(in crate::inode) fn take(&self) -> Vec<Arc<Inode>> {
        let taken = self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()));
        let mut inodes: Vec<_> = taken.collect();
        inodes.sort_by_key(|inode| inode.id());
        inodes.dedup_by_key(|inode| inode.id());
        inodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_inodes_count_until_flushed() {
        let waiting = DelayedInodes::new();
        waiting.grow(7);
        assert!(waiting.take().is_empty() && !waiting.is_empty());
        waiting.shrink(7);
        assert!(waiting.is_empty());
    }
}
