//! The inodes with changes that wait, and what these take in memory.

use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::inode::Inode;

const SHARDS: usize = 16;

/// See the module's text.
pub(in crate::inode) struct DelayedInodes {
    shards: Vec<Mutex<Vec<Arc<Inode>>>>,
    bytes: AtomicUsize,
}

impl DelayedInodes {
    pub(in crate::inode) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Class::CacheShard, Vec::new())).collect();
        Self { shards, bytes: AtomicUsize::new(0) }
    }

    /// An inode begins to wait; nobody else changes it now. It may stand here more than once.
    pub(in crate::inode) fn add(&self, inode: &Arc<Inode>, bytes: usize) {
        // Counted first: a merge may be done with it before this returns.
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

    /// About what the changes take in memory.
    pub(in crate::inode) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Whether nothing waits. What was taken waits until its bytes are given back, which is when
    /// it is in its tree: who finds nothing here finds the tree changed.
    pub(in crate::inode) fn is_empty(&self) -> bool {
        self.bytes() == 0 && self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Takes all that wait, in the order of their items: by subvolume, then number.
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
    fn what_was_taken_waits_until_it_is_merged() {
        let waiting = DelayedInodes::new();
        waiting.grow(7);
        assert!(waiting.take().is_empty() && !waiting.is_empty());
        waiting.shrink(7);
        assert!(waiting.is_empty());
    }
}
