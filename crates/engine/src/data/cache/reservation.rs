//! The space reserved for the dirty data of a file (Linux: delalloc-space.c).
//!
//! 1. Each dirty sector has a sector of data reserved, each run of them metadata for the items that
//!    it becomes. Runs that are taken to be written take their share with them; dropped runs
//!    release it.
//! 2. A writer brings at least what its sectors need, before it unlocks the range: so the account
//!    is exact for a file whose ranges are all locked.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};
use userbtrfs_transaction::{Reservation, bytes_for_items};

use crate::data::cache::dirty::Delta;
use crate::data::units::{BLOCK, EXTENT_MAX};
use crate::units::SECTOR;

/// Leaves that a run may change: one of the file's extents, one of checksums.
const RUN_ITEMS: u64 = 2;

/// Additional items to write a run in two parts: those of a run, and a leaf of checksums that both
/// parts fill in part.
pub(in crate::data) const CUT_ITEMS: u64 = RUN_ITEMS + 1;

/// Bytes of an EXTENT_DATA item in a leaf, with its header.
const EXTENT_BYTES: u64 = 78;

/// The least number of sectors in each extent of a run that is too long for one: blocks are not
/// cut.
const SECTORS_OF_EXTENT: u64 = (EXTENT_MAX - BLOCK as u64) / SECTOR;

/// The parameters of the space that dirty data needs.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct DelallocCosts {
    pub(in crate::data) nodesize: u32,
    /// Bytes of a checksum.
    pub(in crate::data) checksum: u64,
}

/// The space that dirty data needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) struct SpaceNeeded {
    /// Bytes of data.
    pub(in crate::data) data: u64,
    /// Items of metadata.
    pub(in crate::data) items: u64,
}

impl DelallocCosts {
    /// Returns the space that dirty data needs. Two parts never need less than the whole, except
    /// for the extents into which a run is cut that is too long for one.
    pub(in crate::data) fn need(self, dirty: Delta) -> SpaceNeeded {
        let sectors = u64::try_from(dirty.sectors).unwrap_or(0);
        let runs = u64::try_from(dirty.runs).unwrap_or(0);
        // Checksum leaves may stay half full; an item counts for two leaves.
        let sums = (sectors * self.checksum).div_ceil(u64::from(self.nodesize));
        let extents = runs + sectors / SECTORS_OF_EXTENT;
        SpaceNeeded { data: sectors * SECTOR, items: extents * RUN_ITEMS + sums }
    }

    /// Returns the additional bytes of metadata to write a run in two parts.
    pub(in crate::data) fn of_a_cut(self) -> u64 {
        bytes_for_items(CUT_ITEMS, self.nodesize)
    }

    /// Returns the additional bytes of metadata to write a run in `extents` more extents. Their
    /// items are beside each other; leaves may stay half full, and an item counts for two leaves.
    pub(in crate::data) fn of_extents(self, extents: u64) -> u64 {
        bytes_for_items(
            extents.saturating_mul(EXTENT_BYTES).div_ceil(u64::from(self.nodesize)),
            self.nodesize,
        )
    }

    fn metadata(self, need: SpaceNeeded) -> u64 {
        bytes_for_items(need.items, self.nodesize)
    }
}

/// Reserved space.
#[derive(Default)]
pub(in crate::data) struct DelallocReserved {
    pub(in crate::data) data: Option<Reservation>,
    pub(in crate::data) metadata: Option<Reservation>,
}

impl DelallocReserved {
    /// Returns the bytes of data.
    fn data_bytes(&self) -> u64 {
        self.data.as_ref().map_or(0, Reservation::bytes)
    }

    /// Returns the bytes of metadata.
    fn metadata_bytes(&self) -> u64 {
        self.metadata.as_ref().map_or(0, Reservation::bytes)
    }

    /// Merges another reservation into this one.
    pub(in crate::data) fn merge(&mut self, other: Self) {
        merge(&mut self.data, other.data);
        merge(&mut self.metadata, other.metadata);
    }

    /// Splits off what exceeds these bytes.
    fn excess(&mut self, data: u64, metadata: u64) -> Self {
        Self { data: excess(&mut self.data, data), metadata: excess(&mut self.metadata, metadata) }
    }

    /// Releases bytes of data, which are allocated now or not needed.
    pub(in crate::data) fn spend(&mut self, bytes: u64) {
        if let Some(data) = &mut self.data {
            data.shrink(bytes);
        }
    }

    /// Splits off metadata for `items` items, or what is left of it.
    pub(in crate::data) fn split_metadata(
        &mut self,
        items: u64,
        costs: DelallocCosts,
    ) -> Option<Reservation> {
        let bytes = bytes_for_items(items, costs.nodesize);
        self.metadata.as_mut().map(|metadata| metadata.split(bytes))
    }
}

/// Merges another reservation into this one.
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

/// The account of the dirty data of a file, and the space reserved for it.
pub(crate) struct DelallocReservation {
    state: Mutex<State>,
    dead: AtomicBool,
}

#[derive(Default)]
struct State {
    dirty: Delta,
    held: DelallocReserved,
    /// The number of claims that are not settled. Until it is 0 no reserved space is released: a
    /// sector dropped beside a claim may make two runs of one.
    claims: usize,
}

/// Space for data that is about to become dirty. Dropping it, also by a panic, corrects the account
/// to what did become dirty.
pub(in crate::data) struct Claim<'a> {
    account: &'a DelallocReservation,
    costs: DelallocCosts,
    expected: Delta,
    actual: Delta,
}

impl Claim<'_> {
    /// Records what became dirty.
    pub(in crate::data) fn settle(mut self, actual: Delta) {
        self.actual = actual;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.account.state.lock();
        state.dirty = state.dirty.since(self.expected).plus(self.actual);
        state.claims = state.claims.saturating_sub(1);
        let excess = state.excess(self.costs);
        drop(state);
        drop(excess);
    }
}

impl State {
    /// Splits off what exceeds the need, unless a claim is not settled.
    fn excess(&mut self, costs: DelallocCosts) -> DelallocReserved {
        if self.claims > 0 {
            return DelallocReserved::default();
        }
        let need = costs.need(self.dirty);
        debug_assert!(
            self.held.metadata_bytes() >= costs.metadata(need),
            "{:?} has {} bytes of metadata",
            self.dirty,
            self.held.metadata_bytes(),
        );
        self.held.excess(need.data, costs.metadata(need))
    }
}

impl Default for DelallocReservation {
    fn default() -> Self {
        let state = Mutex::new(Class::FileContents, State::default());
        Self { state, dead: AtomicBool::new(false) }
    }
}

impl DelallocReservation {
    /// Adds what was reserved for data that is about to become dirty. Returns `None`, and takes
    /// nothing, if that is too little by now. The caller holds the range of the data exclusively
    /// until the claim is settled.
    pub(in crate::data) fn claim<'a>(
        &'a self,
        reserved: &mut DelallocReserved,
        expected: Delta,
        costs: DelallocCosts,
    ) -> Option<Claim<'a>> {
        let mut state = self.state.lock();
        let dirty = state.dirty.plus(expected);
        let need = costs.need(dirty);
        let data = state.held.data_bytes() + reserved.data_bytes();
        let metadata = state.held.metadata_bytes() + reserved.metadata_bytes();
        if data < need.data || metadata < costs.metadata(need) {
            return None;
        }
        state.held.merge(std::mem::take(reserved));
        state.dirty = dirty;
        state.claims += 1;
        Some(Claim { account: self, costs, expected, actual: Delta::default() })
    }

    /// Returns what must be reserved before `delta` more becomes dirty.
    pub(in crate::data) fn more(&self, delta: Delta, costs: DelallocCosts) -> SpaceNeeded {
        let now = self.state.lock().dirty;
        let before = costs.need(now);
        let after = costs.need(now.plus(delta));
        let items = after.items.saturating_sub(before.items);
        SpaceNeeded { data: costs.need(delta).data, items }
    }

    /// Records data that became dirty, or was dropped: adds what was reserved for it, and releases
    /// what is no longer needed.
    pub(in crate::data) fn settle(
        &self,
        reserved: DelallocReserved,
        delta: Delta,
        costs: DelallocCosts,
    ) {
        drop(self.change(reserved, delta, costs));
    }

    /// Records data that was taken to be written; returns the space reserved for it.
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
        state.excess(costs)
    }

    /// Marks the file as deleted.
    pub(in crate::data) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// Returns true if the file is deleted.
    pub(in crate::data) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_device::{Device, MemoryDevice};
    use userbtrfs_mkfs::Options;
    use userbtrfs_sync::Arc;
    use userbtrfs_transaction::{TransactionManager, TransactionOptions, TreeRoots};
    use userbtrfs_volume::Volume;

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
    fn run_too_long_for_one_extent_needs_items_for_each() {
        let runs =
            |need: SpaceNeeded, sectors: i64| need.items - PRICES.need(dirty(sectors, 0)).items;
        let all = 3 * (128 << 20) / 4096;
        let extents = PRICES.need(dirty(all, 1));
        assert!(extents.items >= 3 * RUN_ITEMS + 24, "{extents:?}");
        assert_eq!(runs(PRICES.need(dirty(all, 2)), all), 2 * RUN_ITEMS);
    }

    fn filesystem() -> Arc<TransactionManager> {
        let device = MemoryDevice::new(128 << 20);
        userbtrfs_mkfs::make(&device, &Options::default()).unwrap();
        let devices: Vec<Arc<dyn Device>> = vec![Arc::new(device)];
        let volume = Arc::new(Volume::open_for_writing(devices).unwrap());
        let roots = Arc::new(TreeRoots::new(volume, 16 << 20));
        TransactionManager::open(roots, TransactionOptions::default()).unwrap()
    }

    /// Reserves metadata for this many items.
    fn reserve(fs: &TransactionManager, items: u64) -> DelallocReserved {
        let bytes = bytes_for_items(items, PRICES.nodesize);
        let metadata = fs.space().reserve(bytes).unwrap();
        DelallocReserved { data: None, metadata: Some(metadata) }
    }

    #[test]
    fn claim_that_is_too_small_by_now_is_refused() {
        let fs = filesystem();
        let costs = PRICES;
        let account = DelallocReservation::default();
        let mut none = DelallocReserved::default();
        assert!(account.claim(&mut none, dirty(0, 1), costs).is_none());
        let mut reserved = reserve(&fs, 1);
        assert!(account.claim(&mut reserved, dirty(0, 1), costs).is_none());
        assert_eq!(reserved.metadata_bytes(), 32768, "nothing was taken");
        reserved.merge(reserve(&fs, 1));
        let claim = account.claim(&mut reserved, dirty(0, 1), costs).unwrap();
        // A neighbour is dropped meanwhile: its space is kept until the claim is settled.
        account.settle(reserve(&fs, 2), dirty(0, 0), costs);
        assert_eq!(account.state.lock().held.metadata_bytes(), 4 * 32768);
        claim.settle(dirty(0, 2));
        assert_eq!(account.state.lock().held.metadata_bytes(), 4 * 32768);
        drop(account.claim(&mut DelallocReserved::default(), dirty(0, 0), costs).unwrap());
        let left = account.withdraw(dirty(0, -2), costs);
        assert_eq!(left.metadata_bytes(), 4 * 32768);
    }

    #[test]
    fn a_sector_more_of_a_run_costs_no_metadata_until_a_leaf_is_full() {
        let fs = filesystem();
        let account = DelallocReservation::default();
        assert_eq!(account.more(dirty(1, 1), PRICES), SpaceNeeded { data: 4096, items: 3 });
        account.settle(reserve(&fs, 3), dirty(1, 1), PRICES);
        assert_eq!(account.more(dirty(1, 0), PRICES), SpaceNeeded { data: 4096, items: 0 });
        assert_eq!(account.more(dirty(4096, 0), PRICES).items, 1);
        assert_eq!(account.more(dirty(1, -1), PRICES), SpaceNeeded { data: 4096, items: 0 });
    }
}
