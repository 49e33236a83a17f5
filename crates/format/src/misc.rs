//! Items that reading files never needs, but that a look at the disk shows.

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::device::{exact, prefix};
use crate::key::RawKey;
use crate::{ItemError, ItemKind, Key};

/// What a quota group uses: QGROUP_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QgroupInfo {
    /// The transaction it is valid for.
    pub generation: u64,
    /// Bytes it references.
    pub referenced: u64,
    /// The same, compressed.
    pub referenced_compressed: u64,
    /// Bytes it alone references.
    pub exclusive: u64,
    /// The same, compressed.
    pub exclusive_compressed: u64,
}

impl QgroupInfo {
    /// Writes the content of a QGROUP_INFO.
    pub fn encode(&self) -> Vec<u8> {
        encode_numbers(&[
            self.generation,
            self.referenced,
            self.referenced_compressed,
            self.exclusive,
            self.exclusive_compressed,
        ])
    }

    /// Reads the content of a QGROUP_INFO.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let [generation, referenced, referenced_compressed, exclusive, exclusive_compressed] =
            numbers(bytes)?;
        Ok(Self { generation, referenced, referenced_compressed, exclusive, exclusive_compressed })
    }
}

/// The limits of a quota group: QGROUP_LIMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QgroupLimit {
    /// Which limits are set.
    pub flags: u64,
    /// Most bytes to reference.
    pub max_referenced: u64,
    /// Most bytes to reference alone.
    pub max_exclusive: u64,
    /// Bytes to reserve.
    pub reserved_referenced: u64,
    /// Bytes to reserve alone.
    pub reserved_exclusive: u64,
}

impl QgroupLimit {
    /// Writes the content of a QGROUP_LIMIT.
    pub fn encode(&self) -> Vec<u8> {
        encode_numbers(&[
            self.flags,
            self.max_referenced,
            self.max_exclusive,
            self.reserved_referenced,
            self.reserved_exclusive,
        ])
    }

    /// Reads the content of a QGROUP_LIMIT.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let [flags, max_referenced, max_exclusive, reserved_referenced, reserved_exclusive] =
            numbers(bytes)?;
        Ok(Self { flags, max_referenced, max_exclusive, reserved_referenced, reserved_exclusive })
    }
}

/// The state of quotas: QGROUP_STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QgroupStatus {
    /// The version of the structure.
    pub version: u64,
    /// The transaction it is valid for.
    pub generation: u64,
    /// On, rescanning, inconsistent, simple.
    pub flags: u64,
    /// How far a rescan got.
    pub rescan: u64,
    /// The transaction in which simple quotas were switched on, where the item has it.
    pub enable_generation: Option<u64>,
}

impl QgroupStatus {
    /// Writes the content of a QGROUP_STATUS, of the size it was read with.
    pub fn encode(&self) -> Vec<u8> {
        let head = [self.version, self.generation, self.flags, self.rescan];
        encode_numbers(head.iter().chain(&self.enable_generation))
    }

    /// Reads the content of a QGROUP_STATUS, of either size.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let (head, rest) = prefix::<[U64; 4]>(bytes)?;
        let enable_generation = match rest {
            [] => None,
            rest => Some(exact::<U64>(rest)?.get()),
        };
        let [version, generation, flags, rescan] = head.map(U64::get);
        Ok(Self { version, generation, flags, rescan, enable_generation })
    }
}

fn numbers<const N: usize>(bytes: &[u8]) -> Result<[u64; N], ItemError>
where
    [U64; N]: FromBytes + Immutable + KnownLayout + Unaligned,
{
    Ok(exact::<[U64; N]>(bytes)?.map(U64::get))
}

fn encode_numbers<'a>(numbers: impl IntoIterator<Item = &'a u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Errors that a device has seen: PERSISTENT_ITEM of the device tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevStats {
    /// Failed writes.
    pub write_errors: u64,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed flushes.
    pub flush_errors: u64,
    /// Wrong checksums.
    pub corruption_errors: u64,
    /// Wrong generations.
    pub generation_errors: u64,
}

impl DevStats {
    /// Writes the content of device statistics.
    pub fn encode(&self) -> Vec<u8> {
        encode_numbers(&[
            self.write_errors,
            self.read_errors,
            self.flush_errors,
            self.corruption_errors,
            self.generation_errors,
        ])
    }

    /// Reads the content of device statistics; counters of newer kinds may follow.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let [write_errors, read_errors, flush_errors, corruption_errors, generation_errors] =
            prefix::<[U64; 5]>(bytes)?.0.map(U64::get);
        Ok(Self { write_errors, read_errors, flush_errors, corruption_errors, generation_errors })
    }
}

/// The state of a device replacement: DEV_REPLACE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevReplaceItem {
    /// The device that is replaced.
    pub source: u64,
    /// How far it got, left.
    pub cursor_left: u64,
    /// How far it got, right.
    pub cursor_right: u64,
    /// How the source is read.
    pub mode: u64,
    /// 0 never started, 1 started, 2 finished, 3 cancelled, 4 suspended.
    pub state: u64,
    /// When it was started, in seconds since 1970.
    pub started: u64,
    /// When it was stopped.
    pub stopped: u64,
    /// Write errors seen.
    pub write_errors: u64,
    /// Read errors seen that nothing could repair.
    pub uncorrectable_read_errors: u64,
}

impl DevReplaceItem {
    /// Reads the content of a DEV_REPLACE.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let (raw, rest) = prefix::<[U64; 9]>(bytes)?;
        if rest.len() > size_of::<u64>() {
            return Err(ItemError::Trailing(rest.len()));
        }
        let [
            source,
            cursor_left,
            cursor_right,
            mode,
            state,
            started,
            stopped,
            write_errors,
            uncorrectable_read_errors,
        ] = raw.map(U64::get);
        Ok(Self {
            source,
            cursor_left,
            cursor_right,
            mode,
            state,
            started,
            stopped,
            write_errors,
            uncorrectable_read_errors,
        })
    }
}

/// The state of a balance: TEMPORARY_ITEM of object id -4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceItem {
    /// What is balanced.
    pub flags: u64,
    /// How data is, then metadata, then the system's.
    pub args: [BalanceArgs; 3],
}

/// Which block groups of one type a balance takes, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceArgs {
    /// Their profiles, as bits.
    pub profiles: u64,
    /// How full they are, from and to, in percent; without a range both stand in one number.
    pub usage: [u32; 2],
    /// The device they touch.
    pub device: u64,
    /// The range of that device they touch.
    pub physical: [u64; 2],
    /// The range of logical addresses they touch.
    pub logical: [u64; 2],
    /// The profile they get.
    pub target: u64,
    /// Which of these count.
    pub flags: u64,
    /// How many are taken, from and to; without a range both stand in one number.
    pub limit: [u32; 2],
    /// How many stripes they have, from and to.
    pub stripes: [u32; 2],
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBalanceItem {
    flags: U64,
    args: [RawBalanceArgs; 3],
    unused: [U64; 4],
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBalanceArgs {
    profiles: U64,
    usage: [U32; 2],
    device: U64,
    physical: [U64; 2],
    logical: [U64; 2],
    target: U64,
    flags: U64,
    limit: [U32; 2],
    stripes: [U32; 2],
    unused: [U64; 6],
}

const _: () = assert!(size_of::<RawBalanceItem>() == 448);

impl BalanceItem {
    /// The object id of such items (-4).
    pub const OBJECTID: u64 = u64::MAX - 3;

    /// Reads the content of a balance's state.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let raw = exact::<RawBalanceItem>(bytes)?;
        Ok(Self { flags: raw.flags.get(), args: raw.args.each_ref().map(RawBalanceArgs::get) })
    }
}

impl RawBalanceArgs {
    fn get(&self) -> BalanceArgs {
        BalanceArgs {
            profiles: self.profiles.get(),
            usage: self.usage.map(U32::get),
            device: self.device.get(),
            physical: self.physical.map(U64::get),
            logical: self.logical.map(U64::get),
            target: self.target.get(),
            flags: self.flags.get(),
            limit: self.limit.map(U32::get),
            stripes: self.stripes.map(U32::get),
        }
    }
}

/// The end of the range of hashes or indexes that a DIR_LOG_ITEM or DIR_LOG_INDEX says is logged
/// whole; its start is the offset of the key.
pub fn dir_log_end(bytes: &[u8]) -> Result<u64, ItemError> {
    Ok(exact::<U64>(bytes)?.get())
}

/// The head of the old space cache of a block group: item of kind 0, object id -11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V1SpaceCache {
    /// The inode in the root tree that holds the cache.
    pub location: Key,
    /// The transaction it is valid for.
    pub generation: u64,
    /// How many ranges it lists.
    pub entries: u64,
    /// How many bitmaps it has.
    pub bitmaps: u64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawV1SpaceCache {
    location: RawKey,
    generation: U64,
    entries: U64,
    bitmaps: U64,
}

impl V1SpaceCache {
    /// The object id of such items.
    pub const OBJECTID: u64 = u64::MAX - 10;

    /// Reads the content of a cache head.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let raw = exact::<RawV1SpaceCache>(bytes)?;
        Ok(Self {
            location: raw.location.get(),
            generation: raw.generation.get(),
            entries: raw.entries.get(),
            bitmaps: raw.bitmaps.get(),
        })
    }
}

/// The subvolumes that an item of the UUID tree lists.
pub fn uuid_subvolumes(bytes: &[u8]) -> Result<Vec<u64>, ItemError> {
    let numbers = <[U64]>::ref_from_bytes(bytes).map_err(|_| ItemError::Size(bytes.len()))?;
    if numbers.is_empty() {
        return Err(ItemError::Size(0));
    }
    Ok(numbers.iter().map(|n| n.get()).collect())
}

/// Writes an item of the UUID tree.
pub fn encode_uuid_subvolumes(subvolumes: &[u64]) -> Vec<u8> {
    encode_numbers(subvolumes)
}

/// Where the UUID tree has what belongs to `uuid`: the inverse of [`uuid_of_key`].
pub fn uuid_key(uuid: Uuid, kind: ItemKind) -> Key {
    let (first, second) = uuid.as_u64_pair();
    Key::new(first.swap_bytes(), kind, second.swap_bytes())
}

/// The UUID that the key of an item of the UUID tree stands for.
pub fn uuid_of_key(key: Key) -> Uuid {
    let (first, second) = (key.objectid.to_le_bytes(), key.offset.to_le_bytes());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first);
    bytes[8..].copy_from_slice(&second);
    Uuid::from_bytes(bytes)
}
