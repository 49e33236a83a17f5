//! What is promised to the dirty data of a file.
//!
//! 1. Each dirty sector has a sector of data reserved, each run of them metadata for the items
//!    that it becomes. What is taken to be written takes its share along; what is dropped gives
//!    it back.
//! 2. Who makes sectors dirty brings at least what they need, before the range is unlocked: so
//!    the account of a file of which all is locked is exact.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};
use userbtrfs_transaction::{Reservation, bytes_for_items};

use crate::data::Delta;
use crate::data::writeback::context::SECTOR;

/// Leaves that a run may cost: one of the file's extents, one of checksums.
const RUN_ITEMS: u64 = 2;

/// What decides what dirty data costs.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct DelallocCosts {
    pub(in crate::data) nodesize: u32,
    /// Bytes of a checksum.
    pub(in crate::data) checksum: u64,
}

/// What dirty data needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) struct SpaceNeeded {
    /// Bytes of data.
    pub(in crate::data) data: u64,
    /// Items of metadata.
    pub(in crate::data) items: u64,
}

impl DelallocCosts {
    /// What so much dirty data needs. Two parts never need less than the whole.
    pub(in crate::data) fn need(self, dirty: Delta) -> SpaceNeeded {
        let sectors = u64::try_from(dirty.sectors).unwrap_or(0);
        let runs = u64::try_from(dirty.runs).unwrap_or(0);
        // Checksums come to leaves that stay half empty, an item counts for two leaves.
        let sums = (sectors * self.checksum).div_ceil(u64::from(self.nodesize));
        SpaceNeeded { data: sectors * SECTOR, items: runs * RUN_ITEMS + sums }
    }

    /// Bytes of metadata that it costs more to write a run in two parts.
    pub(in crate::data) fn of_a_cut(self) -> u64 {
        bytes_for_items(RUN_ITEMS, self.nodesize)
    }

    fn metadata(self, need: SpaceNeeded) -> u64 {
        bytes_for_items(need.items, self.nodesize)
    }
}

/// Space that is promised.
#[derive(Default)]
pub(in crate::data) struct DelallocReserved {
    pub(in crate::data) data: Option<Reservation>,
    pub(in crate::data) metadata: Option<Reservation>,
}

impl DelallocReserved {
    /// Takes another one in.
    pub(in crate::data) fn merge(&mut self, other: Self) {
        merge(&mut self.data, other.data);
        merge(&mut self.metadata, other.metadata);
    }

    /// Takes out what it has beyond these bytes.
    fn excess(&mut self, data: u64, metadata: u64) -> Self {
        Self { data: excess(&mut self.data, data), metadata: excess(&mut self.metadata, metadata) }
    }

    /// Gives back bytes of data: they are allocated now, or not needed.
    pub(in crate::data) fn spend(&mut self, bytes: u64) {
        if let Some(data) = &mut self.data {
            data.shrink(bytes);
        }
    }

    /// Takes metadata for so many items out, or what is left of it.
    pub(in crate::data) fn split_metadata(
        &mut self,
        items: u64,
        costs: DelallocCosts,
    ) -> Option<Reservation> {
        let bytes = bytes_for_items(items, costs.nodesize);
        self.metadata.as_mut().map(|metadata| metadata.split(bytes))
    }
}

/// Takes in what else is promised.
pub(in crate::data) fn merge(into: &mut Option<Reservation>, other: Option<Reservation>) {
    match (into.as_mut(), other) {
        (Some(into), Some(other)) => into.merge(other),
        (None, other) => *into = other,
        (Some(_), None) => {}
    }
}

fn excess(of: &mut Option<Reservation>, needed: u64) -> Option<Reservation> {
    let of = of.as_mut()?;
    let excess = of.bytes().checked_sub(needed).filter(|excess| *excess > 0)?;
    Some(of.split(excess))
}

/// See the module's text.
pub(crate) struct DelallocReservation {
    state: Mutex<State>,
    dead: AtomicBool,
}

#[derive(Default)]
struct State {
    dirty: Delta,
    held: DelallocReserved,
}

impl Default for DelallocReservation {
    fn default() -> Self {
        let state = Mutex::new(Class::FileContents, State::default());
        Self { state, dead: AtomicBool::new(false) }
    }
}

impl DelallocReservation {
    /// What must be reserved before so much more becomes dirty.
    pub(in crate::data) fn more(&self, delta: Delta, costs: DelallocCosts) -> SpaceNeeded {
        let now = self.state.lock().dirty;
        let (before, after) = (costs.need(now), costs.need(now.plus(delta)));
        let items = after.items.saturating_sub(before.items);
        SpaceNeeded { data: costs.need(delta).data, items }
    }

    /// Data became dirty, or was dropped: takes in what was reserved for it, and gives back what
    /// is no longer needed.
    pub(in crate::data) fn settle(
        &self,
        reserved: DelallocReserved,
        delta: Delta,
        costs: DelallocCosts,
    ) {
        drop(self.change(reserved, delta, costs));
    }

    /// Data was taken to be written: gives what is reserved for it.
    pub(in crate::data) fn withdraw(&self, delta: Delta, costs: DelallocCosts) -> DelallocReserved {
        self.change(DelallocReserved::default(), delta, costs)
    }

    fn change(
        &self,
        reserved: DelallocReserved,
        delta: Delta,
        costs: DelallocCosts,
    ) -> DelallocReserved {
        let mut state = self.state.lock();
        state.dirty = state.dirty.plus(delta);
        state.held.merge(reserved);
        let need = costs.need(state.dirty);
        state.held.excess(need.data, costs.metadata(need))
    }

    /// The file is deleted.
    pub(in crate::data) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// Whether the file is deleted.
    pub(in crate::data) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: DelallocCosts = DelallocCosts { nodesize: 16384, checksum: 4 };

    fn dirty(sectors: i64, runs: i64) -> Delta {
        Delta { sectors, runs }
    }

    #[test]
    fn two_parts_need_no_less_than_the_whole() {
        assert_eq!(PRICES.need(dirty(1, 1)), SpaceNeeded { data: 4096, items: 3 });
        assert_eq!(PRICES.need(dirty(4096, 1)), SpaceNeeded { data: 16 << 20, items: 3 });
        assert_eq!(PRICES.need(dirty(4097, 2)), SpaceNeeded { data: 4097 << 12, items: 6 });
        assert_eq!(PRICES.need(dirty(-3, -1)), SpaceNeeded { data: 0, items: 0 });
    }

    #[test]
    fn a_sector_more_of_a_run_costs_no_metadata_until_a_leaf_is_full() {
        let account = DelallocReservation::default();
        assert_eq!(account.more(dirty(1, 1), PRICES), SpaceNeeded { data: 4096, items: 3 });
        account.settle(DelallocReserved::default(), dirty(1, 1), PRICES);
        assert_eq!(account.more(dirty(1, 0), PRICES), SpaceNeeded { data: 4096, items: 0 });
        assert_eq!(account.more(dirty(4096, 0), PRICES).items, 1);
        assert_eq!(account.more(dirty(1, -1), PRICES), SpaceNeeded { data: 4096, items: 0 });
    }
}
