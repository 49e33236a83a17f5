//! The chunk map, which translates logical ranges to their copies on the device.
//!
//! 1. Chunks in the map do not overlap.
//! 2. Each stripe lies on the device, and the profile is one of those that one device can hold:
//!    single, DUP, or RAID0 with one stripe, which has the layout of single.

use std::collections::BTreeMap;

use userbtrfs_format::{
    Chunk, DeviceItem, Item, ItemKind, Logical, Physical, Profile, Superblock, sys_chunk_array,
};

use crate::error::{OpenError, ReadError};

/// A range of logical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its start.
    pub logical: Logical,
    /// Its length in bytes.
    pub len: usize,
}

/// The location of a logical range: the physical offsets of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    first: Physical,
    second: Option<Physical>,
}

impl Mapping {
    /// The physical offset of a copy, counted from 0.
    pub fn copy(&self, number: usize) -> Option<Physical> {
        match number {
            0 => Some(self.first),
            1 => self.second,
            _ => None,
        }
    }

    /// The physical offsets of all copies, in the order in which to try them.
    pub fn copies(&self) -> impl Iterator<Item = Physical> + use<> {
        [Some(self.first), self.second].into_iter().flatten()
    }
}

/// All chunks of a volume.
#[derive(Clone, Debug, Default)]
pub struct ChunkMap {
    chunks: BTreeMap<Logical, Chunk>,
}

impl ChunkMap {
    /// The map of the system chunks in the superblock, with which the chunk tree is read.
    pub fn of_superblock(superblock: &Superblock, device_len: u64) -> Result<Self, OpenError> {
        let mut map = Self::default();
        let chunks =
            sys_chunk_array(&superblock.sys_chunk_array).map_err(OpenError::SysChunkArray)?;
        for chunk in chunks {
            map.insert(chunk, &superblock.device, device_len)?;
        }
        Ok(map)
    }

    /// Adds a chunk; fails if it does not lie on the device or overlaps another one.
    pub fn insert(
        &mut self,
        chunk: Chunk,
        device: &DeviceItem,
        device_len: u64,
    ) -> Result<(), OpenError> {
        check_profile(&chunk)?;
        check_stripes(&chunk, device, device_len)?;
        let before = self.chunks.range(..=chunk.logical).next_back();
        if let Some((&other, _)) = before.filter(|(_, before)| before.end() > chunk.logical) {
            return Err(OpenError::overlap(&chunk, other));
        }
        if let Some((&other, _)) = self.chunks.range(chunk.logical..chunk.end()).next() {
            return Err(OpenError::overlap(&chunk, other));
        }
        self.chunks.insert(chunk.logical, chunk);
        Ok(())
    }

    /// Removes the chunk that starts at `logical`.
    pub fn remove(&mut self, logical: Logical) -> Option<Chunk> {
        self.chunks.remove(&logical)
    }

    /// The chunk that contains an address.
    pub fn chunk_of(&self, logical: Logical) -> Option<&Chunk> {
        let (_, chunk) = self.chunks.range(..=logical).next_back()?;
        (logical < chunk.end()).then_some(chunk)
    }

    /// Translates a range; fails if it does not lie in one chunk.
    pub fn map(&self, logical: Logical, len: u64) -> Result<Mapping, ReadError> {
        let unmapped = ReadError::Unmapped { logical, len };
        let Some((_, chunk)) = self.chunks.range(..=logical).next_back() else {
            return Err(unmapped);
        };
        match logical.checked_add(len) {
            Some(end) if end <= chunk.end() => {}
            _ => return Err(unmapped),
        }
        let offset = logical.0 - chunk.logical.0;
        let place = |stripe: &userbtrfs_format::Stripe| Physical(stripe.physical.0 + offset);
        let mut stripes = chunk.stripes.iter().map(place);
        let first = stripes.next().expect("a chunk has a stripe");
        Ok(Mapping { first, second: stripes.next() })
    }

    /// The chunks, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.values()
    }
}

fn check_profile(chunk: &Chunk) -> Result<(), OpenError> {
    let stripes = chunk.stripes.len();
    let readable = match chunk.profile {
        Profile::Single | Profile::Dup => true,
        Profile::Raid0 => stripes == 1,
        _ => false,
    };
    let logical = chunk.logical;
    let profile = chunk.profile;
    readable.then_some(()).ok_or(OpenError::Profile { logical, profile, stripes })
}

fn check_stripes(chunk: &Chunk, device: &DeviceItem, device_len: u64) -> Result<(), OpenError> {
    let logical = chunk.logical;
    let len = chunk.len;
    for stripe in &chunk.stripes {
        if stripe.device != device.id || stripe.device_uuid != device.uuid {
            return Err(OpenError::StripeDevice { logical, device: stripe.device });
        }
        let physical = stripe.physical;
        if physical.0.checked_add(len).is_none_or(|end| end > device_len) {
            return Err(OpenError::StripeOutside { logical, physical, len, device: device.id });
        }
    }
    Ok(())
}

/// Adds an item of the chunk tree to the map or to the list of devices.
pub(crate) fn collect(
    map: &mut ChunkMap,
    devices: &mut Vec<DeviceItem>,
    item: &Item<'_>,
    device: &DeviceItem,
    device_len: u64,
) -> Result<(), OpenError> {
    match item.key.kind {
        ItemKind::DEV_ITEM => {
            devices.push(DeviceItem::parse(item.data).expect("verified with its block"));
        }
        ItemKind::CHUNK_ITEM => {
            let chunk = Chunk::parse(item.key, item.data).expect("verified with its block");
            map.insert(chunk, device, device_len)?;
        }
        _ => {}
    }
    Ok(())
}
