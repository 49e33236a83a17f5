//! Reservations: space promised to an operation before it changes anything.
//!
//! 1. A reservation is a value: it is split, merged, shrunk, and given back when dropped.
//! 2. One may hold references besides, that a change will drop: see [`super::Space::expect`].
//! 3. Making one reads and writes nothing; what may help where space is short, and costs more,
//!    is named by [`FlushHint`] and left to the caller.

use std::mem;

use userbtrfs_sync::Arc;

use super::space_info::{Counters, ReservePolicy, SpaceInfo, SpaceKind};

/// Tree blocks that one item may cost, as declared: its leaf and the half that splits off. What
/// the blocks above and the books cost comes out of the global reserve.
const BLOCKS_FOR_ITEM: u64 = 2;

/// The bytes of metadata to reserve for changes of so many items: an estimate, on the safe side.
pub fn bytes_for_items(items: u64, nodesize: u32) -> u64 {
    items.saturating_mul(BLOCKS_FOR_ITEM * u64::from(nodesize))
}

/// What would help where space is short, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushHint {
    /// Free ranges of more block groups can be read: [`super::Space::ensure_loaded`].
    Unloaded,
    /// A chunk can be made: [`super::Space::plan_chunk`].
    Chunk,
    /// Freed space becomes free by a commit.
    Pinned,
    /// Nothing: no space is left.
    Nothing,
}

/// Space that will be found when it is needed.
#[must_use = "dropped, it is given back"]
pub struct Reservation {
    counters: Arc<Counters>,
    kind: SpaceKind,
    bytes: u64,
    references: u64,
    /// Whether the bytes are for content of files.
    for_data: bool,
}

impl Reservation {
    /// Asks the counters for so many bytes.
    pub(super) fn policy(
        counters: &Arc<Counters>,
        kind: SpaceKind,
        bytes: u64,
        policy: ReservePolicy,
    ) -> Result<Self, SpaceInfo> {
        counters.reserve(kind, bytes, policy)?;
        let counters = Arc::clone(counters);
        Ok(Self { counters, kind, bytes, references: 0, for_data: false })
    }

    /// One of no bytes, of metadata.
    pub(super) fn of_references(counters: &Arc<Counters>, references: u64) -> Self {
        counters.expect(references);
        let counters = Arc::clone(counters);
        Self { counters, kind: SpaceKind::Metadata, bytes: 0, references, for_data: false }
    }

    /// Counts it as one for content of files, which in mixed groups are of the same kind.
    pub(super) fn for_data(mut self) -> Self {
        self.counters.reserved_for_data(self.kind, self.bytes);
        self.for_data = true;
        self
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The references that it expected to be dropped are.
    pub fn meet(&mut self) {
        let met = mem::take(&mut self.references);
        if met > 0 {
            self.counters.unexpect(met);
        }
    }

    /// Takes a part out of it, at most all.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let (counters, for_data) = (Arc::clone(&self.counters), self.for_data);
        Self { counters, kind: self.kind, bytes, references: 0, for_data }
    }

    /// Takes another one in, of the same kind and filesystem.
    pub fn merge(&mut self, mut other: Self) {
        assert!(Arc::ptr_eq(&self.counters, &other.counters), "of one filesystem");
        let kinds = [&*self, &other].map(|it| (it.kind, it.for_data));
        assert_eq!(kinds[0], kinds[1], "reservations of different kinds");
        self.bytes += mem::take(&mut other.bytes);
        self.references += mem::take(&mut other.references);
    }

    /// Gives back a part of it, at most all.
    pub fn shrink(&mut self, bytes: u64) {
        drop(self.split(bytes));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // One that was merged into another has nothing left, and takes no lock.
        if self.bytes > 0 {
            self.counters.release(self.kind, self.bytes, self.for_data);
        }
        self.meet();
    }
}

impl SpaceInfo {
    /// What would help, where a chunk can be made or cannot.
    pub(super) fn shortage(&self, bytes: u64, policy: ReservePolicy, chunk: bool) -> FlushHint {
        match () {
            () if self.tally.unloaded > 0 => FlushHint::Unloaded,
            () if chunk => FlushHint::Chunk,
            () => self.shortage_for_good(bytes, policy),
        }
    }

    /// What would help, where neither reading nor a chunk does.
    pub(super) fn shortage_for_good(&self, bytes: u64, policy: ReservePolicy) -> FlushHint {
        match self.backed() + self.tally.pinned >= self.needed(bytes, policy) {
            true => FlushHint::Pinned,
            false => FlushHint::Nothing,
        }
    }
}
