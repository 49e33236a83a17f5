//! Chunks, which map ranges of logical addresses to ranges of devices.
//!
//! 1. A [`Chunk`] has at most one profile, at least one stripe, and no stripe past the end of
//!    the number space.
//! 2. The volume checks that its profile is supported and that its stripes lie on the devices.

use bitflags::bitflags;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::device::prefix;
use crate::key::RawKey;
use crate::{
    ChunkError, FIRST_FREE_OBJECTID, ItemError, ItemKind, Key, Logical, Physical, SECTOR_SIZE,
};

bitflags! {
    /// The type and profile of a block group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct BlockGroupFlags: u64 {
        /// File data.
        const DATA = 1 << 0;
        /// The chunk tree.
        const SYSTEM = 1 << 1;
        /// All other trees.
        const METADATA = 1 << 2;
        /// Striped over devices.
        const RAID0 = 1 << 3;
        /// Two copies on two devices.
        const RAID1 = 1 << 4;
        /// Two copies on one device.
        const DUP = 1 << 5;
        /// Striped mirrors.
        const RAID10 = 1 << 6;
        /// One parity.
        const RAID5 = 1 << 7;
        /// Two parities.
        const RAID6 = 1 << 8;
        /// Three copies on three devices.
        const RAID1C3 = 1 << 9;
        /// Four copies on four devices.
        const RAID1C4 = 1 << 10;
        /// Mapped through the remap tree.
        const REMAPPED = 1 << 11;
        /// Holds the remap tree.
        const METADATA_REMAP = 1 << 12;
    }
}

impl BlockGroupFlags {
    /// The bits of the type.
    pub const TYPES: Self =
        Self::DATA.union(Self::SYSTEM).union(Self::METADATA).union(Self::METADATA_REMAP);

    const PROFILES: u64 = 0b111_1111_1000;

    /// Returns true if every bit is supported and the type is either system, or data, metadata or
    /// both.
    pub(crate) fn has_possible_type(self) -> bool {
        let read = Self::all().difference(Self::REMAPPED | Self::METADATA_REMAP);
        let types = self & Self::TYPES;
        let alone = types == Self::SYSTEM || !types.contains(Self::SYSTEM);
        !types.is_empty() && alone && read.contains(self)
    }

    /// The profile, or `None` if more than one is set.
    pub fn profile(self) -> Option<Profile> {
        Some(match Self::from_bits_retain(self.bits() & Self::PROFILES) {
            f if f.is_empty() => Profile::Single,
            Self::DUP => Profile::Dup,
            Self::RAID0 => Profile::Raid0,
            Self::RAID1 => Profile::Raid1,
            Self::RAID10 => Profile::Raid10,
            Self::RAID5 => Profile::Raid5,
            Self::RAID6 => Profile::Raid6,
            Self::RAID1C3 => Profile::Raid1C3,
            Self::RAID1C4 => Profile::Raid1C4,
            _ => return None,
        })
    }
}

/// The RAID profile of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies on one device.
    Dup,
    /// Striped.
    Raid0,
    /// Two copies.
    Raid1,
    /// Striped mirrors.
    Raid10,
    /// One parity.
    Raid5,
    /// Two parities.
    Raid6,
    /// Three copies.
    Raid1C3,
    /// Four copies.
    Raid1C4,
}

impl Profile {
    /// The bit of the profile; empty for single.
    pub fn flag(self) -> BlockGroupFlags {
        match self {
            Self::Single => BlockGroupFlags::empty(),
            Self::Dup => BlockGroupFlags::DUP,
            Self::Raid0 => BlockGroupFlags::RAID0,
            Self::Raid1 => BlockGroupFlags::RAID1,
            Self::Raid10 => BlockGroupFlags::RAID10,
            Self::Raid5 => BlockGroupFlags::RAID5,
            Self::Raid6 => BlockGroupFlags::RAID6,
            Self::Raid1C3 => BlockGroupFlags::RAID1C3,
            Self::Raid1C4 => BlockGroupFlags::RAID1C4,
        }
    }

    /// The name in messages and listings, as btrfs-progs prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Dup => "DUP",
            Self::Raid0 => "RAID0",
            Self::Raid1 => "RAID1",
            Self::Raid10 => "RAID10",
            Self::Raid5 => "RAID5",
            Self::Raid6 => "RAID6",
            Self::Raid1C3 => "RAID1C3",
            Self::Raid1C4 => "RAID1C4",
        }
    }
}

/// A range of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The device.
    pub device: u64,
    /// The start of the range.
    pub physical: Physical,
    /// The device's UUID.
    pub device_uuid: Uuid,
}

/// The mapping of a range of logical addresses: CHUNK_ITEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its start.
    pub logical: Logical,
    /// Its length in bytes.
    pub len: u64,
    /// The tree that references it (the extent tree).
    pub owner: u64,
    /// Bytes on a device before the data continues on the next one; 64 KiB.
    pub stripe_len: u64,
    /// Its type and profile.
    pub flags: BlockGroupFlags,
    /// Its RAID profile.
    pub profile: Profile,
    /// Obsolete: alignment of I/O.
    pub io_align: u32,
    /// Obsolete: width of I/O.
    pub io_width: u32,
    /// Bytes in a sector.
    pub sector_size: u32,
    /// Copies inside a stripe set (RAID10).
    pub sub_stripes: u16,
    /// Its ranges on devices.
    pub stripes: Vec<Stripe>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawChunk {
    length: U64,
    owner: U64,
    stripe_len: U64,
    flags: U64,
    io_align: U32,
    io_width: U32,
    sector_size: U32,
    num_stripes: U16,
    sub_stripes: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawStripe {
    devid: U64,
    offset: U64,
    dev_uuid: [u8; 16],
}

const _: () = assert!(size_of::<RawChunk>() == 48);
const _: () = assert!(size_of::<RawStripe>() == 32);

/// Bytes on a device before the data continues on the next one: the stripe length of all chunks.
pub const STRIPE_LEN: u64 = 64 << 10;

impl Chunk {
    /// Reads the content of a CHUNK_ITEM.
    pub fn parse(key: Key, bytes: &[u8]) -> Result<Self, ItemError> {
        let (chunk, rest) = Self::parse_prefix(key, bytes)?;
        if !rest.is_empty() {
            return Err(ItemError::Trailing(rest.len()));
        }
        Ok(chunk)
    }

    /// Reads a chunk; returns it and the bytes after it.
    fn parse_prefix(key: Key, bytes: &[u8]) -> Result<(Self, &[u8]), ItemError> {
        if key.objectid != FIRST_FREE_OBJECTID {
            return Err(ItemError::ObjectId(key.objectid));
        }
        let (raw, rest) = prefix::<RawChunk>(bytes)?;
        let count = usize::from(raw.num_stripes.get());
        let (stripes, rest) =
            <[RawStripe]>::ref_from_prefix_with_elems(rest, count).map_err(|_| {
                ItemError::TooShort {
                    need: count.saturating_mul(size_of::<RawStripe>()),
                    have: rest.len(),
                }
            })?;
        let stripes = stripes
            .iter()
            .map(|stripe| Stripe {
                device: stripe.devid.get(),
                physical: Physical(stripe.offset.get()),
                device_uuid: Uuid::from_bytes(stripe.dev_uuid),
            })
            .collect();
        let chunk = Self::validated(Logical(key.offset), raw, stripes)?;
        Ok((chunk, rest))
    }

    fn validated(
        logical: Logical,
        raw: &RawChunk,
        stripes: Vec<Stripe>,
    ) -> Result<Self, ChunkError> {
        let len = raw.length.get();
        let places = stripes.iter().map(|stripe| ("stripe", stripe.physical.0));
        for (field, value) in [("start", logical.0), ("length", len)].into_iter().chain(places) {
            if !value.is_multiple_of(u64::from(SECTOR_SIZE)) {
                return Err(ChunkError::Unaligned { field, value });
            }
        }
        if len == 0 {
            return Err(ChunkError::Unaligned { field: "length", value: 0 });
        }
        for start in stripes.iter().map(|s| s.physical.0).chain([logical.0]) {
            start.checked_add(len).ok_or(ChunkError::Overflow { start, len })?;
        }
        if raw.stripe_len.get() != STRIPE_LEN {
            return Err(ChunkError::StripeLen(raw.stripe_len.get()));
        }
        let flags = BlockGroupFlags::from_bits_retain(raw.flags.get());
        let profile = flags
            .profile()
            .filter(|_| flags.has_possible_type())
            .ok_or(ChunkError::Flags(flags.bits()))?;
        check_stripe_count(profile, raw.num_stripes.get(), raw.sub_stripes.get())?;
        Ok(Self {
            logical,
            len,
            owner: raw.owner.get(),
            stripe_len: STRIPE_LEN,
            flags,
            profile,
            io_align: raw.io_align.get(),
            io_width: raw.io_width.get(),
            sector_size: raw.sector_size.get(),
            sub_stripes: raw.sub_stripes.get(),
            stripes,
        })
    }

    /// The key of the chunk in the chunk tree.
    pub fn key(&self) -> Key {
        Key::new(FIRST_FREE_OBJECTID, ItemKind::CHUNK_ITEM, self.logical.0)
    }

    /// Writes the content of a CHUNK_ITEM.
    pub fn encode(&self) -> Vec<u8> {
        let num_stripes = u16::try_from(self.stripes.len()).expect("a chunk has few stripes");
        let raw = RawChunk {
            length: self.len.into(),
            owner: self.owner.into(),
            stripe_len: self.stripe_len.into(),
            flags: self.flags.bits().into(),
            io_align: self.io_align.into(),
            io_width: self.io_width.into(),
            sector_size: self.sector_size.into(),
            num_stripes: num_stripes.into(),
            sub_stripes: self.sub_stripes.into(),
        };
        let mut item = raw.as_bytes().to_vec();
        for stripe in &self.stripes {
            let raw = RawStripe {
                devid: stripe.device.into(),
                offset: stripe.physical.0.into(),
                dev_uuid: stripe.device_uuid.into_bytes(),
            };
            item.extend_from_slice(raw.as_bytes());
        }
        item
    }

    /// The first address after the chunk.
    pub fn end(&self) -> Logical {
        self.logical.checked_add(self.len).expect("checked when the chunk was read")
    }
}

fn check_stripe_count(profile: Profile, stripes: u16, sub_stripes: u16) -> Result<(), ChunkError> {
    let possible = match profile {
        Profile::Single => stripes == 1,
        Profile::Dup | Profile::Raid1 => stripes == 2,
        Profile::Raid1C3 => stripes == 3,
        Profile::Raid1C4 => stripes == 4,
        Profile::Raid10 => sub_stripes == 2 && stripes >= 2 && stripes.is_multiple_of(2),
        Profile::Raid0 => stripes >= 1,
        Profile::Raid5 => stripes >= 2,
        Profile::Raid6 => stripes >= 3,
    };
    if stripes == 0 {
        return Err(ChunkError::NoStripes);
    }
    let profile = profile.name();
    possible.then_some(()).ok_or(ChunkError::StripeCount { profile, stripes, sub_stripes })
}

/// Reads the system chunk array of a superblock: pairs of key and chunk, back to back.
pub fn sys_chunk_array(mut bytes: &[u8]) -> Result<Vec<Chunk>, ItemError> {
    let mut chunks = Vec::new();
    while !bytes.is_empty() {
        let (key, rest) = prefix::<RawKey>(bytes)?;
        let key = key.get();
        if key.kind != ItemKind::CHUNK_ITEM {
            return Err(ItemError::Flags { field: "key kind", value: u64::from(key.kind.0) });
        }
        let (chunk, rest) = Chunk::parse_prefix(key, rest)?;
        if !chunk.flags.contains(BlockGroupFlags::SYSTEM) {
            return Err(ItemError::Flags { field: "chunk type", value: chunk.flags.bits() });
        }
        chunks.push(chunk);
        bytes = rest;
    }
    Ok(chunks)
}

/// Writes the system chunk array of a superblock. The caller checks that it fits there.
pub fn encode_sys_chunk_array<'a>(chunks: impl IntoIterator<Item = &'a Chunk>) -> Vec<u8> {
    let mut array = Vec::new();
    for chunk in chunks {
        array.extend_from_slice(RawKey::new(chunk.key()).as_bytes());
        array.extend_from_slice(&chunk.encode());
    }
    array
}
