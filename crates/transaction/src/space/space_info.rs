//! Counters of space, by kind, and the rule by which reservations are granted.
//!
//! 1. The counters of a kind are the sums of the totals of its block groups.
//! 2. When a reservation is granted, all reserved bytes and the global reserve do not exceed what
//!    is free or preallocated: each reservation finds its bytes.
//! 3. The global reserve belongs to no operation. Trees that no operation reserves for (extent,
//!    free space, root, device and checksum trees) use it while a transaction commits. Its size
//!    depends on the *global reserve trees*: those of these that can be large.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};

/// The least global reserve, in tree blocks, unless a small filesystem has no space for it: what
/// Linux needs to remove something (96, and a twentieth of its own reserve), and some more.
const GLOBAL_BLOCKS: u64 = 128;
/// The part of the least global reserve that is for the commit alone, in tree blocks.
const COMMIT_BLOCKS: u64 = 32;
/// The divisor of the size of all trees that results in the global reserve.
const GLOBAL_PART_OF_TREES: u64 = 8;
/// The divisor of the size of a kind that results in the largest global reserve in it.
const GLOBAL_PART_OF_TOTAL: u64 = 8;
/// The largest global reserve, in bytes.
const GLOBAL_MAX: u64 = 512 << 20;

/// The bytes that a reference may add: an item of the extent tree, and a range of the free space
/// tree, in leaves that are half empty.
const REFERENCE_BYTES: u64 = 192;
/// The number of trees in which a reference may change a leaf that no other one does: extents, free
/// space, checksums.
const REFERENCE_TREES: u64 = 3;

/// The kind of what is stored, which selects the block groups for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpaceKind {
    /// Content of files.
    Data,
    /// Blocks of all trees except the chunk tree.
    Metadata,
    /// Blocks of the chunk tree.
    System,
}

impl SpaceKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Data, Self::Metadata, Self::System];

    pub(super) fn index(self) -> usize {
        match self {
            Self::Data => 0,
            Self::Metadata => 1,
            Self::System => 2,
        }
    }
}

/// The bytes that a block group adds to the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpaceTotals {
    /// All bytes that can ever be allocated.
    pub(super) total: u64,
    /// Free in loaded groups, in whole units.
    pub(super) free: u64,
    /// Free in groups whose free ranges are not loaded.
    pub(super) unloaded: u64,
    /// Freed, but not free yet.
    pub(super) pinned: u64,
}

/// The part of the global reserve that a reservation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservePolicy {
    /// None of it.
    Normal,
    /// Half of the global reserve, or more of the least one: the rest is for the commit.
    Steal,
    /// All but the least that the commit may need: if the commit lacks more, nothing is durable,
    /// and nothing is lost.
    Replay,
}

/// The counters of the block groups of one kind, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpaceInfo {
    pub(super) totals: SpaceTotals,
    /// Reservations that are held.
    pub(super) reserved: u64,
    /// The part of them that is for content of files.
    pub(super) reserved_for_data: u64,
    /// Device space set aside for chunks of this kind, as it would count as free.
    pub(super) preallocated: u64,
    /// References that delayed changes will drop.
    pub(super) expected: u64,
    /// Bytes of the global reserve trees, according to their root items.
    pub(super) global_trees: u64,
    /// The trees that the global reserve is for.
    trees: Trees,
    pub(super) nodesize: u64,
}

/// The trees of a kind that the global reserve is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trees {
    /// No trees.
    #[default]
    None,
    /// All trees: a part of all that is allocated.
    All,
    /// The trees in mixed groups: the global reserve trees, and a part of what was allocated for
    /// trees since their root items were written.
    Mixed { fresh: u64 },
}

impl SpaceInfo {
    /// Returns the allocated bytes.
    pub(super) fn allocated(&self) -> u64 {
        let SpaceTotals { total, free, unloaded, pinned } = self.totals;
        total.saturating_sub(free).saturating_sub(unloaded).saturating_sub(pinned)
    }

    /// Returns the global reserve: what may have to change in trees that no operation reserves for;
    /// at least 128 blocks, but never more than an eighth of all.
    pub(super) fn global(&self) -> u64 {
        self.at_least(self.changing(), GLOBAL_BLOCKS)
    }

    /// Returns the part of the global reserve that a change under `Steal` leaves to the commit.
    fn commit_share(&self) -> u64 {
        self.at_least(self.changing() / 2, COMMIT_BLOCKS).min(self.global() / 2)
    }

    fn at_least(&self, bytes: u64, blocks: u64) -> u64 {
        if self.trees == Trees::None {
            return 0;
        }
        let least = blocks * self.nodesize;
        bytes.clamp(least, GLOBAL_MAX.max(least)).min(self.totals.total / GLOBAL_PART_OF_TOTAL)
    }

    /// Returns an estimate of what a commit may have to change in trees that no operation reserves
    /// for.
    fn changing(&self) -> u64 {
        match self.trees {
            Trees::None => 0,
            Trees::All => self.allocated() / GLOBAL_PART_OF_TREES,
            Trees::Mixed { fresh } => {
                self.global_trees.saturating_add(fresh / GLOBAL_PART_OF_TREES)
            }
        }
    }

    /// Returns the part of the global reserve that a reservation leaves.
    fn global_reserve_share(&self, policy: ReservePolicy) -> u64 {
        match policy {
            ReservePolicy::Normal => self.global(),
            ReservePolicy::Steal => self.commit_share(),
            ReservePolicy::Replay => self.least(),
        }
    }

    /// Returns the least that a commit needs.
    fn least(&self) -> u64 {
        self.at_least(0, COMMIT_BLOCKS).min(self.commit_share())
    }

    /// Returns what the commit takes beyond what a reservation leaves to it, for `references`
    /// references besides the expected ones, and for `others` bytes of other items. References may
    /// lie in as many leaves as there are of them; but no commit copies more than all leaves of the
    /// global reserve trees. A replay takes the risk: 0.
    pub(super) fn commit_overhead(
        &self,
        references: u64,
        others: u64,
        policy: ReservePolicy,
    ) -> u64 {
        if policy == ReservePolicy::Replay {
            return 0;
        }
        let references = references.saturating_add(self.expected);
        let leaves = references.saturating_mul(REFERENCE_TREES * self.nodesize);
        let copied = leaves.min(self.global_trees).saturating_add(self.least());
        let added = references.saturating_mul(REFERENCE_BYTES).saturating_add(others);
        copied.saturating_add(added).saturating_sub(self.global_reserve_share(policy))
    }

    /// Returns the bytes that must be free or preallocated to grant a reservation.
    pub(super) fn needed(&self, bytes: u64, policy: ReservePolicy) -> u64 {
        self.reserved.saturating_add(bytes).saturating_add(self.global_reserve_share(policy))
    }

    /// Returns the bytes that allocations will find.
    pub(super) fn backed(&self) -> u64 {
        self.totals.free + self.preallocated
    }

    fn replace(&mut self, before: SpaceTotals, after: SpaceTotals) {
        let each = |value: u64, before: u64, after: u64| {
            (value + after).checked_sub(before).expect("counters are sums of totals")
        };
        let totals = self.totals;
        self.totals = SpaceTotals {
            total: each(totals.total, before.total, after.total),
            free: each(totals.free, before.free, after.free),
            unloaded: each(totals.unloaded, before.unloaded, after.unloaded),
            pinned: each(totals.pinned, before.pinned, after.pinned),
        };
    }
}

/// The counters of all kinds. Data and metadata are counted as one kind if they share block groups.
pub(super) struct Counters {
    space_infos: Mutex<[SpaceInfo; 3]>,
    mixed: bool,
    aborted: AtomicBool,
}

impl Counters {
    pub(super) fn new(mixed: bool, nodesize: u64) -> Self {
        let mut space_infos = [SpaceInfo { nodesize, ..SpaceInfo::default() }; 3];
        space_infos[SpaceKind::Metadata.index()].trees =
            if mixed { Trees::Mixed { fresh: 0 } } else { Trees::All };
        let space_infos = Mutex::new(Class::SpaceCounters, space_infos);
        Self { space_infos, mixed, aborted: AtomicBool::new(false) }
    }

    /// Returns the kind under which a kind is counted.
    pub(super) fn counted_as(&self, kind: SpaceKind) -> SpaceKind {
        if self.mixed && kind == SpaceKind::Data { SpaceKind::Metadata } else { kind }
    }

    pub(super) fn space_info(&self, kind: SpaceKind) -> SpaceInfo {
        self.space_infos.lock()[self.counted_as(kind).index()]
    }

    /// Replaces the totals of a block group by its new ones.
    pub(super) fn replace(&self, kind: SpaceKind, before: SpaceTotals, after: SpaceTotals) {
        if before != after {
            self.space_infos.lock()[self.counted_as(kind).index()].replace(before, after);
        }
    }

    /// Removes the totals of a block group, if `left` bytes remain beyond what is reserved.
    pub(super) fn try_take(&self, kind: SpaceKind, own: SpaceTotals, left: u64) -> bool {
        let mut space_infos = self.space_infos.lock();
        let space_info = &mut space_infos[self.counted_as(kind).index()];
        let spare = space_info.totals.free.saturating_sub(own.free);
        let unneeded = spare >= space_info.needed(left, ReservePolicy::Normal);
        if unneeded {
            space_info.replace(own, SpaceTotals::default());
        }
        unneeded
    }

    /// Records that the global reserve trees are larger by `by` bytes in their root items.
    pub(super) fn global_trees_grew(&self, by: i64) {
        let space_info = &mut self.space_infos.lock()[SpaceKind::Metadata.index()];
        space_info.global_trees = space_info.global_trees.saturating_add_signed(by);
        if let Trees::Mixed { fresh } = &mut space_info.trees {
            *fresh = 0;
        }
    }

    /// Adds references that delayed changes will drop.
    pub(super) fn expect(&self, more: u64) {
        self.space_infos.lock()[SpaceKind::Metadata.index()].expected += more;
    }

    /// Removes references that are expected no more.
    pub(super) fn unexpect(&self, fewer: u64) {
        let expected = &mut self.space_infos.lock()[SpaceKind::Metadata.index()].expected;
        *expected = expected.checked_sub(fewer).expect("they were expected");
    }

    /// Counts bytes that were allocated for trees.
    pub(super) fn trees_grew(&self, bytes: u64) {
        if let Trees::Mixed { fresh } =
            &mut self.space_infos.lock()[SpaceKind::Metadata.index()].trees
        {
            *fresh = fresh.saturating_add(bytes);
        }
    }

    /// Counts device space that is set aside.
    pub(super) fn preallocate_chunk(&self, kind: SpaceKind, bytes: u64) {
        self.space_infos.lock()[self.counted_as(kind).index()].preallocated += bytes;
    }

    /// Counts device space as no longer set aside.
    pub(super) fn release_preallocated(&self, kind: SpaceKind, bytes: u64) {
        self.replace_preallocated(kind, bytes, 0);
    }

    /// Counts device space that is set aside in place of other space.
    pub(super) fn replace_preallocated(&self, kind: SpaceKind, before: u64, after: u64) {
        let preallocated = &mut self.space_infos.lock()[self.counted_as(kind).index()].preallocated;
        *preallocated = preallocated.checked_sub(before).expect("it was preallocated") + after;
    }

    /// Counts device space as no longer set aside, unless a reservation relies on it.
    pub(super) fn try_release_preallocated(&self, kind: SpaceKind, bytes: u64) -> bool {
        let mut space_infos = self.space_infos.lock();
        let space_info = &mut space_infos[self.counted_as(kind).index()];
        let unneeded = space_info.backed() - bytes >= space_info.needed(0, ReservePolicy::Normal);
        if unneeded {
            space_info.preallocated -= bytes;
        }
        unneeded
    }

    /// Grants a reservation, or returns the counters of the kind.
    pub(super) fn reserve(
        &self,
        kind: SpaceKind,
        bytes: u64,
        policy: ReservePolicy,
    ) -> Result<(), SpaceInfo> {
        let mut space_infos = self.space_infos.lock();
        let space_info = &mut space_infos[self.counted_as(kind).index()];
        if bytes > 0 && space_info.needed(bytes, policy) > space_info.backed() {
            return Err(*space_info);
        }
        space_info.reserved += bytes;
        Ok(())
    }

    /// Counts granted bytes as reserved for content of files.
    pub(super) fn reserved_for_data(&self, kind: SpaceKind, bytes: u64) {
        self.space_infos.lock()[self.counted_as(kind).index()].reserved_for_data += bytes;
    }

    /// Releases granted bytes.
    pub(super) fn release(&self, kind: SpaceKind, bytes: u64, for_data: bool) {
        let space_info = &mut self.space_infos.lock()[self.counted_as(kind).index()];
        let left = |reserved: u64| reserved.checked_sub(bytes);
        space_info.reserved = left(space_info.reserved).expect("what is given back was reserved");
        if for_data {
            space_info.reserved_for_data =
                left(space_info.reserved_for_data).expect("it was counted so");
        }
    }

    /// Ends the check that all is released.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    /// Returns true if nothing is reserved, or if that is not checked any more.
    pub(super) fn is_all_released(&self) -> bool {
        let settled = |space_info: &SpaceInfo| space_info.reserved == 0 && space_info.expected == 0;
        self.aborted.load(Ordering::Relaxed) || self.space_infos.lock().iter().all(settled)
    }
}
