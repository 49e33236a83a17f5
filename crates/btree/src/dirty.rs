//! Dirty nodes: nodes that were made and are not written.
//!
//! 1. A node is dirty from when it is made until it is on disk or is no longer part of a tree.
//! 2. Searches find dirty nodes here as they find others in the cache; they are never evicted.
//! 3. Leaves are queued in the order in which they were made, so that those which probably change
//!    no more can be written first: changes are made in key order. A removed leaf stays in the
//!    queue until it is popped. Leaves of logs are not queued, nor are they taken if they have the
//!    address of a removed leaf that is: they are written with their log.

use std::collections::{HashMap, VecDeque};

use userbtrfs_format::{Logical, TreeId};
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::Node;
use crate::hash::ShortKeys;

const SHARDS: usize = 16;

pub(crate) struct DirtyNodes {
    shards: [Mutex<HashMap<Logical, Arc<Node>, ShortKeys>>; SHARDS],
    leaves: Mutex<VecDeque<Logical>>,
    /// The number of nodes. While it is 0, which it always is if nothing is written, lookups take
    /// no lock.
    count: AtomicUsize,
}

impl DirtyNodes {
    pub(crate) fn new() -> Self {
        let shard = |_| Mutex::new(Class::CacheShard, HashMap::default());
        let leaves = Mutex::new(Class::CacheShard, VecDeque::new());
        Self { shards: std::array::from_fn(shard), leaves, count: AtomicUsize::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self, logical: Logical) -> Option<Arc<Node>> {
        if self.len() == 0 {
            return None;
        }
        self.shard(logical).lock().get(&logical).cloned()
    }

    pub(crate) fn insert(&self, logical: Logical, node: Arc<Node>) {
        if is_early(&node) {
            self.leaves.lock().push_back(logical);
        }
        let before = self.shard(logical).lock().insert(logical, node);
        assert!(before.is_none(), "block {logical} was given out twice");
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self, logical: Logical) -> Option<Arc<Node>> {
        if self.len() == 0 {
            return None;
        }
        let removed = self.shard(logical).lock().remove(&logical);
        if removed.is_some() {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        removed
    }

    /// Removes this very node, and returns whether it was still at this address.
    pub(crate) fn remove_this(&self, logical: Logical, node: &Arc<Node>) -> bool {
        let mut shard = self.shard(logical).lock();
        let is_here = shard.get(&logical).is_some_and(|here| Arc::ptr_eq(here, node));
        if is_here {
            shard.remove(&logical);
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        is_here
    }

    /// Pops the oldest leaves from the queue, at most `count`; returns them in the order of their
    /// addresses.
    pub(crate) fn take_oldest(&self, count: usize) -> Vec<(Logical, Arc<Node>)> {
        let mut oldest = Vec::new();
        while oldest.len() < count {
            let Some(logical) = self.leaves.lock().pop_front() else { break };
            let node = self.get(logical).filter(is_early);
            oldest.extend(node.map(|node| (logical, node)));
        }
        oldest.sort_unstable_by_key(|(at, _)| *at);
        oldest.dedup_by_key(|(at, _)| *at);
        oldest
    }

    /// Returns all nodes, in the order of their addresses, and clears the queue.
    pub(crate) fn all(&self) -> Vec<(Logical, Arc<Node>)> {
        let mut all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| {
                let shard = shard.lock();
                shard.iter().map(|(&at, node)| (at, Arc::clone(node))).collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable_by_key(|(at, _)| *at);
        self.leaves.lock().clear();
        all
    }

    fn shard(&self, logical: Logical) -> &Mutex<HashMap<Logical, Arc<Node>, ShortKeys>> {
        // Not keyed: addresses are chosen by our allocator. Multiples of any node size spread
        // over the shards.
        let number = (logical.0 >> 12) ^ (logical.0 >> 14) ^ (logical.0 >> 18);
        let shard = usize::try_from(number % SHARDS as u64).expect("below the number of shards");
        &self.shards[shard]
    }
}

/// Returns whether a node may be written before its transaction is committed: if it is a leaf,
/// and not of a log.
fn is_early(node: &Arc<Node>) -> bool {
    let label = node.label();
    label.level == 0 && label.owner != TreeId::TREE_LOG.0
}
