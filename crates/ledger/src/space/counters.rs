//! Counters of space, by kind, and the rule by which reservations are granted.
//!
//! 1. The counters of a pool are the sums of the tallies of its block groups.
//! 2. What is reserved, with the global reserve, never exceeds what is at hand or promised when a
//!    reservation is granted: who holds one finds its bytes.
//! 3. The global reserve is nobody's. Trees that no operation reserves for (extent, free space,
//!    root, device and checksum trees) live on it while a transaction commits.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};

/// The least global reserve, in tree blocks, unless a small filesystem has no room for it.
const GLOBAL_BLOCKS: u64 = 64;
/// The most that the global reserve takes of a pool: one part in so many.
const GLOBAL_PART_OF_TOTAL: u64 = 8;
/// The largest global reserve, in bytes.
const GLOBAL_MAX: u64 = 512 << 20;

/// What is stored: which block groups serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Content of files.
    Data,
    /// Blocks of all trees but the chunk tree.
    Metadata,
    /// Blocks of the chunk tree.
    System,
}

impl Kind {
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
pub(super) struct Tally {
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
pub(crate) enum Claim {
    /// Leaves the global reserve alone.
    Ordinary,
    /// May use half of the global reserve: the other half is the commit's.
    Removal,
}

/// The counters of the block groups of one kind, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) tally: Tally,
    /// Reservations that are held.
    pub(super) reserved: u64,
    /// Device space set aside for chunks of this kind, as they would count at hand.
    pub(super) promised: u64,
    /// What one part in so many of the allocated bytes gives the global reserve; 0: there is
    /// none.
    pub(super) global_part: u64,
    pub(super) nodesize: u64,
}

impl Pool {
    /// The bytes that are allocated.
    pub(super) fn allocated(&self) -> u64 {
        let Tally { total, at_hand, unloaded, pinned } = self.tally;
        total.saturating_sub(at_hand).saturating_sub(unloaded).saturating_sub(pinned)
    }

    /// The global reserve: a share of what is allocated, since that is what can need changing;
    /// at least 64 blocks, but never more than an eighth of all.
    pub(super) fn global(&self) -> u64 {
        if self.global_part == 0 {
            return 0;
        }
        let share = self.allocated() / self.global_part;
        let least = GLOBAL_BLOCKS * self.nodesize;
        share.clamp(least, GLOBAL_MAX.max(least)).min(self.tally.total / GLOBAL_PART_OF_TOTAL)
    }

    /// The bytes that must be at hand or promised for a reservation to be granted.
    pub(super) fn needed(&self, bytes: u64, claim: Claim) -> u64 {
        let spared = match claim {
            Claim::Ordinary => self.global(),
            Claim::Removal => self.global() / 2,
        };
        self.reserved.saturating_add(bytes).saturating_add(spared)
    }

    /// The bytes that allocations will find.
    pub(super) fn backed(&self) -> u64 {
        self.tally.at_hand + self.promised
    }

    fn replace(&mut self, before: Tally, after: Tally) {
        let each = |value: u64, before: u64, after: u64| {
            (value + after).checked_sub(before).expect("counters are sums of tallies")
        };
        let tally = self.tally;
        self.tally = Tally {
            total: each(tally.total, before.total, after.total),
            at_hand: each(tally.at_hand, before.at_hand, after.at_hand),
            unloaded: each(tally.unloaded, before.unloaded, after.unloaded),
            pinned: each(tally.pinned, before.pinned, after.pinned),
        };
    }
}

/// The counters of all kinds. Data and metadata share a pool where they share block groups.
pub(super) struct Counters {
    pools: Mutex<[Pool; 3]>,
    mixed: bool,
    aborted: AtomicBool,
}

impl Counters {
    pub(super) fn new(mixed: bool, nodesize: u64) -> Self {
        let mut pools = [Pool { nodesize, ..Pool::default() }; 3];
        // Where data is counted too, not all of what is allocated is metadata. But it may be, and
        // then a commit writes most of the extent tree anew: one part in forty.
        pools[Kind::Metadata.index()].global_part = if mixed { 16 } else { 8 };
        let pools = Mutex::new(Class::SpaceCounters, pools);
        Self { pools, mixed, aborted: AtomicBool::new(false) }
    }

    /// The kind under which a kind is counted.
    pub(super) fn pool_of(&self, kind: Kind) -> Kind {
        if self.mixed && kind == Kind::Data { Kind::Metadata } else { kind }
    }

    pub(super) fn pool(&self, kind: Kind) -> Pool {
        self.pools.lock()[self.pool_of(kind).index()]
    }

    /// Puts a block group's new tally in the place of the one before.
    pub(super) fn replace(&self, kind: Kind, before: Tally, after: Tally) {
        if before != after {
            self.pools.lock()[self.pool_of(kind).index()].replace(before, after);
        }
    }

    /// Counts device space that is set aside.
    pub(super) fn promise(&self, kind: Kind, bytes: u64) {
        self.pools.lock()[self.pool_of(kind).index()].promised += bytes;
    }

    /// Counts device space as no longer set aside.
    pub(super) fn unpromise(&self, kind: Kind, bytes: u64) {
        let promised = &mut self.pools.lock()[self.pool_of(kind).index()].promised;
        *promised = promised.checked_sub(bytes).expect("it was promised");
    }

    /// Counts device space as no longer set aside, unless a reservation relies on it.
    pub(super) fn try_unpromise(&self, kind: Kind, bytes: u64) -> bool {
        let mut pools = self.pools.lock();
        let pool = &mut pools[self.pool_of(kind).index()];
        let unneeded = pool.backed() - bytes >= pool.needed(0, Claim::Ordinary);
        if unneeded {
            pool.promised -= bytes;
        }
        unneeded
    }

    /// Grants a reservation, or says what the pool looks like.
    pub(super) fn reserve(&self, kind: Kind, bytes: u64, claim: Claim) -> Result<(), Pool> {
        let mut pools = self.pools.lock();
        let pool = &mut pools[self.pool_of(kind).index()];
        if bytes > 0 && pool.needed(bytes, claim) > pool.backed() {
            return Err(*pool);
        }
        pool.reserved += bytes;
        Ok(())
    }

    /// Takes back what was granted.
    pub(super) fn release(&self, kind: Kind, bytes: u64) {
        let reserved = &mut self.pools.lock()[self.pool_of(kind).index()].reserved;
        *reserved = reserved.checked_sub(bytes).expect("what is given back was reserved");
    }

    /// From now on nobody asks whether all was given back.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is reserved, or nobody asks.
    pub(super) fn is_settled(&self) -> bool {
        let settled = |pool: &Pool| pool.reserved == 0;
        self.aborted.load(Ordering::Relaxed) || self.pools.lock().iter().all(settled)
    }
}
