//! All block groups: what is allocated, pinned, made and removed.
//!
//! 1. They are in memory only and access no tree: the callers write the changes.
//! 2. Each change of a group goes through `change`, which keeps the counters.
//! 3. What the running transaction pinned, made and removed is collected for its commit.
//! 4. Preallocated chunks have space on the device, and no logical address yet.

mod resize;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;

use userbtrfs_format::{BlockGroupFlags, BlockGroupItem, Chunk, Logical, STRIPE_LEN};
use userbtrfs_sync::Arc;

use super::block_group::{BlockGroup, BlockGroupAge};
use super::chunk::{DEVICE_START, DeviceSpace, NewChunk};
use super::damage::SpaceDamage;
use super::ranges::FreeRanges;
use super::space_info::{Counters, ReservePolicy, SpaceKind, SpaceTotals};
use crate::units::SECTOR;

/// The size of a system chunk in the superblock's array without its stripes: key and structure.
const SYSTEM_CHUNK_BYTES: usize = 17 + 48;
const STRIPE_BYTES: usize = 32;
const SYS_CHUNK_ARRAY_SIZE: usize = 2048;

/// The number of chunks of data that fit beside one that is made without need.
const CHUNKS_KEPT: u64 = 3;
/// Data needs one byte of metadata for this many bytes: a checksum of 32 bytes for each sector.
const METADATA_PART_OF_DATA: u64 = 128;
/// The least number of free tree blocks that metadata should have.
const METADATA_BLOCKS_MIN: u64 = 16;

/// Pinned ranges, new groups and removed chunks, until a superblock is durable.
#[derive(Debug, Default)]
#[must_use = "it is never free unless it is unpinned"]
pub struct Pinned {
    ranges: Vec<(Logical, u64)>,
    pub(super) made: Vec<Logical>,
    removed: Vec<Chunk>,
}

impl Pinned {
    /// Returns the ranges that will be free, start and length.
    pub fn ranges(&self) -> &[(Logical, u64)] {
        &self.ranges
    }

    /// Takes out ranges that are not to be free yet.
    pub(super) fn split_off<R>(&mut self, split: impl FnOnce(&mut Vec<(Logical, u64)>) -> R) -> R {
        split(&mut self.ranges)
    }

    /// Returns the chunks that were removed.
    pub fn removed(&self) -> &[Chunk] {
        &self.removed
    }
}

pub(super) struct BlockGroups {
    nodesize: u64,
    mixed: bool,
    groups: BTreeMap<Logical, BlockGroup>,
    /// The group of the last allocation of each kind.
    current: [Option<Logical>; 3],
    device: DeviceSpace,
    next_logical: u64,
    /// Chunks of metadata.
    preallocated: Vec<Chunk>,
    planned: Vec<NewChunk>,
    changed: BTreeSet<Logical>,
    pinned: Pinned,
    /// The chunks of removed groups whose device space is not free yet.
    being_removed: Vec<Chunk>,
    counters: Arc<Counters>,
}

impl BlockGroups {
    pub(super) fn new(
        nodesize: u64,
        mixed: bool,
        device: DeviceSpace,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            nodesize,
            mixed,
            groups: BTreeMap::new(),
            current: [None; 3],
            device,
            next_logical: 0,
            preallocated: Vec::new(),
            planned: Vec::new(),
            changed: BTreeSet::new(),
            pinned: Pinned::default(),
            being_removed: Vec::new(),
            counters,
        }
    }

    /// Adds a block group that exists.
    pub(super) fn add_existing(&mut self, chunk: Chunk, used: u64) -> Result<(), SpaceDamage> {
        let start = chunk.logical;
        let flags = chunk.flags;
        let shared = flags.contains(BlockGroupFlags::DATA | BlockGroupFlags::METADATA);
        if !flags.contains(BlockGroupFlags::SYSTEM) && shared != self.mixed {
            return Err(SpaceDamage::Mixing { start, flags });
        }
        self.device.occupy(&chunk)?;
        let unit = self.unit(chunk.flags);
        self.add(BlockGroup::existing(chunk, used, unit));
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> impl Iterator<Item = &BlockGroup> {
        self.groups.values()
    }

    /// Returns the first part of a free range of at least `len_min` bytes between two addresses.
    pub(super) fn next_free(&self, at: u64, end: u64, len_min: u64) -> Option<Range<u64>> {
        let free = self.groups.values().flat_map(BlockGroup::free_ranges);
        first_part(free, at, end, len_min)
    }

    /// Returns the first part, from an offset of the device on, of a range of at least `len_min`
    /// bytes that no chunk takes.
    pub(super) fn next_unallocated(&self, at: u64, len_min: u64) -> Option<Range<u64>> {
        first_part(self.device.free_ranges(), at, u64::MAX, len_min)
    }

    /// Returns the first group of a kind whose free ranges are not loaded.
    pub(super) fn to_load(&self, kind: SpaceKind) -> Option<&BlockGroup> {
        let space_info = self.counters.counted_as(kind);
        self.groups.values().find(|group| group.can_load() && kind_of(group) == space_info)
    }

    /// Returns the group that an address lies in, if its free ranges are not loaded.
    pub(super) fn unloaded_at(&self, logical: Logical) -> Option<&BlockGroup> {
        let group = self.groups.get(&self.covering(logical)?)?;
        group.can_load().then_some(group)
    }

    /// Returns the start of the group of a kind that a range lies in.
    pub(super) fn start_of_group(
        &self,
        kind: SpaceKind,
        logical: Logical,
        len: u64,
    ) -> Option<Logical> {
        let start = self.owner(logical, len).ok()?;
        (kind_of(&self.groups[&start]) == self.counters.counted_as(kind)).then_some(start)
    }

    /// Sets the free ranges of a group; returns false if the group changed meanwhile.
    pub(super) fn load(
        &mut self,
        start: Logical,
        version: u64,
        free: FreeRanges,
    ) -> Result<bool, SpaceDamage> {
        match self.groups.get(&start) {
            Some(group) if !group.can_load() => Ok(true),
            Some(group) if group.version() == version => {
                self.change(start, |group| group.load(free)).map(|()| true)
            }
            Some(_) => Ok(false),
            None => Ok(true),
        }
    }

    /// Allocates at most `max` and at least `min` contiguous bytes.
    pub(super) fn allocate(
        &mut self,
        kind: SpaceKind,
        max: u64,
        min: u64,
        near: Option<Logical>,
    ) -> Option<(Logical, u64)> {
        let kind = self.counters.counted_as(kind);
        let start = self.choose(kind, max, near).or_else(|| self.with_largest_free(kind, min))?;
        self.current[kind.index()] = Some(start);
        let max = max.max(min);
        Some(self.change(start, |group| group.allocate(max, min)).expect("it has the room"))
    }

    /// Allocates at most `max` bytes in the group of the last allocation, as
    /// [`BlockGroup::allocate_behind`] does; in a new one only if it is not empty.
    pub(super) fn allocate_behind(
        &mut self,
        kind: SpaceKind,
        max: u64,
        good: u64,
        min: u64,
    ) -> Option<(Logical, u64)> {
        let current = self.current[self.counters.counted_as(kind).index()]?;
        let usable = |it: &BlockGroup| it.age < BlockGroupAge::New || !it.is_empty();
        self.groups.get(&current).filter(|it| usable(it) && !it.is_frozen)?;
        self.change(current, |group| group.allocate_behind(max, good, min))
    }

    /// Returns the group of the last allocation, if it has the space; or else the next that has,
    /// older ones first.
    fn choose(&self, kind: SpaceKind, len: u64, near: Option<Logical>) -> Option<Logical> {
        let current = self.current[kind.index()].or_else(|| self.covering(near?));
        let fits = |group: &BlockGroup| kind_of(group) == kind && group.largest_free() >= len;
        let group = current.and_then(|start| self.groups.get(&start));
        if let Some(group) = group.filter(|group| fits(group) && group.age < BlockGroupAge::New) {
            return Some(group.start());
        }
        let from = current.unwrap_or_default();
        let order = |group: &&BlockGroup| (group.age, group.start() < from, group.start());
        self.groups.values().filter(|group| fits(group)).min_by_key(order).map(BlockGroup::start)
    }

    /// Returns the group with the most contiguous bytes, if those are enough.
    fn with_largest_free(&self, kind: SpaceKind, min: u64) -> Option<Logical> {
        let groups = self.groups.values().filter(|group| kind_of(group) == kind);
        let group = groups.max_by_key(|group| group.largest_free())?;
        (group.largest_free() >= min).then(|| group.start())
    }

    pub(super) fn give_back(&mut self, logical: Logical, len: u64) -> Result<(), SpaceDamage> {
        let start = self.owner(logical, len)?;
        self.change(start, |group| group.give_back(logical, len))
    }

    pub(super) fn pin(&mut self, logical: Logical, len: u64) -> Result<(), SpaceDamage> {
        let start = self.owner(logical, len)?;
        self.change(start, |group| group.pin(logical, len))?;
        self.pinned.ranges.push((logical, len));
        Ok(())
    }

    pub(super) fn account(
        &mut self,
        at: Logical,
        len: u64,
        added: bool,
    ) -> Result<(), SpaceDamage> {
        let start = self.owner(at, len)?;
        self.change(start, |group| group.account(at, len, added))?;
        self.changed.insert(start);
        Ok(())
    }

    /// Takes what the running transaction leaves until its superblock is durable. Chunks that it
    /// does not write are left to the next one.
    pub(super) fn take_pinned(&mut self) -> Pinned {
        let mut taken = mem::take(&mut self.pinned);
        self.pinned.made = taken.made.extract_if(.., |made| self.is_planned(*made)).collect();
        self.set_age(&taken.made, BlockGroupAge::InCommit);
        taken
    }

    fn set_age(&mut self, made: &[Logical], age: BlockGroupAge) {
        for start in made {
            self.groups.get_mut(start).expect("a new group is not removed").age = age;
        }
    }

    /// Returns all groups, by address.
    pub(super) fn all(&self) -> impl Iterator<Item = &BlockGroup> {
        self.groups.values()
    }

    /// Returns the groups whose chunks are in the trees, or about to be removed from them.
    pub(super) fn listed(&self) -> impl Iterator<Item = &BlockGroup> {
        self.all().filter(|group| !self.is_planned(group.start()))
    }

    fn is_planned(&self, start: Logical) -> bool {
        self.planned.iter().any(|new| new.chunk.logical == start)
    }

    /// Keeps ranges pinned for one more transaction.
    pub(super) fn keep_pinned(&mut self, ranges: Vec<(Logical, u64)>) {
        self.pinned.ranges.extend(ranges);
    }

    /// Frees pinned ranges, ages new groups, and frees the device space of removed ones.
    pub(super) fn unpin(&mut self, pinned: Pinned) {
        for (logical, len) in pinned.ranges {
            let start =
                self.owner(logical, len).expect("no group is removed while bytes of it are");
            self.change(start, |group| group.unpin(logical, len));
        }
        self.set_age(&pinned.made, BlockGroupAge::Committed);
        pinned.removed.iter().for_each(|chunk| self.device.vacate(chunk));
        self.being_removed.retain(|chunk| !pinned.removed.contains(chunk));
    }

    pub(super) fn take_changed(&mut self) -> Vec<(Logical, u64, BlockGroupItem)> {
        let changed = mem::take(&mut self.changed);
        let entry = |start: &Logical| {
            let group = &self.groups[start];
            (*start, group.chunk.len, group.item())
        };
        changed.iter().map(entry).collect()
    }

    pub(super) fn take_planned(&mut self) -> Vec<NewChunk> {
        mem::take(&mut self.planned)
    }

    /// Keeps a chunk that was made by an allocation, until it is written.
    pub(super) fn keep_planned(&mut self, chunk: NewChunk) {
        self.planned.push(chunk);
    }

    /// Makes a chunk in memory; its group can be used at once.
    pub(super) fn make_chunk(&mut self, kind: SpaceKind) -> Option<NewChunk> {
        let kind = self.counters.counted_as(kind);
        let kept = if kind == SpaceKind::Metadata { self.preallocated.pop() } else { None };
        if let Some(chunk) = &kept {
            self.counters.release_preallocated(kind, self.free_bytes_of(chunk));
        }
        let chunk = kept.or_else(|| self.place_if_metadata_allows(kind))?;
        let chunk = Chunk { logical: Logical(self.next_logical), ..chunk };
        let group = BlockGroup::new(chunk.clone(), self.unit(chunk.flags));
        let new = self.device.describe(chunk, group.item());
        self.pinned.made.push(group.start());
        self.add(group);
        Some(new)
    }

    /// Returns true if a chunk of a kind could be made.
    pub(super) fn can_make_chunk(&mut self, kind: SpaceKind) -> bool {
        let kind = self.counters.counted_as(kind);
        let placed = self.place_if_metadata_allows(kind);
        placed.inspect(|chunk| self.device.vacate(chunk)).is_some()
    }

    /// Returns true if a chunk of data holds `len` bytes, and enough space for others is left
    /// beside it.
    pub(super) fn has_spare_data_chunk(&self, len: u64) -> bool {
        let chunk = self.device.chunk_len(SpaceKind::Data);
        chunk >= len && self.data_in_new_chunks() / chunk > CHUNKS_KEPT
    }

    /// Returns the most bytes of data that further chunks could hold.
    pub(super) fn data_in_new_chunks(&self) -> u64 {
        self.device.chunk_bytes() / self.data_copies()
    }

    /// Like `data_in_new_chunks`, with the space that is set aside for chunks of metadata.
    pub(super) fn unallocated_for_data(&self) -> u64 {
        let preallocated =
            self.preallocated.iter().map(|chunk| chunk.len * chunk.stripes.len() as u64);
        (self.device.chunk_bytes() + preallocated.sum::<u64>()) / self.data_copies()
    }

    fn data_copies(&self) -> u64 {
        if self.flags(SpaceKind::Data).contains(BlockGroupFlags::DUP) { 2 } else { 1 }
    }

    /// Sets device space aside for a chunk of metadata; returns true if there was enough.
    pub(super) fn preallocate_chunk(&mut self) -> bool {
        let placed = self.place(SpaceKind::Metadata);
        let Some(chunk) = placed else { return false };
        self.counters.preallocate_chunk(SpaceKind::Metadata, self.free_bytes_of(&chunk));
        self.preallocated.push(chunk);
        true
    }

    /// Frees the space that was set aside and that no reservation relies on.
    pub(super) fn release_preallocated(&mut self) {
        while let Some(chunk) = self.preallocated.pop() {
            if !self
                .counters
                .try_release_preallocated(SpaceKind::Metadata, self.free_bytes_of(&chunk))
            {
                return self.preallocated.push(chunk);
            }
            self.device.vacate(&chunk);
        }
    }

    /// Places a chunk; if metadata needs a chunk soon, one of data leaves space for that.
    fn place_if_metadata_allows(&mut self, kind: SpaceKind) -> Option<Chunk> {
        let wanted = kind == SpaceKind::Data && self.metadata_is_short();
        let aside = if wanted { self.place(SpaceKind::Metadata) } else { None };
        let placed = self.place(kind);
        aside.inspect(|chunk| self.device.vacate(chunk));
        placed
    }

    /// Returns true if metadata lacks even what a chunk full of data takes of it: references and
    /// checksums.
    fn metadata_is_short(&self) -> bool {
        let space_info = self.counters.space_info(SpaceKind::Metadata);
        let spare = space_info.backed().saturating_sub(space_info.needed(0, ReservePolicy::Normal));
        let data = self.device.chunk_len(SpaceKind::Data) / METADATA_PART_OF_DATA;
        spare < data.max(METADATA_BLOCKS_MIN * self.nodesize)
    }

    fn place(&mut self, kind: SpaceKind) -> Option<Chunk> {
        let logical = self.next_logical.checked_add(self.device.free_bytes())?;
        let flags = self.flags(kind);
        let array_full = kind == SpaceKind::System && self.system_array_is_full(flags);
        if array_full || logical > i64::MAX.unsigned_abs() {
            return None;
        }
        self.device.place(kind, flags)
    }

    fn system_array_is_full(&self, flags: BlockGroupFlags) -> bool {
        let size = |stripes: usize| SYSTEM_CHUNK_BYTES + stripes * STRIPE_BYTES;
        let system = self.groups.values().filter(|group| kind_of(group) == SpaceKind::System);
        let listed: usize = system.map(|group| size(group.chunk.stripes.len())).sum();
        let next = size(if flags.contains(BlockGroupFlags::DUP) { 2 } else { 1 });
        listed + next > SYS_CHUNK_ARRAY_SIZE
    }

    /// Returns the flags of a new group: DUP if a group of its kind is, or if there is none and one
    /// of the system is; data, however, is single then.
    fn flags(&self, kind: SpaceKind) -> BlockGroupFlags {
        let types = match kind {
            SpaceKind::System => BlockGroupFlags::SYSTEM,
            SpaceKind::Metadata if self.mixed => BlockGroupFlags::DATA | BlockGroupFlags::METADATA,
            SpaceKind::Metadata => BlockGroupFlags::METADATA,
            SpaceKind::Data => BlockGroupFlags::DATA,
        };
        let of = |kind| self.groups.values().filter(move |group| kind_of(group) == kind);
        let dup = |group: &BlockGroup| group.chunk.flags.contains(BlockGroupFlags::DUP);
        let alike = if of(kind).next().is_some() || kind == SpaceKind::Data {
            of(kind).any(dup)
        } else {
            of(SpaceKind::System).any(dup)
        };
        if alike { types | BlockGroupFlags::DUP } else { types }
    }

    /// Removes an empty group that no reservation relies on: one that was made since
    /// [`BlockGroups::empty`] may. Its device space is free once that is durable.
    pub(super) fn remove(&mut self, start: Logical) -> Option<Chunk> {
        let group = self.groups.get(&start)?;
        if !group.is_empty() || group.age != BlockGroupAge::Committed {
            return None;
        }
        if group.is_frozen {
            // It has no free space that a reservation could rely on.
            self.counters.replace(kind_of(group), group.totals(), SpaceTotals::default());
        } else if !self.counters.try_take(kind_of(group), group.totals(), needed_elsewhere(group)) {
            return None;
        }
        let group = self.groups.remove(&start).expect("just seen");
        self.changed.remove(&start);
        let current = &mut self.current[kind_of(&group).index()];
        *current = current.filter(|&current| current != start);
        self.pinned.removed.push(group.chunk.clone());
        self.being_removed.push(group.chunk.clone());
        Some(group.chunk)
    }

    /// Returns true if groups were removed whose device space is not free yet.
    pub(super) fn has_groups_being_removed(&self) -> bool {
        !self.being_removed.is_empty()
    }

    /// Returns the ranges that are pinned in the running transaction.
    pub(super) fn pinned_ranges(&self) -> &[(Logical, u64)] {
        &self.pinned.ranges
    }

    /// Returns groups that can all be removed, while half the size of each is still free elsewhere.
    pub(super) fn empty(&self) -> Vec<Logical> {
        let space_infos = SpaceKind::ALL.map(|kind| self.counters.space_info(kind));
        let mut spare =
            space_infos.map(|p| p.totals.free.saturating_sub(p.needed(0, ReservePolicy::Normal)));
        let removable = |group: &&BlockGroup| {
            let spare = &mut spare[kind_of(group).index()];
            let left = spare.checked_sub(group.totals().free);
            let enough = left.filter(|&left| left >= needed_elsewhere(group));
            *spare = enough.unwrap_or(*spare);
            enough.is_some()
        };
        let frozen = self.groups.values().filter(|group| group.is_frozen && group.is_empty());
        let frozen = frozen.map(BlockGroup::start);
        let empty = |group: &&BlockGroup| {
            if group.is_frozen {
                return false;
            }
            let kept = group.age != BlockGroupAge::Committed || kind_of(group) == SpaceKind::System;
            group.is_empty() && !kept
        };
        let removed = self.groups.values().filter(empty).filter(removable);
        frozen.chain(removed.map(BlockGroup::start)).collect()
    }

    pub(super) fn bytes_used(&self) -> u64 {
        self.groups.values().map(|group| group.used).sum()
    }

    /// Returns the bytes of the device that chunks take.
    pub(super) fn device_used(&self) -> u64 {
        let held = |group: &BlockGroup| group.chunk.len * group.chunk.stripes.len() as u64;
        self.groups.values().map(held).sum()
    }

    /// Returns true if there are allocations in groups that no superblock refers to except that of
    /// the running transaction.
    pub(super) fn draws_on_new(&self) -> bool {
        // New groups are listed here until a superblock refers to them, and none of them is
        // removed.
        self.pinned.made.iter().any(|start| !self.groups[start].is_empty())
    }

    fn add(&mut self, group: BlockGroup) {
        let start = group.start();
        let totals = group.totals();
        self.counters.replace(kind_of(&group), SpaceTotals::default(), totals);
        let end = group.chunk.end().0;
        let end = end.checked_next_multiple_of(STRIPE_LEN).unwrap_or(u64::MAX);
        self.next_logical = self.next_logical.max(end);
        assert!(self.groups.insert(start, group).is_none(), "a group for each chunk");
    }

    pub(super) fn change<R>(
        &mut self,
        start: Logical,
        change: impl FnOnce(&mut BlockGroup) -> R,
    ) -> R {
        let group = self.groups.get_mut(&start).expect("a group that was found");
        let before = group.totals();
        let result = change(group);
        self.counters.replace(kind_of(group), before, group.totals());
        result
    }

    fn covering(&self, logical: Logical) -> Option<Logical> {
        let (&start, group) = self.groups.range(..=logical).next_back()?;
        group.covers(logical, 1).then_some(start)
    }

    /// Returns the group that a range lies in.
    fn owner(&self, logical: Logical, len: u64) -> Result<Logical, SpaceDamage> {
        let before = self.groups.range(..=logical).next_back();
        let owner = before.filter(|(_, group)| group.covers(logical, len));
        owner.map(|(&start, _)| start).ok_or(SpaceDamage::NotInUse { logical, len })
    }

    /// Returns the bytes that a chunk, once made, has free, whose address is above the boot area.
    fn free_bytes_of(&self, chunk: &Chunk) -> u64 {
        let chunk = Chunk { logical: Logical(DEVICE_START), ..chunk.clone() };
        let unit = self.unit(chunk.flags);
        BlockGroup::new(chunk, unit).totals().free
    }

    /// Returns the unit of allocation in a group.
    fn unit(&self, flags: BlockGroupFlags) -> u64 {
        let blocks = BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM;
        if flags.intersects(blocks) { self.nodesize } else { SECTOR }
    }
}

/// Returns the bytes that must be free elsewhere when a group is removed, so that its kind does not
/// need it soon again.
fn needed_elsewhere(group: &BlockGroup) -> u64 {
    group.chunk.len / 2
}

/// Returns the kind under which a group is counted.
fn kind_of(group: &BlockGroup) -> SpaceKind {
    match group.chunk.flags {
        flags if flags.contains(BlockGroupFlags::SYSTEM) => SpaceKind::System,
        flags if flags.contains(BlockGroupFlags::METADATA) => SpaceKind::Metadata,
        _ => SpaceKind::Data,
    }
}

/// Returns the first part, between two addresses, of a range of at least `len_min` bytes. The
/// ranges are given by start and length, in order.
fn first_part(
    ranges: impl Iterator<Item = (u64, u64)>,
    at: u64,
    end: u64,
    len_min: u64,
) -> Option<Range<u64>> {
    let parts = ranges.filter(|(_, len)| *len >= len_min);
    let mut parts = parts.map(|(start, len)| start.max(at)..(start + len).min(end));
    parts.find(|part| part.start < part.end)
}
