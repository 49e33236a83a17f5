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

use super::Handle;
use crate::error::Result;

/// The divisor of the bound that results in the size of a part.
const PART: usize = 4;

/// A part that is in flight.
pub(super) struct BackgroundWriteout {
    nodes: DirtyList,
    writes: PendingWrites,
}

impl Handle<'_> {
    /// Starts to write leaves that were changed longest ago, if more are unwritten than the bound
    /// allows. They can be changed again, at the cost of a copy. To be called between the parts of
    /// a merge.
    pub fn start_writeout(&self) -> Result<()> {
        let (store, max) =
            (self.transactions.tree_roots().store(), self.transactions.options.dirty_max);
        let in_flight =
            self.writeout.borrow().as_ref().map_or(0, |writeout| store.bytes_of(&writeout.nodes));
        // Some of them may have been copied and dropped.
        let dirty = store.dirty_bytes().saturating_sub(in_flight);
        if dirty <= max / 2 + max / PART {
            return Ok(());
        }
        self.finish_writeout()?;
        let Some(paused) = self.transactions.checksums.pause() else { return Ok(()) };
        let nodes = store.oldest_leaves(dirty - max / 2);
        let sealed = store.seal(&nodes).map(|sealed| sealed.map(|(at, block)| (at, block.into())));
        let sealed = sealed.collect::<std::result::Result<Vec<_>, _>>()?;
        drop(paused);
        let writes = self.transactions.volume().submit_data(sealed);
        *self.writeout.borrow_mut() = Some(BackgroundWriteout { nodes, writes });
        Ok(())
    }

    /// Waits for the part in flight.
    pub(crate) fn finish_writeout(&self) -> Result<()> {
        let Some(BackgroundWriteout { nodes, writes }) = self.writeout.take() else {
            return Ok(());
        };
        self.transactions
            .volume()
            .wait_writes(writes)
            .into_iter()
            .collect::<std::result::Result<(), _>>()?;
        self.transactions.tree_roots().store().written(nodes);
        Ok(())
    }
}
