//! Leaves that are written before their transaction ends, to free memory.
//!
//! 1. Only merges write them: they change trees in key order, and do not return to the leaves they
//!    leave behind. But not while another thread merges checksums: a leaf of those is valid only
//!    when all its changes are made.
//! 2. One part is in flight while the merge continues; a merge that ends has none in flight.
//! 3. A leaf in flight counts as written: a change copies it, and its place is free again after the
//!    commit at the earliest. So nothing else is ever written there meanwhile.

use userbtrfs_btree::DirtyList;
use userbtrfs_volume::PendingWrites;

use crate::context::TransactionContext;
use crate::error::Result;

/// The divisor of the bound that results in the size of a part.
const PART: usize = 4;

/// The writeout of one handle, and the part of it that is in flight.
#[derive(Default)]
pub(super) struct BackgroundWriteout(Option<InFlight>);

struct InFlight {
    nodes: DirtyList,
    writes: PendingWrites,
}

impl BackgroundWriteout {
    /// Starts to write leaves that were changed longest ago, if more are unwritten than the bound
    /// allows. The part in flight is waited for first.
    pub(super) fn start(&mut self, context: &TransactionContext) -> Result<()> {
        let store = context.tree_roots.store();
        let max = context.options.dirty_max;
        let in_flight = self.0.as_ref().map_or(0, |part| store.bytes_of(&part.nodes));
        // Some of them may have been copied and dropped.
        let dirty = store.dirty_bytes().saturating_sub(in_flight);
        if dirty <= max / 2 + max / PART {
            return Ok(());
        }
        self.finish(context)?;
        let Some(paused) = context.checksums.pause() else { return Ok(()) };
        let nodes = store.oldest_leaves(dirty - max / 2);
        let sealed = store.seal(&nodes).map(|sealed| sealed.map(|(at, block)| (at, block.into())));
        let sealed = sealed.collect::<std::result::Result<Vec<_>, _>>()?;
        drop(paused);
        let writes = context.volume().submit_data(sealed);
        self.0 = Some(InFlight { nodes, writes });
        Ok(())
    }

    /// Waits for the part in flight.
    pub(super) fn finish(&mut self, context: &TransactionContext) -> Result<()> {
        let Some(InFlight { nodes, writes }) = self.0.take() else { return Ok(()) };
        let written = context.volume().wait_writes(writes);
        written.into_iter().collect::<std::result::Result<(), _>>()?;
        context.tree_roots.store().written(nodes);
        Ok(())
    }
}
