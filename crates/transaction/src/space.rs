//! The space of a writable filesystem: block groups, reservations, chunks; all in memory.
//!
//! | file                          | holds                                               |
//! |-------------------------------|-----------------------------------------------------|
//! | `space_info`                  | totals by kind, and which reservation is granted    |
//! | `reserve`, `tickets`          | reservations, and the queue of those that must wait |
//! | `flush`                       | the steps that free space for a reservation         |
//! | `block_group`, `block_groups` | one block group; all of them, and their changes     |
//! | `ranges`                      | disjoint ranges, by address and by size             |
//! | `chunk`                       | free space of the devices, new chunks               |
//! | `load`, `damage`              | reading space from the trees, and checking it       |
//! | `device_extents`              | whether the device tree agrees with the chunks      |
//! | `log_extents`                 | space that a pending log refers to                  |
//! | `nocow`                       | extents that are being overwritten in place         |
//! | `file_data`                   | space, checksums and references of file data        |
//! | `high_water`, `discard`       | the largest reservation; discard of freed space     |
//! | `resize`                      | the size of the device                              |
//!
//! 1. Nothing here edits a tree. A commit asks for what it must write: changed block groups, new
//!    chunks.
//! 2. A range is allocated (`allocate_*`), and then either given back, if it was never written and
//!    no tree refers to it, or pinned, and free when the superblock that no longer needs it is
//!    durable ([`Space::take_pinned`], [`Space::unpin`]).
//! 3. `used` of a block group counts extent items, not allocations: [`Space::account`].
//! 4. A granted reservation is backed by space. If that is unallocated space of the device, the
//!    allocation that needs it makes the chunk, under whatever locks are held: in memory, to be
//!    written with the others that [`Space::take_planned`] returns.
//! 5. Only [`Space::load`], [`Space::ensure_loaded`] and the allocation of space for a log do
//!    reads; they are called with no lock held.
//! 6. All groups are under one lock, of the class of block groups, which is held for a few look-ups
//!    at a time. Counters have a lock of their own, taken inside it.

pub(crate) mod discard;
pub(crate) mod file_data;
pub(crate) mod flush;
pub(crate) mod high_water;
pub(crate) mod tickets;
mod trim;

mod block_group;
mod block_groups;
mod chunk;
mod damage;
mod device_extents;
mod load;
mod log_extents;
mod nocow;
mod ranges;
mod reserve;
mod resize;
mod space_info;

use std::thread;

use userbtrfs_btree::NoSpace;
use userbtrfs_format::{BlockGroupFlags, BlockGroupItem, Chunk, IncompatFlags, Logical, TreeId};
use userbtrfs_sync::{Arc, Class, Mutex, MutexGuard};
use userbtrfs_volume::Volume;

pub use block_groups::Pinned;
pub use chunk::{CHUNK_LEN_MIN, DEVICE_START, NewChunk};
pub use damage::SpaceDamage;
pub(crate) use load::is_global_tree;
pub use nocow::{NocowExclusion, NocowGuard};
pub use reserve::{FlushHint, Reservation, bytes_for_items};
pub(crate) use space_info::ReservePolicy;
pub use space_info::SpaceKind;

use self::block_groups::BlockGroups;
use self::chunk::DeviceSpace;
use self::load::GroupRange;
use self::nocow::NocowWriters;
use self::space_info::Counters;
use crate::error::Result;
use crate::roots::TreeRoots;
use crate::units::SECTOR;

/// If fewer blocks are free for the chunk tree, a chunk is made for it first, if possible.
const SYSTEM_BLOCKS: u64 = 16;
/// If fewer blocks are, no other chunk is made: the path to its items might find no blocks.
const SYSTEM_BLOCKS_MIN: u64 = 6;

/// Space of one kind, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The bytes that block groups can hold.
    pub total: u64,
    /// The allocated bytes.
    pub allocated: u64,
    /// The bytes that are freed but not free yet.
    pub pinned: u64,
    /// The reserved bytes.
    pub reserved: u64,
    /// The part of the reserved bytes that is for content of files.
    pub reserved_for_data: u64,
    /// The bytes that are kept for removals and commits.
    pub global: u64,
}

/// Chunks, as a superblock lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChunks {
    /// The system chunks, by address.
    pub system: Vec<Chunk>,
    /// The bytes of the device that all chunks take.
    pub device_used: u64,
}

/// The space of a filesystem.
pub struct Space {
    volume: Arc<Volume>,
    nodesize: u32,
    block_groups: Mutex<BlockGroups>,
    counters: Arc<Counters>,
    held: NocowWriters,
}

impl Space {
    /// Reads the block groups. Their free space is not read yet.
    pub fn load(tree_roots: &TreeRoots) -> Result<Self> {
        let volume = Arc::clone(tree_roots.store().volume());
        let superblock = volume.superblock();
        let nodesize = superblock.nodesize;
        let mixed = superblock.incompat.contains(IncompatFlags::MIXED_GROUPS);
        let (root, expected) = volume.chunk_root();
        let chunk_tree_uuid = volume.read_block(root, &expected)?.header().chunk_tree_uuid;
        let device = DeviceSpace::new(&superblock.device, chunk_tree_uuid);
        let counters = Arc::new(Counters::new(mixed, u64::from(nodesize)));
        let mut block_groups =
            BlockGroups::new(u64::from(nodesize), mixed, device, Arc::clone(&counters));
        let chunks = volume.chunks();
        let used = load::block_groups(tree_roots, &chunks)?;
        for (chunk, used) in chunks.iter().zip(used) {
            block_groups.add_existing(chunk.clone(), used)?;
        }
        device_extents::check(tree_roots, &chunks)?;
        for (kind, name) in [(SpaceKind::System, "system"), (SpaceKind::Metadata, "metadata")] {
            if counters.space_info(kind).totals.total == 0 {
                return Err(SpaceDamage::NoGroupOf(name).into());
            }
        }
        counters.global_trees_grew(load::bytes_of_global_trees(tree_roots)?);
        let block_groups = Mutex::new(Class::BlockGroup, block_groups);
        Ok(Self { volume, nodesize, block_groups, counters, held: NocowWriters::new() })
    }

    /// Reads the free space of further block groups until `bytes` bytes of a kind are free, or
    /// none is left to read. No lock is held, and neither the extent tree nor the free space tree
    /// is being edited.
    pub fn ensure_loaded(&self, tree_roots: &TreeRoots, kind: SpaceKind, bytes: u64) -> Result<()> {
        while self.counters.space_info(kind).totals.free < bytes
            && self.load_next(tree_roots, kind)?
        {}
        Ok(())
    }

    /// Reads the free space of one more block group, as [`Space::ensure_loaded`] does; returns true
    /// if there was one.
    pub fn load_next(&self, tree_roots: &TreeRoots, kind: SpaceKind) -> Result<bool> {
        let next = self.block_groups.lock().to_load(kind).map(|group| {
            let wanted =
                GroupRange { start: group.start(), len: group.chunk.len, unit: group.unit() };
            (wanted, group.version())
        });
        let Some((wanted, version)) = next else { return Ok(false) };
        let free = load::free_ranges(tree_roots, wanted)?;
        self.block_groups.lock().load(wanted.start, version, free)?;
        Ok(true)
    }

    /// Allocates a tree block, after the one allocated last, or in the group of `near` if there is
    /// none.
    pub fn allocate_block(&self, kind: SpaceKind, near: Logical) -> Result<Logical, NoSpace> {
        let found = self.allocate(kind, u64::from(self.nodesize), near)?;
        if kind == SpaceKind::Metadata && self.is_mixed() {
            self.counters.trees_grew(found.1);
        }
        assert!(found.0.is_aligned(self.nodesize), "so that no block crosses a stripe");
        Ok(found.0)
    }

    /// Allocates at most `len_max` and at least `len_min` bytes of data, in whole sectors, in
    /// existing block groups whose free space is loaded: see [`Space::load_next`] and
    /// [`Space::make_data_chunk`].
    pub fn allocate_data(&self, len_max: u64, len_min: u64) -> Result<(Logical, u64), NoSpace> {
        let (max, min) = sectors(len_max, len_min)?;
        self.block_groups.lock().allocate(SpaceKind::Data, max, min, None).ok_or(NoSpace)
    }

    /// Like [`Space::allocate_data`], right behind the last allocation; at least `len_good` bytes,
    /// unless that fills a block group.
    pub fn allocate_data_behind(
        &self,
        len_max: u64,
        len_good: u64,
        len_min: u64,
    ) -> Result<(Logical, u64), NoSpace> {
        let (max, min) = sectors(len_max, len_min)?;
        let (_, good) = sectors(len_max, len_good)?;
        self.block_groups.lock().allocate_behind(SpaceKind::Data, max, good, min).ok_or(NoSpace)
    }

    /// Frees a range at once that was never written and that no tree refers to.
    pub fn give_back(&self, logical: Logical, len: u64) -> Result<()> {
        Ok(self.block_groups.lock().give_back(logical, len)?)
    }

    /// Pins a range that the running transaction freed, and that the last one still refers to.
    pub fn pin(&self, logical: Logical, len: u64) -> Result<()> {
        Ok(self.block_groups.lock().pin(logical, len)?)
    }

    /// Holds an extent that is about to be overwritten in place: if it is freed, it does not become
    /// free before the guard is dropped. The caller is in a transaction in which it is in use.
    pub fn hold(&self, root: TreeId, logical: Logical, len: u64) -> Option<NocowGuard> {
        self.held.hold(root, logical, len)
    }

    /// Excludes that extents of a subvolume are held, and waits until none is.
    pub fn exclude_nocow(&self, root: TreeId) -> NocowExclusion {
        self.held.exclude(root)
    }

    /// Returns the part that may become free: held ranges stay pinned, for the next commit.
    pub fn without_held(&self, mut pinned: Pinned) -> Pinned {
        let kept = pinned.split_off(|ranges| self.held.split_off(ranges));
        self.block_groups.lock().keep_pinned(kept);
        pinned
    }

    /// Takes all that is pinned, for the commit that will free it. Later pins are for the next
    /// commit.
    pub fn take_pinned(&self) -> Pinned {
        self.block_groups.lock().take_pinned()
    }

    /// Completes a commit whose superblock is durable: pinned ranges are free, new groups are no
    /// longer new, and the space of removed ones is free on the device.
    pub fn unpin(&self, pinned: Pinned) {
        for chunk in pinned.removed() {
            self.volume.remove_chunk(chunk.logical);
        }
        self.block_groups.lock().unpin(pinned);
    }

    /// Counts an extent item of `len` bytes that was added to the extent tree, or removed from it.
    pub fn account(&self, logical: Logical, len: u64, added: bool) -> Result<()> {
        Ok(self.block_groups.lock().account(logical, len, added)?)
    }

    /// Takes the block groups whose items changed since the last call: start, length, item.
    pub fn take_changed_groups(&self) -> Vec<(Logical, u64, BlockGroupItem)> {
        self.block_groups.lock().take_changed()
    }

    /// Takes the chunks that allocations made since the last call; they are to be written like
    /// those of [`Space::plan_chunk`].
    pub fn take_planned(&self) -> Vec<NewChunk> {
        self.block_groups.lock().take_planned()
    }

    /// Returns the chunks for the superblock: all that are in the trees, and none that was made
    /// since [`Space::take_planned`], which may happen at any time.
    pub fn listed_chunks(&self) -> ListedChunks {
        let block_groups = self.block_groups.lock();
        let chunks = || block_groups.listed().map(|group| &group.chunk);
        let is_system = |chunk: &&Chunk| chunk.flags.contains(BlockGroupFlags::SYSTEM);
        ListedChunks {
            system: chunks().filter(is_system).cloned().collect(),
            device_used: chunks().map(|chunk| chunk.len * chunk.stripes.len() as u64).sum(),
        }
    }

    /// Returns all chunks by address, each with the bytes of its block group that have extent
    /// items.
    pub fn chunk_usage(&self) -> Vec<(Chunk, u64)> {
        let block_groups = self.block_groups.lock();
        block_groups.all().map(|group| (group.chunk.clone(), group.used)).collect()
    }

    /// Records that root items were written in which the global reserve trees are larger by `by`
    /// bytes.
    pub fn global_trees_grew(&self, by: i64) {
        self.counters.global_trees_grew(by);
    }

    /// Returns the bytes that have extent items: the superblock's `bytes_used`.
    pub fn bytes_used(&self) -> u64 {
        self.block_groups.lock().bytes_used()
    }

    /// Returns the bytes of the device that chunks take: DEV_ITEM's `bytes_used`.
    pub fn device_used(&self) -> u64 {
        self.block_groups.lock().device_used()
    }

    /// Returns the most bytes of data that chunks could hold that are not made yet.
    pub fn data_in_new_chunks(&self) -> u64 {
        self.block_groups.lock().data_in_new_chunks()
    }

    /// Like [`Space::data_in_new_chunks`], with the space of preallocated chunks of metadata:
    /// nearly all of that is released when the changes are merged that need it.
    pub fn unallocated_for_data(&self) -> u64 {
        self.block_groups.lock().unallocated_for_data()
    }

    /// Returns true if there are allocations in block groups that neither a durable superblock
    /// refers to nor that of the previous transaction.
    pub fn draws_on_new_groups(&self) -> bool {
        self.block_groups.lock().draws_on_new()
    }

    /// Returns true if data and metadata share block groups.
    pub fn is_mixed(&self) -> bool {
        self.counters.counted_as(SpaceKind::Data) == SpaceKind::Metadata
    }

    /// Returns the usage of a kind. Data and metadata in mixed groups are counted as one.
    pub fn usage(&self, kind: SpaceKind) -> Usage {
        let space_info = self.counters.space_info(kind);
        let allocated = space_info.allocated();
        let global = space_info.global();
        let total = space_info.totals.total;
        let pinned = space_info.totals.pinned;
        let reserved = space_info.reserved;
        let reserved_for_data = space_info.reserved_for_data;
        Usage { total, allocated, pinned, reserved, reserved_for_data, global }
    }

    /// Reserves metadata.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, FlushHint> {
        self.reserve_with_policy(SpaceKind::Metadata, bytes, ReservePolicy::Normal)
    }

    /// Reserves metadata for a change that frees space in the end; may use most of the global
    /// reserve.
    pub fn reserve_for_removal(&self, bytes: u64) -> Result<Reservation, FlushHint> {
        self.reserve_with_policy(SpaceKind::Metadata, bytes, ReservePolicy::Steal)
    }

    /// Returns true if references are expected to be dropped.
    pub(crate) fn expects_any(&self) -> bool {
        self.counters.space_info(SpaceKind::Metadata).expected > 0
    }

    /// Returns a reservation of no bytes for references that a change will drop: until it is
    /// dropped, all other reservations leave to the commit what that takes for these references.
    pub(crate) fn expect(&self, references: u64) -> Reservation {
        Reservation::of_references(&self.counters, references)
    }

    /// Returns the metadata that a commit takes beyond what a reservation leaves to it, for
    /// `references` references besides the expected ones, and for `others` bytes of other items.
    pub(crate) fn commit_overhead(
        &self,
        references: u64,
        others: u64,
        policy: ReservePolicy,
    ) -> u64 {
        self.counters.space_info(SpaceKind::Metadata).commit_overhead(references, others, policy)
    }

    /// Reserves space for data.
    pub fn reserve_data(&self, bytes: u64) -> Result<Reservation, FlushHint> {
        self.reserve_with_policy(SpaceKind::Data, bytes, ReservePolicy::Normal)
            .map(Reservation::for_data)
    }

    /// Makes a chunk in memory: its block group can be used at once. The returned chunk must be
    /// written before the superblock of the running transaction.
    pub fn plan_chunk(&self, kind: SpaceKind) -> Result<NewChunk, NoSpace> {
        self.make_chunk(&mut self.block_groups.lock(), kind)
    }

    /// Makes a chunk for data, as allocations make theirs; returns true if there was space. The
    /// caller is in the running transaction, whose commit writes it.
    pub fn make_data_chunk(&self) -> bool {
        let mut block_groups = self.block_groups.lock();
        let made = self.make_chunk(&mut block_groups, SpaceKind::Data);
        made.map(|chunk| block_groups.keep_planned(chunk)).is_ok()
    }

    /// Like [`Space::make_data_chunk`], for an allocation of `len` bytes in one piece that smaller
    /// pieces can replace: it leaves space for the chunks of others.
    pub(crate) fn make_spare_data_chunk(&self, len: u64) -> bool {
        let is_spare = self.block_groups.lock().has_spare_data_chunk(len);
        is_spare && self.make_data_chunk()
    }

    /// Removes an empty block group, and returns the chunk whose items are to be removed; `None` if
    /// it is not empty, or if a reservation relies on it. Its device space is free after the
    /// commit.
    pub fn remove_group(&self, start: Logical) -> Option<Chunk> {
        self.block_groups.lock().remove(start)
    }

    /// Returns the block groups that can be removed: empty, old, and not needed by their kind.
    pub fn empty_groups(&self) -> Vec<Logical> {
        self.block_groups.lock().empty()
    }

    /// Returns true if block groups were removed whose device space becomes free with a commit in
    /// progress.
    pub fn has_groups_being_removed(&self) -> bool {
        self.block_groups.lock().has_groups_being_removed()
    }

    /// Returns true if the next commit frees anything that is pinned now.
    pub fn has_pinned(&self) -> bool {
        let mut ranges = self.block_groups.lock().pinned_ranges().to_vec();
        let _kept = self.held.split_off(&mut ranges);
        !ranges.is_empty()
    }

    /// Records that the filesystem was aborted: reservations and pins have no meaning any more.
    pub fn abort(&self) {
        self.counters.abort();
    }

    /// Allocates `len` bytes, in a new chunk if need be.
    fn allocate(
        &self,
        kind: SpaceKind,
        len: u64,
        near: Logical,
    ) -> Result<(Logical, u64), NoSpace> {
        let mut block_groups = self.block_groups.lock();
        if let Some(found) = block_groups.allocate(kind, len, len, Some(near)) {
            return Ok(found);
        }
        let chunk = self.make_chunk(&mut block_groups, kind)?;
        block_groups.keep_planned(chunk);
        block_groups.allocate(kind, len, len, Some(near)).ok_or(NoSpace)
    }

    /// Makes a chunk, if the chunk tree will have blocks for its items.
    fn make_chunk(
        &self,
        block_groups: &mut MutexGuard<'_, BlockGroups>,
        kind: SpaceKind,
    ) -> Result<NewChunk, NoSpace> {
        block_groups.release_preallocated();
        if kind != SpaceKind::System && self.system_blocks(block_groups) < SYSTEM_BLOCKS_MIN {
            return Err(NoSpace);
        }
        let new = block_groups.make_chunk(kind).ok_or(NoSpace)?;
        let added = self.volume.add_chunk(new.chunk.clone());
        added.expect("a chunk made here lies on the device and overlaps no other");
        Ok(new)
    }

    /// Returns the number of free blocks for the chunk tree, after making a chunk for more if they
    /// are few.
    fn system_blocks(&self, block_groups: &mut MutexGuard<'_, BlockGroups>) -> u64 {
        if self.free_blocks(SpaceKind::System) < SYSTEM_BLOCKS
            && let Ok(chunk) = self.make_chunk(block_groups, SpaceKind::System)
        {
            block_groups.keep_planned(chunk);
        }
        self.free_blocks(SpaceKind::System)
    }

    fn free_blocks(&self, kind: SpaceKind) -> u64 {
        self.counters.space_info(kind).totals.free / u64::from(self.nodesize)
    }

    /// Returns the bytes that a reservation of `bytes` bytes lacks even if it takes all that is
    /// known to be free or can be made.
    pub(crate) fn lack(&self, kind: SpaceKind, bytes: u64, policy: ReservePolicy) -> u64 {
        let space_info = self.counters.space_info(kind);
        let unmade = match self.counters.counted_as(kind) {
            SpaceKind::Data => self.data_in_new_chunks(),
            SpaceKind::Metadata | SpaceKind::System => 0,
        };
        let within_reach = space_info.backed() + space_info.totals.unloaded + unmade;
        space_info.needed(bytes, policy).saturating_sub(within_reach)
    }

    pub(crate) fn reserve_with_policy(
        &self,
        kind: SpaceKind,
        bytes: u64,
        policy: ReservePolicy,
    ) -> Result<Reservation, FlushHint> {
        let kind = self.counters.counted_as(kind);
        if kind == SpaceKind::Data {
            return self.reserve_in_existing_groups(bytes);
        }
        let attempt = || Reservation::with_policy(&self.counters, kind, bytes, policy);
        let short = match attempt() {
            Ok(reservation) => return Ok(reservation),
            Err(short) => short,
        };
        if short.totals.unloaded > 0 {
            return Err(FlushHint::Unloaded);
        }
        let mut block_groups = self.block_groups.lock();
        // Device space is set aside until it is enough.
        while self.system_blocks(&mut block_groups) >= SYSTEM_BLOCKS
            && block_groups.preallocate_chunk()
        {
            if let Ok(reservation) = attempt() {
                return Ok(reservation);
            }
        }
        block_groups.release_preallocated();
        attempt().map_err(|space_info| space_info.shortage(bytes, policy, false))
    }

    /// Reserves data in existing block groups: making chunks is left to the caller, which may have
    /// to read first. No hint suggests either if it would not be enough.
    fn reserve_in_existing_groups(&self, bytes: u64) -> Result<Reservation, FlushHint> {
        let kind = SpaceKind::Data;
        let policy = ReservePolicy::Normal;
        let attempt = || Reservation::with_policy(&self.counters, kind, bytes, policy);
        let short = match attempt() {
            Ok(reservation) => return Ok(reservation),
            Err(short) => short,
        };
        let mut block_groups = self.block_groups.lock();
        block_groups.release_preallocated();
        let unmade = block_groups.data_in_new_chunks();
        let within_reach = short.backed() + short.totals.unloaded + unmade;
        if within_reach >= short.needed(bytes, policy) {
            attempt().map_err(|space_info| {
                space_info.shortage(bytes, policy, block_groups.can_make_chunk(kind))
            })
        } else {
            Err(short.shortage_for_good(bytes, policy))
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let settled = thread::panicking() || self.counters.is_all_released();
        assert!(settled, "every reservation is used or given back before the filesystem closes");
    }
}

/// Returns the most and the least bytes that are wanted, in whole sectors.
fn sectors(len_max: u64, len_min: u64) -> Result<(u64, u64), NoSpace> {
    let max = len_max / SECTOR * SECTOR;
    let min = len_min.max(1).next_multiple_of(SECTOR);
    if max < min { Err(NoSpace) } else { Ok((max, min)) }
}

#[cfg(test)]
mod tests;
