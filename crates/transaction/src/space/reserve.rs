//! Reservations: space that is granted to an operation before it changes anything.
//!
//! 1. A reservation is a value: it is split, merged, shrunk, and released when dropped.
//! 2. It may also hold references that a change will drop: see [`super::Space::expect`].
//! 3. Making one does no I/O; steps that may help if space is short, and cost more, are named by
//!    [`FlushHint`] and left to the caller.

use std::mem;

use userbtrfs_sync::Arc;

use super::space_info::{Counters, ReservePolicy, SpaceInfo, SpaceKind};

/// Tree blocks that are reserved for one item: its leaf and the half that splits off. The global
/// reserve covers the nodes above and the global reserve trees.
const BLOCKS_FOR_ITEM: u64 = 2;

/// Returns the bytes of metadata to reserve for changes of `items` items: an estimate on the safe
/// side.
pub fn bytes_for_items(items: u64, nodesize: u32) -> u64 {
    items.saturating_mul(BLOCKS_FOR_ITEM * u64::from(nodesize))
}

/// The cheapest step that would help if space is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushHint {
    /// Free ranges of more block groups can be read: [`super::Space::ensure_loaded`].
    Unloaded,
    /// A chunk can be made: [`super::Space::plan_chunk`].
    Chunk,
    /// A commit can free pinned space.
    Pinned,
    /// Nothing helps: no space is left.
    Nothing,
}

/// Space that is guaranteed to be found when it is needed.
#[must_use = "dropped, it is given back"]
pub struct Reservation {
    counters: Arc<Counters>,
    kind: SpaceKind,
    bytes: u64,
    references: u64,
    /// True if the bytes are for content of files.
    for_data: bool,
}

impl Reservation {
    /// Reserves `bytes` bytes in the counters.
    pub(super) fn with_policy(
        counters: &Arc<Counters>,
        kind: SpaceKind,
        bytes: u64,
        policy: ReservePolicy,
    ) -> Result<Self, SpaceInfo> {
        counters.reserve(kind, bytes, policy)?;
        let counters = Arc::clone(counters);
        Ok(Self { counters, kind, bytes, references: 0, for_data: false })
    }

    /// Returns a reservation of metadata with references and no bytes.
    pub(super) fn of_references(counters: &Arc<Counters>, references: u64) -> Self {
        counters.expect(references);
        let counters = Arc::clone(counters);
        Self { counters, kind: SpaceKind::Metadata, bytes: 0, references, for_data: false }
    }

    /// Counts it as one for content of files, which is of the same kind as metadata in mixed
    /// groups.
    pub(super) fn for_data(mut self) -> Self {
        self.counters.reserved_for_data(self.kind, self.bytes);
        self.for_data = true;
        self
    }

    /// Returns the bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records that the references that it expected to be dropped are dropped.
    pub fn meet(&mut self) {
        let met = mem::take(&mut self.references);
        if met > 0 {
            self.counters.unexpect(met);
        }
    }

    /// Splits off a part of it, at most all.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let counters = Arc::clone(&self.counters);
        let for_data = self.for_data;
        Self { counters, kind: self.kind, bytes, references: 0, for_data }
    }

    /// Merges another one into it, of the same kind and filesystem.
    pub fn merge(&mut self, mut other: Self) {
        assert!(Arc::ptr_eq(&self.counters, &other.counters), "of one filesystem");
        let kinds = [&*self, &other].map(|it| (it.kind, it.for_data));
        assert_eq!(kinds[0], kinds[1], "reservations of different kinds");
        self.bytes += mem::take(&mut other.bytes);
        self.references += mem::take(&mut other.references);
    }

    /// Releases a part of it, at most all.
    pub fn shrink(&mut self, bytes: u64) {
        drop(self.split(bytes));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // One that was merged into another is empty, and takes no lock.
        if self.bytes > 0 {
            self.counters.release(self.kind, self.bytes, self.for_data);
        }
        self.meet();
    }
}

impl SpaceInfo {
    /// Returns the step that would help; `chunk` is true if a chunk can be made.
    pub(super) fn shortage(&self, bytes: u64, policy: ReservePolicy, chunk: bool) -> FlushHint {
        match () {
            () if self.totals.unloaded > 0 => FlushHint::Unloaded,
            () if chunk => FlushHint::Chunk,
            () => self.shortage_for_good(bytes, policy),
        }
    }

    /// Returns the step that would help, if neither reading nor a chunk does.
    pub(super) fn shortage_for_good(&self, bytes: u64, policy: ReservePolicy) -> FlushHint {
        if self.backed() + self.totals.pinned >= self.needed(bytes, policy) {
            FlushHint::Pinned
        } else {
            FlushHint::Nothing
        }
    }
}
