//! The nodes that the kernel references: the lookup count of each, and the inodes among them that
//! have no name.
//!
//! 1. For a node with a name only the count is kept, so that the inode may be evicted.
//! 2. An inode that loses its last name while the kernel references it is kept here until the
//!    kernel forgets it, or it gets a name again. The kernel references the inode whose name it
//!    removes until after the answer.
//! 3. An inode that is no longer kept is returned to the caller, which must drop it without holding
//!    a lock: that may delete the inode.
//! 4. A table that is mostly empty shrinks: nodes that the kernel has forgotten take no memory for
//!    long.

use std::collections::HashMap;

use userbtrfs_engine::api::Inode;
use userbtrfs_fuse::NodeId;
use userbtrfs_sync::{Class, Mutex};

const SHARDS: usize = 16;
/// The capacity of a table is at most `SPARSE` times the number of its entries, or at most `FEW`.
const SPARSE: usize = 8;
const FEW: usize = 64;

/// The bytes of a node: without alignment, so that an entry of the table has twelve bytes. With the
/// control byte of each slot, and at most 16 slots for 7 entries, that is less than 32 bytes.
type Key = [u8; 8];

/// The nodes that the kernel references.
#[derive(Default)]
pub(crate) struct LookupCounts {
    shards: [Shard; SHARDS],
}

struct Shard(Mutex<Known>);

#[derive(Default)]
struct Known {
    counts: HashMap<Key, u32>,
    nameless: HashMap<Key, Inode>,
}

impl Default for Shard {
    fn default() -> Self {
        Self(Mutex::new(Class::FuseSession, Known::default()))
    }
}

impl LookupCounts {
    fn shard(&self, key: Key) -> &Mutex<Known> {
        &self.shards[usize::from(key[0]) % SHARDS].0
    }

    /// Adds a reference of the kernel to a node.
    pub(crate) fn add(&self, node: NodeId) {
        let key = node.0.to_le_bytes();
        let mut known = self.shard(key).lock();
        let count = known.counts.entry(key).or_default();
        *count = count.saturating_add(1);
    }

    /// Removes references of the kernel to a node. Returns the inode if it was kept and has none
    /// left.
    #[must_use = "it is dropped where no lock is held"]
    pub(crate) fn remove(&self, node: NodeId, references: u64) -> Option<Inode> {
        let key = node.0.to_le_bytes();
        let mut known = self.shard(key).lock();
        let count = known.counts.get_mut(&key)?;
        let left = u64::from(*count).saturating_sub(references);
        *count = u32::try_from(left).expect("no more than before");
        if left > 0 {
            return None;
        }
        known.counts.remove(&key);
        let nameless = known.nameless.remove(&key);
        shrink(&mut known.counts);
        shrink(&mut known.nameless);
        nameless
    }

    /// Keeps an inode that has no name until the kernel forgets it. Returns it if the kernel does
    /// not reference it.
    #[must_use = "it is dropped where no lock is held"]
    pub(crate) fn keep(&self, node: NodeId, inode: Inode) -> Option<Inode> {
        let key = node.0.to_le_bytes();
        let mut known = self.shard(key).lock();
        if known.counts.contains_key(&key) {
            known.nameless.insert(key, inode)
        } else {
            Some(inode)
        }
    }

    /// Stops keeping an inode, since it has a name. Returns it if it was kept.
    #[must_use = "it is dropped where no lock is held"]
    pub(crate) fn release(&self, node: NodeId) -> Option<Inode> {
        let key = node.0.to_le_bytes();
        let mut known = self.shard(key).lock();
        let released = known.nameless.remove(&key);
        shrink(&mut known.nameless);
        released
    }

    /// Returns whether the kernel references a node.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        let key = node.0.to_le_bytes();
        self.shard(key).lock().counts.contains_key(&key)
    }

    /// Returns all nodes that the kernel references now.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        let nodes = |shard: &Shard| {
            let known = shard.0.lock();
            known.counts.keys().map(|key| NodeId(u64::from_le_bytes(*key))).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(nodes).collect()
    }

    /// Removes all references. Returns all inodes that were kept.
    #[must_use = "they are dropped where no lock is held"]
    pub(crate) fn clear(&self) -> Vec<Inode> {
        let take = |shard: &Shard| std::mem::take(&mut *shard.0.lock()).nameless.into_values();
        self.shards.iter().flat_map(take).collect()
    }
}

/// Frees memory that a table does not need. Leaves capacity for twice its entries, so that it is
/// copied again only after half of them were removed, or their number has doubled.
fn shrink<V>(table: &mut HashMap<Key, V>) {
    if table.capacity() > FEW && table.capacity() / SPARSE > table.len() {
        table.shrink_to(2 * table.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_table_has_twelve_bytes() {
        assert_eq!(size_of::<(Key, u32)>(), 12);
        let places = 16.0 / 7.0;
        assert!(f64::from(12 + 1) * places < 32.0);
    }

    #[test]
    fn forgotten_nodes_take_no_memory() {
        const MANY: u64 = 100_000;
        let lookup_counts = LookupCounts::default();
        let room = || {
            let of = |shard: &Shard| shard.0.lock().counts.capacity();
            lookup_counts.shards.iter().map(of).sum::<usize>()
        };
        (0..MANY).for_each(|node| lookup_counts.add(NodeId(node)));
        assert!(room() >= usize::try_from(MANY).unwrap());
        for node in 0..MANY {
            assert!(lookup_counts.remove(NodeId(node), 1).is_none());
        }
        assert!(room() <= FEW * SHARDS, "{}", room());
        assert!(lookup_counts.nodes().is_empty());
    }

    #[test]
    fn references_are_counted() {
        let lookup_counts = LookupCounts::default();
        let count = |node: u64| {
            let key = node.to_le_bytes();
            lookup_counts.shard(key).lock().counts.get(&key).copied()
        };
        for node in [300, 301, 300] {
            lookup_counts.add(NodeId(node));
        }
        assert_eq!((count(300), count(301), count(302)), (Some(2), Some(1), None));
        let mut nodes = lookup_counts.nodes();
        nodes.sort();
        assert_eq!(nodes, [NodeId(300), NodeId(301)]);
        assert!(lookup_counts.remove(NodeId(300), 1).is_none());
        assert_eq!(count(300), Some(1));
        assert!(lookup_counts.remove(NodeId(300), 5).is_none());
        assert_eq!(count(300), None);
        assert!(lookup_counts.clear().is_empty());
        assert_eq!(count(301), None);
    }
}
