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
//! | `log_extents`                 | space that a pending log names                      |
//! | `nocow`                       | extents that are being overwritten in place         |
//! | `file_data`                   | space, checksums and references of file data        |
//! | `high_water`, `discard`       | the largest reservation; discard of freed space     |
//!
//! 1. Nothing here edits a tree. What a commit must write it asks for: changed block groups, new
//!    chunks.
//! 2. A range is allocated (`allocate_*`), and then either given back, if it was never written
//!    and no tree names it, or pinned, and free when the superblock that no longer needs it is
//!    durable ([`Space::take_pinned`], [`Space::unpin`]).
//! 3. `used` of a block group counts extent items, not allocations: [`Space::account`].
//! 4. A reservation granted is space found. Where it rests on room of the device, the chunk is
//!    made by the allocation that needs it, under whatever locks are held: in memory, and it is
//!    written with the others that [`Space::take_planned`] gives.
//! 5. Only [`Space::load`], [`Space::ensure_loaded`] and what takes space for a log read; they are
//!    called with no lock held.
//! 6. All groups are under one lock, of the class of block groups: what is done under it is a few
//!    look-ups. Counters have a lock of their own, taken inside it.

pub(crate) mod discard;
pub(crate) mod file_data;
pub(crate) mod flush;
pub(crate) mod high_water;
pub(crate) mod tickets;

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
mod space_info;

use std::thread;

use userbtrfs_btree::NoSpace;
use userbtrfs_format::{
    BlockGroupFlags, BlockGroupItem, Chunk, IncompatFlags, Logical, SECTOR_SIZE,
};
use userbtrfs_sync::{Arc, Class, Mutex, MutexGuard};
use userbtrfs_volume::Volume;

pub use block_groups::Pinned;
pub use chunk::{CHUNK_LEN_MIN, DEVICE_START, NewChunk};
pub use damage::SpaceDamage;
pub(crate) use load::is_of_books;
pub use nocow::NocowGuard;
pub use reserve::{FlushHint, Reservation, bytes_for_items};
pub(crate) use space_info::ReservePolicy;
pub use space_info::SpaceKind;

use self::block_groups::BlockGroups;
use self::chunk::DeviceSpace;
use self::load::Wanted;
use self::nocow::NocowWriters;
use self::space_info::Counters;
use crate::error::Result;
use crate::roots::TreeRoots;

/// What chunks and their stripes on devices are aligned to, and what is kept free around a mirror
/// of the superblock.
const STRIPE_LEN: u64 = 64 << 10;

/// If fewer blocks are free for the chunk tree, more room is made for it first, if that can be.
const SYSTEM_BLOCKS: u64 = 16;
/// If fewer are, no chunk is made: the path to its items might find no blocks.
const SYSTEM_BLOCKS_MIN: u64 = 6;

/// Space of one kind, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// All that block groups can hold.
    pub total: u64,
    /// What is allocated.
    pub allocated: u64,
    /// What is freed and not yet free.
    pub pinned: u64,
    /// What reservations hold.
    pub reserved: u64,
    /// The part of that which is reserved for content of files.
    pub reserved_for_data: u64,
    /// What is kept for removals and commits.
    pub global: u64,
}

/// Chunks, as a superblock lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChunks {
    /// Those of the system, by address.
    pub system: Vec<Chunk>,
    /// Bytes of the device that all of them hold.
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
    /// Reads which block groups there are. Their free space is not read yet.
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
            block_groups.enter(chunk.clone(), used)?;
        }
        device_extents::check(tree_roots, &chunks)?;
        for (kind, name) in [(SpaceKind::System, "system"), (SpaceKind::Metadata, "metadata")] {
            if counters.space_info(kind).tally.total == 0 {
                return Err(SpaceDamage::NoGroupOf(name).into());
            }
        }
        counters.books_grew(load::bytes_of_books(tree_roots)?);
        let block_groups = Mutex::new(Class::BlockGroup, block_groups);
        Ok(Self { volume, nodesize, block_groups, counters, held: NocowWriters::new() })
    }

    /// Reads the free space of further block groups until so many bytes of a kind are at hand, or
    /// none is left to read. No lock is held, and no tree of the books is being edited.
    pub fn ensure_loaded(&self, tree_roots: &TreeRoots, kind: SpaceKind, bytes: u64) -> Result<()> {
        while self.counters.space_info(kind).tally.at_hand < bytes
            && self.load_next(tree_roots, kind)?
        {}
        Ok(())
    }

    /// Reads the free space of one more block group, as [`Space::ensure_loaded`] does; says
    /// whether there was one.
    pub fn load_next(&self, tree_roots: &TreeRoots, kind: SpaceKind) -> Result<bool> {
        let next = self.block_groups.lock().to_load(kind).map(|group| {
            let wanted = Wanted { start: group.start(), len: group.chunk.len, unit: group.unit() };
            (wanted, group.version())
        });
        let Some((wanted, version)) = next else { return Ok(false) };
        let free = load::free_ranges(tree_roots, wanted)?;
        self.block_groups.lock().load(wanted.start, version, free)?;
        Ok(true)
    }

    /// A place for a tree block, after the one allocated last; in the group of `near` where none
    /// was.
    pub fn allocate_block(&self, kind: SpaceKind, near: Logical) -> Result<Logical, NoSpace> {
        let found = self.allocate(kind, u64::from(self.nodesize), near)?;
        if kind == SpaceKind::Metadata && self.is_mixed() {
            self.counters.trees_grew(found.1);
        }
        debug_assert!(found.0.is_aligned(self.nodesize), "so that no block crosses a stripe");
        Ok(found.0)
    }

    /// A place for at most `len_max` and at least `len_min` bytes of data, in whole sectors, in
    /// the block groups that are there and known: see [`Space::load_next`] and
    /// [`Space::make_data_chunk`].
    pub fn allocate_data(&self, len_max: u64, len_min: u64) -> Result<(Logical, u64), NoSpace> {
        let (max, min) = sectors(len_max, len_min)?;
        self.block_groups.lock().allocate(SpaceKind::Data, max, min, None).ok_or(NoSpace)
    }

    /// The same, right behind what was allocated last; at least `len_good` bytes, unless that
    /// fills a block group.
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

    /// A range that was never written and that no tree names is free at once.
    pub fn give_back(&self, logical: Logical, len: u64) -> Result<()> {
        Ok(self.block_groups.lock().give_back(logical, len)?)
    }

    /// A range that the running transaction freed, and that the last one still names.
    pub fn pin(&self, logical: Logical, len: u64) -> Result<()> {
        Ok(self.block_groups.lock().pin(logical, len)?)
    }

    /// Holds an extent that is about to be overwritten in place: though it is freed, it does not
    /// become free before it is let go. The caller is in a transaction in which it is in use.
    pub fn hold(&self, logical: Logical, len: u64) -> NocowGuard {
        self.held.hold(logical, len)
    }

    /// What of this may become free: what is held stays pinned, for the next commit.
    pub fn without_held(&self, mut pinned: Pinned) -> Pinned {
        let kept = pinned.split_off(|ranges| self.held.split_off(ranges));
        self.block_groups.lock().keep_pinned(kept);
        pinned
    }

    /// All that is pinned, for the commit that will make it free. What is pinned from now on is
    /// the next one's.
    pub fn take_pinned(&self) -> Pinned {
        self.block_groups.lock().take_pinned()
    }

    /// The superblock is durable: what was pinned is free, what was made is old, what was removed
    /// is room on the device.
    pub fn unpin(&self, pinned: Pinned) {
        for chunk in pinned.removed() {
            self.volume.remove_chunk(chunk.logical);
        }
        self.block_groups.lock().unpin(pinned);
    }

    /// An extent item of so many bytes was added to the extent tree, or removed from it.
    pub fn account(&self, logical: Logical, len: u64, added: bool) -> Result<()> {
        Ok(self.block_groups.lock().account(logical, len, added)?)
    }

    /// The block groups whose items changed since the last call: start, length, item.
    pub fn take_changed_groups(&self) -> Vec<(Logical, u64, BlockGroupItem)> {
        self.block_groups.lock().take_changed()
    }

    /// The chunks that allocations made since the last call; they are to be written as those of
    /// [`Space::plan_chunk`] are.
    pub fn take_planned(&self) -> Vec<NewChunk> {
        self.block_groups.lock().take_planned()
    }

    /// What the superblock says of chunks: all that are in the trees, and none that was made since
    /// [`Space::take_planned`]; that may happen at any time.
    pub fn listed_chunks(&self) -> ListedChunks {
        let block_groups = self.block_groups.lock();
        let chunks = || block_groups.listed().map(|group| &group.chunk);
        let is_system = |chunk: &&Chunk| chunk.flags.contains(BlockGroupFlags::SYSTEM);
        ListedChunks {
            system: chunks().filter(is_system).cloned().collect(),
            device_used: chunks().map(|chunk| chunk.len * chunk.stripes.len() as u64).sum(),
        }
    }

    /// Root items were written, and say that the trees of the books are so many bytes larger, or
    /// smaller: those that live on the global reserve.
    pub fn books_grew(&self, by: i64) {
        self.counters.books_grew(by);
    }

    /// Bytes that have extent items: the superblock's `bytes_used`.
    pub fn bytes_used(&self) -> u64 {
        self.block_groups.lock().bytes_used()
    }

    /// Bytes of the device that chunks hold: DEV_ITEM's `bytes_used`.
    pub fn device_used(&self) -> u64 {
        self.block_groups.lock().device_used()
    }

    /// Bytes of data at most that chunks could hold which are not made yet.
    pub fn data_room(&self) -> u64 {
        self.block_groups.lock().data_room()
    }

    /// As [`Space::data_room`], with the room that is set aside for chunks of metadata: nearly all
    /// of that comes back when the changes are merged that it was set aside for.
    pub fn unallocated_for_data(&self) -> u64 {
        self.block_groups.lock().unallocated_for_data()
    }

    /// Whether something stands in block groups that neither a durable superblock names nor the one
    /// of the transaction before.
    pub fn draws_on_new_groups(&self) -> bool {
        self.block_groups.lock().draws_on_new()
    }

    /// Whether data and metadata share block groups.
    pub fn is_mixed(&self) -> bool {
        self.counters.pool_of(SpaceKind::Data) == SpaceKind::Metadata
    }

    /// What there is of a kind. Data and metadata in mixed groups are counted as one.
    pub fn usage(&self, kind: SpaceKind) -> Usage {
        let space_info = self.counters.space_info(kind);
        let (allocated, global) = (space_info.allocated(), space_info.global());
        let (total, pinned) = (space_info.tally.total, space_info.tally.pinned);
        let (reserved, reserved_for_data) = (space_info.reserved, space_info.reserved_for_data);
        Usage { total, allocated, pinned, reserved, reserved_for_data, global }
    }

    /// Reserves metadata.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, FlushHint> {
        self.policy(SpaceKind::Metadata, bytes, ReservePolicy::Ordinary)
    }

    /// Reserves metadata for what frees space in the end; may use most of the global reserve.
    pub fn reserve_for_removal(&self, bytes: u64) -> Result<Reservation, FlushHint> {
        self.policy(SpaceKind::Metadata, bytes, ReservePolicy::Removal)
    }

    /// Whether references are expected to be dropped.
    pub(crate) fn expects_any(&self) -> bool {
        self.counters.space_info(SpaceKind::Metadata).expected > 0
    }

    /// References that a change will drop, in a reservation of no bytes: until it goes, what the
    /// commit takes for them is left to it by all who reserve.
    pub(crate) fn expect(&self, references: u64) -> Reservation {
        Reservation::of_references(&self.counters, references)
    }

    /// What a commit takes of metadata beyond what a claim leaves to it, for so many references
    /// besides those expected, and for other items of so many bytes.
    pub(crate) fn owed(&self, references: u64, others: u64, policy: ReservePolicy) -> u64 {
        self.counters.space_info(SpaceKind::Metadata).owed(references, others, policy)
    }

    /// Reserves room for data.
    pub fn reserve_data(&self, bytes: u64) -> Result<Reservation, FlushHint> {
        self.policy(SpaceKind::Data, bytes, ReservePolicy::Ordinary).map(Reservation::for_data)
    }

    /// Makes a chunk in memory: its block group can be used at once. What is returned must be
    /// written before the superblock of the running transaction.
    pub fn plan_chunk(&self, kind: SpaceKind) -> Result<NewChunk, NoSpace> {
        self.make_chunk(&mut self.block_groups.lock(), kind)
    }

    /// Makes a chunk for data, as allocations make theirs; says whether there was room. The caller
    /// is in the running transaction, whose commit writes it.
    pub fn make_data_chunk(&self) -> bool {
        let mut block_groups = self.block_groups.lock();
        let made = self.make_chunk(&mut block_groups, SpaceKind::Data);
        made.map(|chunk| block_groups.keep_planned(chunk)).is_ok()
    }

    /// Takes an empty block group out, and gives the chunk whose items are to be removed; nothing
    /// if it is not empty, or somebody relies on it. Its room is free after the commit.
    pub fn remove_group(&self, start: Logical) -> Option<Chunk> {
        self.block_groups.lock().remove(start)
    }

    /// Block groups that can be removed: empty, old, and not missed by their kind.
    pub fn empty_groups(&self) -> Vec<Logical> {
        self.block_groups.lock().empty()
    }

    /// Whether block groups were taken out of which the room becomes free with a commit that is on
    /// its way.
    pub fn has_leaving_groups(&self) -> bool {
        self.block_groups.lock().has_leaving()
    }

    /// Whether the next commit makes anything free that is pinned by now.
    pub fn has_pinned(&self) -> bool {
        let mut ranges = self.block_groups.lock().pinned_ranges().to_vec();
        let _kept = self.held.split_off(&mut ranges);
        !ranges.is_empty()
    }

    /// The filesystem was aborted: reservations and pins mean nothing any more.
    pub fn abort(&self) {
        self.counters.abort();
    }

    /// Allocates `len` bytes, where need be in a chunk made for that.
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

    /// Makes a chunk, if the chunk tree will have blocks to list it.
    fn make_chunk(
        &self,
        block_groups: &mut MutexGuard<'_, BlockGroups>,
        kind: SpaceKind,
    ) -> Result<NewChunk, NoSpace> {
        block_groups.drop_promises();
        if kind != SpaceKind::System && self.system_blocks(block_groups) < SYSTEM_BLOCKS_MIN {
            return Err(NoSpace);
        }
        let new = block_groups.make_chunk(kind).ok_or(NoSpace)?;
        let added = self.volume.add_chunk(new.chunk.clone());
        added.expect("a chunk made here lies on the device and overlaps no other");
        Ok(new)
    }

    /// How many blocks are free for the chunk tree, after making a chunk for more if they are few.
    fn system_blocks(&self, block_groups: &mut MutexGuard<'_, BlockGroups>) -> u64 {
        if self.free_blocks(SpaceKind::System) < SYSTEM_BLOCKS
            && let Ok(chunk) = self.make_chunk(block_groups, SpaceKind::System)
        {
            block_groups.keep_planned(chunk);
        }
        self.free_blocks(SpaceKind::System)
    }

    fn free_blocks(&self, kind: SpaceKind) -> u64 {
        self.counters.space_info(kind).tally.at_hand / u64::from(self.nodesize)
    }

    /// What is lacking for a claim and so much more, when all that is known to be free or can be
    /// made is taken.
    pub(crate) fn lack(&self, kind: SpaceKind, bytes: u64, policy: ReservePolicy) -> u64 {
        let space_info = self.counters.space_info(kind);
        let room = match self.counters.pool_of(kind) {
            SpaceKind::Data => self.data_room(),
            SpaceKind::Metadata | SpaceKind::System => 0,
        };
        let within_reach = space_info.backed() + space_info.tally.unloaded + room;
        space_info.needed(bytes, policy).saturating_sub(within_reach)
    }

    pub(crate) fn policy(
        &self,
        kind: SpaceKind,
        bytes: u64,
        policy: ReservePolicy,
    ) -> Result<Reservation, FlushHint> {
        let kind = self.counters.pool_of(kind);
        if kind == SpaceKind::Data {
            return self.claim_data(bytes);
        }
        let attempt = || Reservation::policy(&self.counters, kind, bytes, policy);
        let short = match attempt() {
            Ok(reservation) => return Ok(reservation),
            Err(short) => short,
        };
        if short.tally.unloaded > 0 {
            return Err(FlushHint::Unloaded);
        }
        let mut block_groups = self.block_groups.lock();
        // Room on the device is set aside until it is enough.
        while self.system_blocks(&mut block_groups) >= SYSTEM_BLOCKS && block_groups.promise() {
            if let Ok(reservation) = attempt() {
                return Ok(reservation);
            }
        }
        block_groups.drop_promises();
        attempt().map_err(|space_info| space_info.shortage(bytes, policy, false))
    }

    /// What block groups have that are there: making chunks is the caller's, who may have to read
    /// first. Neither is asked for where it would not be enough.
    fn claim_data(&self, bytes: u64) -> Result<Reservation, FlushHint> {
        let (kind, policy) = (SpaceKind::Data, ReservePolicy::Ordinary);
        let attempt = || Reservation::policy(&self.counters, kind, bytes, policy);
        let short = match attempt() {
            Ok(reservation) => return Ok(reservation),
            Err(short) => short,
        };
        let mut block_groups = self.block_groups.lock();
        block_groups.drop_promises();
        let room = block_groups.data_room();
        let within_reach = short.backed() + short.tally.unloaded + room;
        match within_reach >= short.needed(bytes, policy) {
            true => attempt().map_err(|space_info| {
                space_info.shortage(bytes, policy, block_groups.has_room(kind))
            }),
            false => Err(short.shortage_for_good(bytes, policy)),
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let settled = thread::panicking() || self.counters.is_settled();
        assert!(settled, "every reservation is used or given back before the filesystem closes");
    }
}

/// The most and the least bytes that are wanted, in whole sectors.
fn sectors(len_max: u64, len_min: u64) -> Result<(u64, u64), NoSpace> {
    let sector = u64::from(SECTOR_SIZE);
    let max = len_max / sector * sector;
    let min = len_min.max(1).next_multiple_of(sector);
    if max < min { Err(NoSpace) } else { Ok((max, min)) }
}

#[cfg(test)]
mod tests;
