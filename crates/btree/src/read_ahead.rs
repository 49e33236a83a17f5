//! Reading leaves before a cursor reaches them.
//!
//! 1. Only children of the node above the current leaf are read ahead, in their order.
//! 2. While the cursor passes through one batch, the next is in flight.

use userbtrfs_format::{Expectation, Logical};
use userbtrfs_sync::Arc;
use userbtrfs_volume::{PendingReads, Range, ReadError};

use crate::{Node, NodeRef, NodeStore, Tree};

/// Leaves in a batch.
const BATCH: usize = 16;

/// The read-ahead of a cursor.
#[derive(Default)]
pub(crate) struct Ahead {
    in_flight: Option<Batch>,
    /// Nodes that were read ahead, kept from being evicted until the cursor has passed them.
    arrived: Vec<Arc<Node>>,
    /// The current parent, and the slot of its first child that was not submitted.
    frontier: Option<(Logical, usize)>,
}

struct Batch {
    leaves: Vec<(Logical, Expectation)>,
    reads: PendingReads,
}

impl Ahead {
    /// Returns the leaf at `logical`, if it is in the batch in flight.
    pub(crate) fn take(
        &mut self,
        store: &NodeStore,
        logical: Logical,
    ) -> Option<Result<Arc<Node>, ReadError>> {
        let wanted = |batch: &mut Batch| batch.leaves.iter().any(|(at, _)| *at == logical);
        let batch = self.in_flight.take_if(wanted)?;
        let mut found = None;
        self.arrived.clear();
        let reads = store.volume().wait(batch.reads);
        for ((at, expected), read) in batch.leaves.into_iter().zip(reads) {
            let node = store.accept(at, &expected, read);
            match node {
                result if at == logical => found = Some(result),
                Ok(node) => self.arrived.push(node),
                // Reported when the cursor reaches the leaf, if it does.
                Err(_) => {}
            }
        }
        found
    }

    /// Waits for the batch in flight, and adds it to the cache. A block that cannot be read is
    /// reported when it is needed.
    pub(crate) fn finish(mut self, store: &NodeStore) {
        let first = self.in_flight.as_ref().and_then(|batch| batch.leaves.first());
        if let Some((logical, _)) = first.copied() {
            let _unreported = self.take(store, logical);
        }
    }

    /// Submits reads of the leaves after the one at `slot` of `parent`, unless a batch is in
    /// flight.
    pub(crate) fn advance(
        &mut self,
        store: &NodeStore,
        tree: &Tree,
        parent: &NodeRef,
        slot: usize,
    ) {
        self.advance_where(store, tree, parent, slot, |_, _| true);
    }

    /// Like [`Self::advance`], without blocks that are not `wanted`.
    pub(crate) fn advance_where(
        &mut self,
        store: &NodeStore,
        tree: &Tree,
        parent: &NodeRef,
        slot: usize,
        wanted: impl Fn(Logical, Expectation) -> bool,
    ) {
        let at = parent.header().logical;
        let asked = self.frontier.filter(|(node, _)| *node == at).map_or(slot + 1, |f| f.1);
        let start = asked.max(slot + 1);
        if self.in_flight.is_some() || start >= parent.len() || start > slot + BATCH {
            return;
        }
        let end = (start + BATCH).min(parent.len());
        self.frontier = Some((at, end));
        let leaves: Vec<_> = (start..end)
            .map(|slot| (parent.child(slot).logical, tree.expected_child(parent, slot)))
            .filter(|&(logical, expected)| wanted(logical, expected) && !store.has(logical))
            .collect();
        if leaves.is_empty() {
            return;
        }
        let len = store.volume().geometry().nodesize as usize;
        let ranges: Vec<_> = leaves.iter().map(|&(logical, _)| Range { logical, len }).collect();
        self.in_flight = Some(Batch { leaves, reads: store.volume().submit(&ranges) });
    }
}
