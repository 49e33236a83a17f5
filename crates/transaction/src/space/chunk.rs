//! Unallocated space of the device, and the chunks that are made of it.
//!
//! 1. The first MiB of a device is never allocated. Allocations start on 64 KiB.
//! 2. A chunk is small compared to the device, so that the other kinds find space too.

use userbtrfs_format::{
    BlockGroupFlags, BlockGroupItem, Chunk, DeviceExtent, DeviceItem, FIRST_FREE_OBJECTID, Logical,
    Physical, Profile, SECTOR_SIZE, STRIPE_LEN, Stripe, TreeId,
};
use uuid::Uuid;

use super::damage::SpaceDamage;
use super::ranges::FreeRanges;
use super::space_info::SpaceKind;

/// The start of the space for chunks on a device, in bytes.
pub const DEVICE_START: u64 = 1 << 20;
/// The least bytes of a chunk: a smaller one is not worth its items.
pub const CHUNK_LEN_MIN: u64 = 1 << 20;
/// The divisor of the size of the device that results in the largest chunk.
const PART_OF_DEVICE: u64 = 10;
const LARGE_DEVICE: u64 = 50 << 30;

/// A chunk made in memory: the items that must be written before a superblock that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewChunk {
    /// For the chunk tree, and for the superblock's array if it is a system chunk.
    pub chunk: Chunk,
    /// For the device tree: the items, and their addresses on the device.
    pub device_extents: Vec<(Physical, DeviceExtent)>,
    /// For the block group tree, or the extent tree. All of it is free.
    pub group: BlockGroupItem,
}

/// The space of the device that no chunk takes.
#[derive(Debug)]
pub(super) struct DeviceSpace {
    id: u64,
    uuid: Uuid,
    len: u64,
    /// No chunk is made beyond it; space there is not in `free`.
    limit: Option<u64>,
    chunk_tree_uuid: Uuid,
    free: FreeRanges,
    /// The part of the boot area that no chunk holds.
    start: FreeRanges,
}

impl DeviceSpace {
    /// Returns the space of a device without chunks.
    pub(super) fn new(device: &DeviceItem, chunk_tree_uuid: Uuid) -> Self {
        let mut free = FreeRanges::new(STRIPE_LEN);
        let len = device.total_bytes;
        free.insert(DEVICE_START, len.saturating_sub(DEVICE_START)).expect("the first range");
        let mut start = FreeRanges::new(1);
        start.insert(0, len.min(DEVICE_START)).expect("the first range");
        Self { id: device.id, uuid: device.uuid, len, limit: None, chunk_tree_uuid, free, start }
    }

    /// Returns the length of the device.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Keeps new chunks below `limit`.
    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = Some(limit);
        self.apply_limit();
    }

    fn apply_limit(&mut self) {
        if let Some(limit) = self.limit {
            self.free.subtract(limit, self.len.saturating_sub(limit));
        }
    }

    /// Allows chunks up to the end again; `chunks` are all that exist.
    pub(super) fn clear_limit(&mut self, chunks: &[Chunk]) {
        let Some(limit) = self.limit.take() else { return };
        let mut beyond = FreeRanges::new(1);
        beyond.insert(limit, self.len - limit).expect("the first range");
        for chunk in chunks {
            for stripe in &chunk.stripes {
                beyond.subtract(stripe.physical.0, chunk.len);
            }
        }
        for (start, len) in beyond.iter() {
            self.free.insert(start, len).expect("nothing beyond the limit is free");
        }
    }

    /// Sets the length of the device, which is not in the boot area; returns false, without effect,
    /// if a chunk takes space beyond it.
    pub(super) fn set_len(&mut self, len: u64) -> bool {
        assert!(len > DEVICE_START, "the boot area stays as it is");
        if let Some(more) = len.checked_sub(self.len) {
            self.free.insert(self.len, more).expect("there was nothing beyond the end");
        } else {
            let less = self.len - len;
            if !self.free.contains(len, less) {
                return false;
            }
            self.free.subtract(len, less);
        }
        self.len = len;
        true
    }

    /// Returns the bytes that no chunk takes and that a chunk could.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free.usable()
    }

    /// Returns the ranges that no chunk takes, start and length, by offset.
    pub(super) fn free_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.free.iter()
    }

    /// Like `free_bytes`, but 0 if they are not enough for any chunk.
    pub(super) fn chunk_bytes(&self) -> u64 {
        if self.free.largest_free() < CHUNK_LEN_MIN { 0 } else { self.free.usable() }
    }

    /// Takes the stripes of a chunk that exists.
    pub(super) fn occupy(&mut self, chunk: &Chunk) -> Result<(), SpaceDamage> {
        for stripe in &chunk.stripes {
            let physical = stripe.physical;
            let before = DEVICE_START.saturating_sub(physical.0).min(chunk.len);
            let taken = self.start.subtract(physical.0, before)
                + self.free.subtract(physical.0 + before, chunk.len - before);
            if taken != chunk.len {
                return Err(SpaceDamage::StripeOverlap { chunk: chunk.logical, physical });
            }
        }
        Ok(())
    }

    /// Takes space for a chunk with these flags, as long as the rule and the device allow. Its
    /// logical address is 0 as yet.
    pub(super) fn place(&mut self, kind: SpaceKind, flags: BlockGroupFlags) -> Option<Chunk> {
        let dup = flags.contains(BlockGroupFlags::DUP);
        let half = self.free.largest_free() / 2 / STRIPE_LEN * STRIPE_LEN;
        let room =
            if dup { half.max(self.free.second_largest()) } else { self.free.largest_free() };
        let len = room.min(self.chunk_len(kind));
        if len < CHUNK_LEN_MIN {
            return None;
        }
        let stripes = (0..if dup { 2 } else { 1 }).map(|_| self.stripe(len)).collect();
        Some(Chunk {
            logical: Logical(0),
            len,
            owner: TreeId::EXTENT.0,
            stripe_len: STRIPE_LEN,
            flags,
            profile: if dup { Profile::Dup } else { Profile::Single },
            io_align: 64 << 10,
            io_width: 64 << 10,
            sector_size: SECTOR_SIZE,
            sub_stripes: 1,
            stripes,
        })
    }

    /// Frees the stripes of a chunk that nothing refers to any more.
    pub(super) fn vacate(&mut self, chunk: &Chunk) {
        for stripe in &chunk.stripes {
            let start = stripe.physical.0;
            let before = DEVICE_START.saturating_sub(start).min(chunk.len);
            let freed = self.start.insert(start, before);
            let freed = freed.and(self.free.insert(start + before, chunk.len - before));
            freed.expect("a chunk's stripe is not free");
            self.apply_limit();
        }
    }

    /// Returns the items of a chunk.
    pub(super) fn describe(&self, chunk: Chunk, group: BlockGroupItem) -> NewChunk {
        let extent = DeviceExtent {
            chunk_tree: TreeId::CHUNK.0,
            chunk_objectid: FIRST_FREE_OBJECTID,
            chunk: chunk.logical,
            len: chunk.len,
            chunk_tree_uuid: self.chunk_tree_uuid,
        };
        let places = chunk.stripes.iter().map(|stripe| (stripe.physical, extent.clone()));
        NewChunk { device_extents: places.collect(), chunk, group }
    }

    fn stripe(&mut self, len: u64) -> Stripe {
        // From the front, so that the rest of a range stays in one piece.
        self.free.rewind();
        let physical = Physical(self.free.take(len).expect("there is room for every stripe"));
        Stripe { device: self.id, physical, device_uuid: self.uuid }
    }

    /// Returns the preferred length of a chunk: a tenth of the device, at most 1 GiB, for metadata
    /// 256 MiB on devices up to 50 GiB, for the system 32 MiB.
    pub(super) fn chunk_len(&self, kind: SpaceKind) -> u64 {
        let most = match kind {
            SpaceKind::Metadata if self.len <= LARGE_DEVICE => 256 << 20,
            SpaceKind::Data | SpaceKind::Metadata => 1 << 30,
            SpaceKind::System => 32 << 20,
        };
        let part = self.len / PART_OF_DEVICE / STRIPE_LEN * STRIPE_LEN;
        part.clamp(CHUNK_LEN_MIN, most)
    }
}
