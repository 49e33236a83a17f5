//! The node cache: by address, in shards, bounded in bytes.
//!
//! 1. Each shard holds at most its share of the bound, but for nodes in use, which stay.
//! 2. A node that was asked for since the hand last passed gets another round (CLOCK).
//! 3. Of two who bring the same node, the first one's stays.

use std::collections::{HashMap, VecDeque};

use userbtrfs_format::Logical;
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::Node;

const SHARDS: usize = 16;

/// Verified nodes by their address.
pub(crate) struct NodeCache {
    shards: [Mutex<Shard>; SHARDS],
    nodesize: usize,
}

struct Shard {
    nodes: HashMap<Logical, Slot>,
    hand: VecDeque<Logical>,
    nodes_max: usize,
}

struct Slot {
    node: Arc<Node>,
    asked_for: bool,
}

impl NodeCache {
    /// An empty cache that holds about `bytes_max` bytes; at least a few nodes a shard.
    pub(crate) fn new(bytes_max: usize, nodesize: usize) -> Self {
        let nodes_max = (bytes_max / nodesize / SHARDS).max(4);
        let shard = |_| {
            let shard = Shard { nodes: HashMap::new(), hand: VecDeque::new(), nodes_max };
            Mutex::new(Class::CacheShard, shard)
        };
        Self { shards: std::array::from_fn(shard), nodesize }
    }

    /// The node at `logical`, if it is here.
    pub(crate) fn get(&self, logical: Logical) -> Option<Arc<Node>> {
        let mut shard = self.shard(logical).lock();
        let slot = shard.nodes.get_mut(&logical)?;
        slot.asked_for = true;
        Some(Arc::clone(&slot.node))
    }

    /// Whether the node at `logical` is here; does not count as asking for it.
    pub(crate) fn contains(&self, logical: Logical) -> bool {
        self.shard(logical).lock().nodes.contains_key(&logical)
    }

    /// Adds a node, or gives the one that was added first.
    pub(crate) fn insert(&self, logical: Logical, node: Arc<Node>) -> Arc<Node> {
        let mut shard = self.shard(logical).lock();
        if let Some(slot) = shard.nodes.get(&logical) {
            return Arc::clone(&slot.node);
        }
        shard.make_room();
        shard.hand.push_back(logical);
        shard.nodes.insert(logical, Slot { node: Arc::clone(&node), asked_for: false });
        node
    }

    fn shard(&self, logical: Logical) -> &Mutex<Shard> {
        let number = logical.0 / self.nodesize as u64;
        // Neighbours go to different shards; so do the same nodes of different chunks.
        let mixed = number ^ (number >> 7);
        &self.shards[usize::try_from(mixed % SHARDS as u64).expect("below the number of shards")]
    }
}

impl Shard {
    /// Drops nodes until one more fits, or each was looked at twice.
    fn make_room(&mut self) {
        for _ in 0..2 * self.hand.len() {
            if self.nodes.len() < self.nodes_max {
                return;
            }
            let Some(logical) = self.hand.pop_front() else { return };
            let slot = self.nodes.get_mut(&logical).expect("the hand points at nodes of the shard");
            let in_use = Arc::strong_count(&slot.node) > 1;
            if in_use || std::mem::take(&mut slot.asked_for) {
                self.hand.push_back(logical);
            } else {
                self.nodes.remove(&logical);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_forge::small_image;
    use userbtrfs_sync::{BlockLabel, TreeLock};
    use userbtrfs_volume::Volume;

    use super::*;
    use crate::NodeRef;

    fn len(cache: &NodeCache) -> usize {
        cache.shards.iter().map(|shard| shard.lock().nodes.len()).sum()
    }

    /// A node to fill caches with; the cache does not look at its content.
    fn node() -> Arc<Node> {
        let device = userbtrfs_device::MemoryDevice::from_bytes(small_image());
        let volume = Volume::open(vec![Arc::new(device)]).unwrap();
        let (logical, expected) = volume.chunk_root();
        let block = volume.read_block(logical, &expected).unwrap();
        let label = BlockLabel { owner: 3, level: 0 };
        Arc::new(TreeLock::new(label, NodeRef::new(block)))
    }

    fn copy_of(node: &Arc<Node>) -> Arc<Node> {
        let block = NodeRef::clone(&TreeLock::try_read_owned(node).unwrap());
        Arc::new(TreeLock::new(node.label(), block))
    }

    #[test]
    fn the_cache_keeps_its_bound() {
        let (cache, node) = (NodeCache::new(100 * 4096, 4096), node());
        for number in 0..10_000 {
            cache.insert(Logical(number * 4096), copy_of(&node));
        }
        assert!((50..=100).contains(&len(&cache)), "{} nodes", len(&cache));
    }

    #[test]
    fn what_is_in_use_stays() {
        let (cache, node) = (NodeCache::new(0, 4096), node());
        let used: Vec<_> =
            (0..500).map(|number| cache.insert(Logical(number * 4096), copy_of(&node))).collect();
        for (number, used) in (0..).zip(&used) {
            let found = cache.get(Logical(number * 4096)).unwrap();
            assert!(Arc::ptr_eq(&found, used));
        }
    }

    #[test]
    fn what_was_asked_for_outlives_what_was_not() {
        let (cache, node) = (NodeCache::new(64 * 4096, 4096), node());
        let hot = Logical(0);
        cache.insert(hot, copy_of(&node));
        for number in 1..10_000 {
            assert!(cache.get(hot).is_some(), "gone after {number}");
            cache.insert(Logical(number * 4096), copy_of(&node));
        }
    }

    #[test]
    fn the_first_of_two_stays() {
        let (cache, node) = (NodeCache::new(1 << 20, 4096), node());
        let first = cache.insert(Logical(0), copy_of(&node));
        let second = cache.insert(Logical(0), copy_of(&node));
        assert!(Arc::ptr_eq(&first, &second));
    }
}
