//! Counters of space, by kind, and the rule by which reservations are granted.
//!
//! 1. The counters of a pool are the sums of the tallies of its block groups.
//! 2. What is reserved, with the global reserve, never exceeds what is at hand or promised when a
//!    reservation is granted: who holds one finds its bytes.
//! 3. The global reserve is nobody's. Trees that no operation reserves for (extent, free space,
//!    root, device and checksum trees) live on it while a transaction commits.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};

/// The least global reserve, in tree blocks, unless a small filesystem has no room for it: what
/// Linux must find to remove something (96, and a twentieth of its own reserve), and some more.
const GLOBAL_BLOCKS: u64 = 128;
/// What of the least global reserve is the commit's alone, in tree blocks.
const COMMIT_BLOCKS: u64 = 32;
/// What the global reserve is of all trees: one part in so many.
const GLOBAL_PART_OF_TREES: u64 = 8;
/// The most that the global reserve takes of a pool: one part in so many.
const GLOBAL_PART_OF_TOTAL: u64 = 8;
/// The largest global reserve, in bytes.
const GLOBAL_MAX: u64 = 512 << 20;

/// What a reference may add: an item of the extent tree, and a range of the free space tree, in
/// leaves that are half empty; in bytes.
const REFERENCE_BYTES: u64 = 192;
/// The trees of which a reference may change a leaf that no other one does: of extents, of free
/// space, of checksums.
const REFERENCE_TREES: u64 = 3;

/// What is stored: which block groups serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpaceKind {
    /// Content of files.
    Data,
    /// Blocks of all trees but the chunk tree.
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

/// What a block group adds to the counters, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpaceTotals {
    /// All bytes that can ever be allocated.
    pub(super) total: u64,
    /// Free, known, and in whole units.
    pub(super) at_hand: u64,
    /// Free in groups whose free ranges were not read.
    pub(super) unloaded: u64,
    /// Freed, but not yet free.
    pub(super) pinned: u64,
}

/// Who asks for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservePolicy {
    /// Leaves the global reserve alone.
    Ordinary,
    /// May use half of the global reserve, or more of the least one: the rest is the commit's.
    Removal,
    /// Leaves the commit the least that it may need: where it lacks more, nothing is durable, and
    /// nothing is lost.
    Replay,
}

/// The counters of the block groups of one kind, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpaceInfo {
    pub(super) tally: SpaceTotals,
    /// Reservations that are held.
    pub(super) reserved: u64,
    /// The part of that which is for content of files.
    pub(super) reserved_for_data: u64,
    /// Device space set aside for chunks of this kind, as they would count at hand.
    pub(super) promised: u64,
    /// References that changes which wait will drop.
    pub(super) expected: u64,
    /// Bytes of the trees of the books, as their root items say.
    pub(super) block_groups: u64,
    /// For what there is a global reserve.
    trees: Trees,
    pub(super) nodesize: u64,
}

/// For what of a pool there is a global reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trees {
    /// For nothing.
    #[default]
    None,
    /// For a part of all that is allocated.
    All,
    /// Beside data: for the trees of the books, and for a part of what was allocated for trees
    /// since the root items of these were written.
    Beside { fresh: u64 },
}

impl SpaceInfo {
    /// The bytes that are allocated.
    pub(super) fn allocated(&self) -> u64 {
        let SpaceTotals { total, at_hand, unloaded, pinned } = self.tally;
        total.saturating_sub(at_hand).saturating_sub(unloaded).saturating_sub(pinned)
    }

    /// The global reserve: what can need changing in trees that nobody reserves for; at least 128
    /// blocks, but never more than an eighth of all.
    pub(super) fn global(&self) -> u64 {
        self.at_least(self.changing(), GLOBAL_BLOCKS)
    }

    /// What of the global reserve a removal leaves to the commit.
    fn of_commit(&self) -> u64 {
        self.at_least(self.changing() / 2, COMMIT_BLOCKS).min(self.global() / 2)
    }

    fn at_least(&self, bytes: u64, blocks: u64) -> u64 {
        if self.trees == Trees::None {
            return 0;
        }
        let least = blocks * self.nodesize;
        bytes.clamp(least, GLOBAL_MAX.max(least)).min(self.tally.total / GLOBAL_PART_OF_TOTAL)
    }

    /// An estimate of what a commit may have to change of trees that nobody reserves for.
    fn changing(&self) -> u64 {
        match self.trees {
            Trees::None => 0,
            Trees::All => self.allocated() / GLOBAL_PART_OF_TREES,
            Trees::Beside { fresh } => {
                self.block_groups.saturating_add(fresh / GLOBAL_PART_OF_TREES)
            }
        }
    }

    /// What a claim leaves of the global reserve.
    fn spared(&self, policy: ReservePolicy) -> u64 {
        match policy {
            ReservePolicy::Ordinary => self.global(),
            ReservePolicy::Removal => self.of_commit(),
            ReservePolicy::Replay => self.least(),
        }
    }

    /// What a commit needs at least.
    fn least(&self) -> u64 {
        self.at_least(0, COMMIT_BLOCKS).min(self.of_commit())
    }

    /// What the commit takes beyond what a claim leaves to it, for so many references besides those
    /// expected, and for other items of so many bytes. References may lie in as many leaves as
    /// there are of them; but no commit copies more than all leaves of the books. A replay tries.
    pub(super) fn owed(&self, references: u64, others: u64, policy: ReservePolicy) -> u64 {
        if policy == ReservePolicy::Replay {
            return 0;
        }
        let references = references.saturating_add(self.expected);
        let leaves = references.saturating_mul(REFERENCE_TREES * self.nodesize);
        let copied = leaves.min(self.block_groups).saturating_add(self.least());
        let added = references.saturating_mul(REFERENCE_BYTES).saturating_add(others);
        copied.saturating_add(added).saturating_sub(self.spared(policy))
    }

    /// The bytes that must be at hand or promised for a reservation to be granted.
    pub(super) fn needed(&self, bytes: u64, policy: ReservePolicy) -> u64 {
        self.reserved.saturating_add(bytes).saturating_add(self.spared(policy))
    }

    /// The bytes that allocations will find.
    pub(super) fn backed(&self) -> u64 {
        self.tally.at_hand + self.promised
    }

    fn replace(&mut self, before: SpaceTotals, after: SpaceTotals) {
        let each = |value: u64, before: u64, after: u64| {
            (value + after).checked_sub(before).expect("counters are sums of tallies")
        };
        let tally = self.tally;
        self.tally = SpaceTotals {
            total: each(tally.total, before.total, after.total),
            at_hand: each(tally.at_hand, before.at_hand, after.at_hand),
            unloaded: each(tally.unloaded, before.unloaded, after.unloaded),
            pinned: each(tally.pinned, before.pinned, after.pinned),
        };
    }
}

/// The counters of all kinds. Data and metadata share a pool where they share block groups.
pub(super) struct Counters {
    space_infos: Mutex<[SpaceInfo; 3]>,
    mixed: bool,
    aborted: AtomicBool,
}

impl Counters {
    pub(super) fn new(mixed: bool, nodesize: u64) -> Self {
        let mut space_infos = [SpaceInfo { nodesize, ..SpaceInfo::default() }; 3];
        space_infos[SpaceKind::Metadata.index()].trees = match mixed {
            true => Trees::Beside { fresh: 0 },
            false => Trees::All,
        };
        let space_infos = Mutex::new(Class::SpaceCounters, space_infos);
        Self { space_infos, mixed, aborted: AtomicBool::new(false) }
    }

    /// The kind under which a kind is counted.
    pub(super) fn pool_of(&self, kind: SpaceKind) -> SpaceKind {
        if self.mixed && kind == SpaceKind::Data { SpaceKind::Metadata } else { kind }
    }

    pub(super) fn space_info(&self, kind: SpaceKind) -> SpaceInfo {
        self.space_infos.lock()[self.pool_of(kind).index()]
    }

    /// Puts a block group's new tally in the place of the one before.
    pub(super) fn replace(&self, kind: SpaceKind, before: SpaceTotals, after: SpaceTotals) {
        if before != after {
            self.space_infos.lock()[self.pool_of(kind).index()].replace(before, after);
        }
    }

    /// Takes a block group's tally out, if so many bytes are left beyond what is reserved.
    pub(super) fn try_take(&self, kind: SpaceKind, own: SpaceTotals, left: u64) -> bool {
        let mut space_infos = self.space_infos.lock();
        let space_info = &mut space_infos[self.pool_of(kind).index()];
        let spare = space_info.tally.at_hand.saturating_sub(own.at_hand);
        let unneeded = spare >= space_info.needed(left, ReservePolicy::Ordinary);
        if unneeded {
            space_info.replace(own, SpaceTotals::default());
        }
        unneeded
    }

    /// Root items say that the trees of the books are so many bytes larger, or smaller.
    pub(super) fn books_grew(&self, by: i64) {
        let space_info = &mut self.space_infos.lock()[SpaceKind::Metadata.index()];
        space_info.block_groups = space_info.block_groups.saturating_add_signed(by);
        if let Trees::Beside { fresh } = &mut space_info.trees {
            *fresh = 0;
        }
    }

    /// So many references will be dropped by changes that wait.
    pub(super) fn expect(&self, more: u64) {
        self.space_infos.lock()[SpaceKind::Metadata.index()].expected += more;
    }

    /// So many of those expected are not any more.
    pub(super) fn unexpect(&self, fewer: u64) {
        let expected = &mut self.space_infos.lock()[SpaceKind::Metadata.index()].expected;
        *expected = expected.checked_sub(fewer).expect("they were expected");
    }

    /// So many bytes were allocated for trees.
    pub(super) fn trees_grew(&self, bytes: u64) {
        if let Trees::Beside { fresh } =
            &mut self.space_infos.lock()[SpaceKind::Metadata.index()].trees
        {
            *fresh = fresh.saturating_add(bytes);
        }
    }

    /// Counts device space that is set aside.
    pub(super) fn promise(&self, kind: SpaceKind, bytes: u64) {
        self.space_infos.lock()[self.pool_of(kind).index()].promised += bytes;
    }

    /// Counts device space as no longer set aside.
    pub(super) fn unpromise(&self, kind: SpaceKind, bytes: u64) {
        let promised = &mut self.space_infos.lock()[self.pool_of(kind).index()].promised;
        *promised = promised.checked_sub(bytes).expect("it was promised");
    }

    /// Counts device space as no longer set aside, unless a reservation relies on it.
    pub(super) fn try_unpromise(&self, kind: SpaceKind, bytes: u64) -> bool {
        let mut space_infos = self.space_infos.lock();
        let space_info = &mut space_infos[self.pool_of(kind).index()];
        let unneeded = space_info.backed() - bytes >= space_info.needed(0, ReservePolicy::Ordinary);
        if unneeded {
            space_info.promised -= bytes;
        }
        unneeded
    }

    /// Grants a reservation, or says what the pool looks like.
    pub(super) fn reserve(
        &self,
        kind: SpaceKind,
        bytes: u64,
        policy: ReservePolicy,
    ) -> Result<(), SpaceInfo> {
        let mut space_infos = self.space_infos.lock();
        let space_info = &mut space_infos[self.pool_of(kind).index()];
        if bytes > 0 && space_info.needed(bytes, policy) > space_info.backed() {
            return Err(*space_info);
        }
        space_info.reserved += bytes;
        Ok(())
    }

    /// Counts bytes that were granted as ones for content of files.
    pub(super) fn reserved_for_data(&self, kind: SpaceKind, bytes: u64) {
        self.space_infos.lock()[self.pool_of(kind).index()].reserved_for_data += bytes;
    }

    /// Takes back what was granted.
    pub(super) fn release(&self, kind: SpaceKind, bytes: u64, for_data: bool) {
        let space_info = &mut self.space_infos.lock()[self.pool_of(kind).index()];
        let left = |reserved: u64| reserved.checked_sub(bytes);
        space_info.reserved = left(space_info.reserved).expect("what is given back was reserved");
        if for_data {
            space_info.reserved_for_data =
                left(space_info.reserved_for_data).expect("it was counted so");
        }
    }

    /// From now on nobody asks whether all was given back.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is reserved, or nobody asks.
    pub(super) fn is_settled(&self) -> bool {
        let settled = |space_info: &SpaceInfo| space_info.reserved == 0 && space_info.expected == 0;
        self.aborted.load(Ordering::Relaxed) || self.space_infos.lock().iter().all(settled)
    }
}
