//! A block group: its free space, and what is pinned or withheld in it.
//!
//! 1. A byte is in exactly one state: allocated, free, pinned, or withheld. The boot area of a
//!    device and the stripes of its superblocks are withheld, and the first 64 KiB of all logical
//!    addresses: an old filesystem may have a chunk there. An extent that lies there already is
//!    allocated; its space is withheld when it is freed.
//! 2. The free ranges of a group that is not loaded are unknown; nothing is allocated in it.
//! 3. In a group that does not start on a unit nothing is allocated: its tree blocks would cross
//!    stripes.
//! 4. `used` counts the bytes that have extent items; it trails what is allocated and freed.

use std::ops::Range;

use userbtrfs_format::{
    BlockGroupItem, Chunk, FIRST_FREE_OBJECTID, Logical, Physical, STRIPE_LEN, SUPERBLOCK_OFFSETS,
    Stripe,
};

use super::damage::SpaceDamage;
use super::ranges::FreeRanges;
use super::space_info::SpaceTotals;

/// The age of a block group, by the superblocks that refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockGroupAge {
    /// A durable superblock refers to it.
    Committed,
    /// The next superblock refers to it: nothing else becomes durable before that.
    InCommit,
    /// Made since then: to be used only if there is no other space.
    New,
}

/// A block group.
#[derive(Clone, Debug)]
pub(super) struct BlockGroup {
    pub(super) chunk: Chunk,
    pub(super) used: u64,
    pub(super) age: BlockGroupAge,
    /// Free ranges, once loaded.
    free: Option<FreeRanges>,
    /// Freed ranges that a durable superblock may still lead to.
    pinned: FreeRanges,
    /// Ranges that are never allocated.
    withheld: FreeRanges,
    /// Ranges to withhold once they are freed.
    withheld_later: FreeRanges,
    /// True if nothing is allocated in it.
    read_only: bool,
    /// True while its content is relocated: nothing is allocated in it, and it is removed once it
    /// is empty.
    pub(super) is_frozen: bool,
    /// How often `used` changed: a reader of free space detects by it that its result is outdated.
    version: u64,
}

impl BlockGroup {
    /// Returns a group that existed before, whose free space is not loaded.
    pub(super) fn existing(chunk: Chunk, used: u64, unit: u64) -> Self {
        let withheld = withheld(&chunk);
        let pinned = FreeRanges::new(unit);
        let withheld_later = FreeRanges::new(1);
        let read_only = !chunk.logical.0.is_multiple_of(unit);
        let age = BlockGroupAge::Committed;
        Self {
            chunk,
            used,
            age,
            free: None,
            pinned,
            withheld,
            withheld_later,
            read_only,
            is_frozen: false,
            version: 0,
        }
    }

    /// Returns a new group, all of it free.
    pub(super) fn new(chunk: Chunk, unit: u64) -> Self {
        let mut free = FreeRanges::new(unit);
        free.insert(chunk.logical.0, chunk.len).expect("it is the first");
        let mut group = Self { age: BlockGroupAge::New, ..Self::existing(chunk, 0, unit) };
        group.set_free(free);
        group
    }

    /// Returns its start.
    pub(super) fn start(&self) -> Logical {
        self.chunk.logical
    }

    /// Returns its item as it should be stored in the tree.
    pub(super) fn item(&self) -> BlockGroupItem {
        let used = self.used;
        let flags = self.chunk.flags;
        BlockGroupItem { used, chunk_objectid: FIRST_FREE_OBJECTID, flags }
    }

    /// Returns true if a range lies in it.
    pub(super) fn covers(&self, logical: Logical, len: u64) -> bool {
        let end = logical.checked_add(len);
        logical >= self.start() && end.is_some_and(|end| end <= self.chunk.end())
    }

    /// Returns the unit of allocation.
    pub(super) fn unit(&self) -> u64 {
        self.pinned.unit()
    }

    /// Returns how often `used` changed.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Returns true if it has free ranges that are not loaded.
    pub(super) fn can_load(&self) -> bool {
        self.free.is_none() && !self.read_only && !self.is_frozen
    }

    /// Returns what it adds to the counters of its kind.
    pub(super) fn totals(&self) -> SpaceTotals {
        let total = self.chunk.len - self.withheld.total();
        let pinned = self.pinned.total();
        let (free, unloaded) = match &self.free {
            _ if self.is_frozen || self.read_only && self.free.is_none() => (0, 0),
            Some(free) => (free.usable(), 0),
            None => (0, total.saturating_sub(self.used).saturating_sub(pinned)),
        };
        SpaceTotals { total, free, unloaded, pinned }
    }

    /// Returns its free ranges, start and length, by address.
    pub(super) fn free_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.free.iter().flat_map(FreeRanges::iter)
    }

    /// Returns the most contiguous bytes that can be allocated.
    pub(super) fn largest_free(&self) -> u64 {
        self.free.as_ref().filter(|_| !self.is_frozen).map_or(0, FreeRanges::largest_free)
    }

    /// Sets the free ranges, as they were read from the tree.
    pub(super) fn load(&mut self, free: FreeRanges) -> Result<(), SpaceDamage> {
        let start = self.start();
        let len = self.chunk.len;
        let used = self.used;
        if free.total().checked_add(used) != Some(len) {
            return Err(SpaceDamage::Used { start, len, used, free: free.total() });
        }
        self.set_free(free);
        Ok(())
    }

    /// Sets the free ranges, without what must not be allocated.
    fn set_free(&mut self, mut free: FreeRanges) {
        free.subtract_all(&self.pinned);
        let mut in_use = self.withheld.clone();
        in_use.subtract_all(&free);
        free.subtract_all(&self.withheld);
        self.withheld.subtract_all(&in_use);
        self.withheld_later = in_use;
        self.free = Some(free);
    }

    /// Withholds the part of a range that must not be allocated when the range becomes free.
    fn withhold(&mut self, start: u64, len: u64) {
        let Some(free) = self.free.as_mut().filter(|_| self.withheld_later.total() > 0) else {
            return;
        };
        let mut left = self.withheld_later.clone();
        left.subtract(start, len);
        let mut freed = std::mem::replace(&mut self.withheld_later, left);
        freed.subtract_all(&self.withheld_later);
        free.subtract_all(&freed);
        for (start, len) in freed.iter() {
            self.withheld.insert(start, len).expect("it was in use until now");
        }
    }

    /// Allocates at most `max` and at least `min` contiguous bytes.
    pub(super) fn allocate(&mut self, max: u64, min: u64) -> Option<(Logical, u64)> {
        let (start, len) = self.free.as_mut()?.take_run(max, min)?;
        self.assert_allocatable(start, len);
        Some((Logical(start), len))
    }

    /// Panics if a superblock may lead to what lies in a range, if nothing may be written there, or
    /// if a tree block there would cross a stripe.
    fn assert_allocatable(&self, start: u64, len: u64) {
        assert!(!self.pinned.overlaps(start, len), "{len} bytes at {start} are pinned");
        assert!(!self.withheld.overlaps(start, len), "{len} bytes at {start} are withheld");
        assert!(start.is_multiple_of(self.unit()), "{start} is no multiple of the unit");
    }

    /// Allocates at most `max` bytes right behind the last allocation: at least `good`, unless the
    /// group ends there, and at least `min`.
    pub(super) fn allocate_behind(
        &mut self,
        max: u64,
        good: u64,
        min: u64,
    ) -> Option<(Logical, u64)> {
        let end = self.chunk.end().0;
        let free = self.free.as_mut()?;
        let (start, room) = free.behind()?;
        let least = if start + room == end { min } else { good.max(min) };
        let len = room.min(max);
        if len < least {
            return None;
        }
        let start = free.take_behind(len)?;
        self.assert_allocatable(start, len);
        Some((Logical(start), len))
    }

    /// Takes a range, if all of it is free.
    pub(super) fn take_at(&mut self, logical: Logical, len: u64) -> bool {
        let free = self.free.as_mut().filter(|free| free.contains(logical.0, len));
        free.map(|free| free.subtract(logical.0, len)).is_some()
    }

    /// Frees an allocated range at once.
    pub(super) fn give_back(&mut self, logical: Logical, len: u64) -> Result<(), SpaceDamage> {
        self.check_in_use(logical, len)?;
        let free = self.free.as_mut().ok_or(SpaceDamage::NotInUse { logical, len })?;
        free.insert(logical.0, len).map_err(|_| SpaceDamage::NotInUse { logical, len })
    }

    /// Pins an allocated range: it is free once its removal is durable.
    pub(super) fn pin(&mut self, logical: Logical, len: u64) -> Result<(), SpaceDamage> {
        self.check_in_use(logical, len)?;
        self.pinned.insert(logical.0, len).map_err(|_| SpaceDamage::NotInUse { logical, len })
    }

    /// Frees a pinned range.
    pub(super) fn unpin(&mut self, logical: Logical, len: u64) {
        let was = self.pinned.subtract(logical.0, len);
        assert_eq!(was, len, "what is unpinned at {logical} was pinned");
        if let Some(free) = &mut self.free {
            free.insert(logical.0, len).expect("a pinned range is not free");
            self.withhold(logical.0, len);
        }
    }

    fn check_in_use(&self, logical: Logical, len: u64) -> Result<(), SpaceDamage> {
        let free = self.free.as_ref().is_some_and(|free| free.overlaps(logical.0, len));
        let pinned = self.pinned.overlaps(logical.0, len);
        // Before the free ranges are known, an extent may lie where none should.
        let withheld = self.free.is_some() && self.withheld.overlaps(logical.0, len);
        let in_use = self.covers(logical, len) && !free && !pinned && !withheld;
        in_use.then_some(()).ok_or(SpaceDamage::NotInUse { logical, len })
    }

    /// Counts bytes whose extent item was added or removed.
    pub(super) fn account(
        &mut self,
        logical: Logical,
        len: u64,
        added: bool,
    ) -> Result<(), SpaceDamage> {
        let used = if added {
            self.used.checked_add(len).filter(|&used| used <= self.chunk.len)
        } else {
            self.used.checked_sub(len)
        };
        self.used = used.ok_or(SpaceDamage::NotInUse { logical, len })?;
        self.version += 1;
        Ok(())
    }

    /// Returns true if all that is allocated in it has extent items. If its free ranges were never
    /// loaded, nothing was allocated since it was opened.
    pub(super) fn is_all_counted(&self) -> bool {
        let others = self.used + self.pinned.total() + self.withheld.total();
        self.free.as_ref().is_none_or(|free| free.total() + others == self.chunk.len)
    }

    /// Returns true if nothing of it is used, allocated or pinned.
    pub(super) fn is_empty(&self) -> bool {
        let all = self.chunk.len - self.withheld.total();
        let none_allocated = self.free.as_ref().is_none_or(|free| free.total() == all);
        self.used == 0 && self.pinned.total() == 0 && none_allocated
    }
}

/// Returns the logical ranges of a chunk that are never allocated: the first 64 KiB of all
/// addresses, and in each stripe those of the device and of each superblock.
fn withheld(chunk: &Chunk) -> FreeRanges {
    let mut ranges = FreeRanges::new(1);
    let mut withhold = |range: Range<u64>| {
        let len = range.end - range.start;
        // Ranges of both stripes may overlap.
        ranges.subtract(range.start, len);
        ranges.insert(range.start, len).expect("just taken out");
    };
    let start = chunk.logical.0;
    withhold(start..STRIPE_LEN.clamp(start, chunk.end().0));
    for stripe in &chunk.stripes {
        for at in [Physical(0)].into_iter().chain(SUPERBLOCK_OFFSETS) {
            withhold(overlap(chunk, stripe, at.0));
        }
    }
    ranges
}

/// Returns the logical range whose bytes in this stripe lie in the 64 KiB from `at` on.
fn overlap(chunk: &Chunk, stripe: &Stripe, at: u64) -> Range<u64> {
    let within = |at: u64| at.saturating_sub(stripe.physical.0).min(chunk.len);
    let start = within(at);
    let end = within(at + STRIPE_LEN);
    chunk.logical.0 + start..chunk.logical.0 + end
}

#[cfg(test)]
mod tests;
