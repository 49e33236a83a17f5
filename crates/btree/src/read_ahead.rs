//! Reading leaves before a cursor comes to them.
//!
//! 1. Only children of the node above the current leaf are read ahead, in their order.
//! 2. While one batch is walked through, the next is on its way.

use userbtrfs_format::{Expectation, Logical};
use userbtrfs_sync::Arc;
use userbtrfs_volume::{PendingReads, Range, ReadError};

use crate::{Node, NodeRef, NodeStore, Tree};

/// Leaves in a batch.
const BATCH: usize = 16;

/// The leaves that a cursor expects to come to.
#[derive(Default)]
pub(crate) struct Ahead {
    in_flight: Option<Batch>,
    /// Nodes read ahead, kept from being dropped until they are walked through.
    arrived: Vec<Arc<Node>>,
    /// The first child of the current parent that was not asked for, and that parent.
    frontier: Option<(Logical, usize)>,
}

struct Batch {
    leaves: Vec<(Logical, Expectation)>,
    reads: PendingReads,
}

impl Ahead {
    /// The leaf at `logical`, if it is among those on their way.
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
                // Reported when the cursor comes to it, if it does.
                Err(_) => {}
            }
        }
        found
    }

    /// Asks for leaves after the one at `slot` below `parent`, unless a batch is on its way.
    pub(crate) fn advance(
        &mut self,
        store: &NodeStore,
        tree: &Tree,
        parent: &NodeRef,
        slot: usize,
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
            .filter(|&(logical, _)| !store.has(logical))
            .collect();
        if leaves.is_empty() {
            return;
        }
        let len = store.volume().geometry().nodesize as usize;
        let ranges: Vec<_> = leaves.iter().map(|&(logical, _)| Range { logical, len }).collect();
        self.in_flight = Some(Batch { leaves, reads: store.volume().submit(&ranges) });
    }
}
