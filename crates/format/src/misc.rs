//! Items that are not needed to read files.

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::device::{exact, prefix};
use crate::key::RawKey;
use crate::{ItemError, ItemKind, Key};

/// The usage of a quota group: QGROUP_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QgroupInfo {
    /// The transaction it is valid for.
    pub generation: u64,
    /// Bytes it references.
    pub referenced: u64,
    /// Bytes it references, compressed.
    pub referenced_compressed: u64,
    /// Bytes that only it references.
    pub exclusive: u64,
    /// Bytes that only it references, compressed.
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
    /// The limits that are set.
    pub flags: u64,
    /// The limit of referenced bytes.
    pub max_referenced: u64,
    /// The limit of exclusive bytes.
    pub max_exclusive: u64,
    /// The reservation of referenced bytes.
    pub reserved_referenced: u64,
    /// The reservation of exclusive bytes.
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
    /// The progress of a rescan.
    pub rescan: u64,
    /// The transaction in which simple quotas were enabled, if the item has the field.
    pub enable_generation: Option<u64>,
}

impl QgroupStatus {
    /// Writes the content of a QGROUP_STATUS, in the size it was read with.
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

/// Error counters of a device: PERSISTENT_ITEM of the device tree.
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

    /// Reads the content of device statistics; later versions may append counters.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let [write_errors, read_errors, flush_errors, corruption_errors, generation_errors] =
            prefix::<[U64; 5]>(bytes)?.0.map(U64::get);
        Ok(Self { write_errors, read_errors, flush_errors, corruption_errors, generation_errors })
    }
}

/// The state of a device replacement: DEV_REPLACE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevReplaceItem {
    /// The device that is being replaced.
    pub source: u64,
    /// Its progress, left.
    pub cursor_left: u64,
    /// Its progress, right.
    pub cursor_right: u64,
    /// The mode in which the source is read.
    pub mode: u64,
    /// 0 never started, 1 started, 2 finished, 3 cancelled, 4 suspended.
    pub state: u64,
    /// Its start time, in seconds since 1970.
    pub started: u64,
    /// Its end time, in seconds since 1970.
    pub stopped: u64,
    /// Write errors.
    pub write_errors: u64,
    /// Read errors that could not be repaired.
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

/// The state of a balance: TEMPORARY_ITEM with object id -4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceItem {
    /// The types of block groups to balance, and other flags.
    pub flags: u64,
    /// The arguments for data, metadata and system block groups, in this order.
    pub args: [BalanceArgs; 3],
}

/// The filters and the target profile of a balance, for one type of block groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceArgs {
    /// The profiles of the block groups, as bits.
    pub profiles: u64,
    /// Minimum and maximum usage in percent; without the range flag, both are one 64-bit maximum.
    pub usage: [u32; 2],
    /// The device that they have a stripe on.
    pub device: u64,
    /// The range of that device that they overlap.
    pub physical: [u64; 2],
    /// The range of logical addresses that they overlap.
    pub logical: [u64; 2],
    /// The profile to convert to.
    pub target: u64,
    /// The fields that are set.
    pub flags: u64,
    /// Minimum and maximum number of block groups; without the range flag, one 64-bit maximum.
    pub limit: [u32; 2],
    /// Minimum and maximum number of stripes.
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

    /// Reads the content of the item.
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

/// The last hash or index of the range that a DIR_LOG_ITEM or DIR_LOG_INDEX marks as completely
/// logged; the first is the offset of its key.
pub fn dir_log_end(bytes: &[u8]) -> Result<u64, ItemError> {
    Ok(exact::<U64>(bytes)?.get())
}

/// The header of the v1 space cache of a block group: an item of kind 0 with object id -11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V1SpaceCache {
    /// The inode in the root tree that holds the cache.
    pub location: Key,
    /// The transaction it is valid for.
    pub generation: u64,
    /// The number of ranges in the cache.
    pub entries: u64,
    /// The number of bitmaps in the cache.
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

    /// Reads the content of the header.
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

/// Reads the subvolumes in an item of the UUID tree.
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

/// The key of the item for `uuid` in the UUID tree: the inverse of [`uuid_of_key`].
pub fn uuid_key(uuid: Uuid, kind: ItemKind) -> Key {
    let (first, second) = uuid.as_u64_pair();
    Key::new(first.swap_bytes(), kind, second.swap_bytes())
}

/// The UUID encoded in the key of an item of the UUID tree.
pub fn uuid_of_key(key: Key) -> Uuid {
    let first = key.objectid.to_le_bytes();
    let second = key.offset.to_le_bytes();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first);
    bytes[8..].copy_from_slice(&second);
    Uuid::from_bytes(bytes)
}
