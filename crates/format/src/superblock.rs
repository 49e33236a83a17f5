//! The superblock, through which all trees are found.
//!
//! 1. A copy is accepted only if its magic, its checksum and the address in it are right.
//! 2. Each field is checked on its own; the volume checks features and devices.

use thiserror::Error;
use userbtrfs_codec::checksum::{Checksum, ChecksumKind, UnknownChecksum};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::device::{DeviceItem, RawDeviceItem};
use crate::flags::{CompatRoFlags, IncompatFlags, SuperblockFlags, flag_names};
use crate::{ItemError, Logical, MAX_LEVEL, Physical, SECTOR_SIZE};

/// The offsets of the superblock copies on each device that is large enough, in bytes.
pub const SUPERBLOCK_OFFSETS: [Physical; 3] =
    [Physical(64 << 10), Physical(64 << 20), Physical(256 << 30)];

/// The size of a superblock copy in bytes.
pub const SUPERBLOCK_SIZE: usize = 4096;

const MAGIC: [u8; 8] = *b"_BHRfS_M";
const CSUM_AREA: usize = 32;
/// The size of the system chunk array in bytes.
pub const SYS_CHUNK_ARRAY_SIZE: usize = 2048;
/// The longest label in bytes; a NUL follows it.
pub const LABEL_LEN_MAX: usize = 255;
/// A key, and a chunk of one stripe.
const SYS_CHUNK_ARRAY_MIN: u32 = 17 + 48 + 32;
const LOG_ROOT_TREE: &str = "log root tree";
const BACKUP_ROOTS: usize = 4;

/// A failed check of a superblock copy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuperblockError {
    /// Fewer bytes than a superblock has.
    #[error("the superblock is cut short")]
    TooShort,
    /// No btrfs magic.
    #[error("not a btrfs superblock: magic {0:02x?}")]
    Magic([u8; 8]),
    /// An unknown checksum kind.
    #[error("{}", UnknownChecksum(*.0))]
    ChecksumKind(u16),
    /// The checksum does not match.
    #[error("superblock checksum is {found}, expected {expected}")]
    Checksum {
        /// The checksum in the superblock.
        expected: Checksum,
        /// The checksum of its bytes.
        found: Checksum,
    },
    /// The address in the copy differs from the one where it was read.
    #[error("superblock copy at {at} says that it stands at {found}")]
    Address {
        /// The address where it was read.
        at: Physical,
        /// The address in the copy.
        found: u64,
    },
    /// An unsupported sector size.
    #[error("sector size {0} is not supported (only 4096)")]
    SectorSize(u32),
    /// A node size that is not a power of two from 4 to 64 KiB or, if data and metadata share block
    /// groups, not the sector size.
    #[error("bad node size {0}")]
    NodeSize(u32),
    /// The obsolete leaf size differs from the node size.
    #[error("leaf size {leaf} differs from node size {node}")]
    LeafSize {
        /// The leaf size.
        leaf: u32,
        /// The node size.
        node: u32,
    },
    /// A level above the maximum.
    #[error("{tree} root has level {level}, at most 7 is possible")]
    Level {
        /// The name of the tree.
        tree: &'static str,
        /// Its level.
        level: u8,
    },
    /// A root whose address is not aligned to sectors, or a missing root.
    #[error("{tree} root address {logical} is 0 or not aligned")]
    RootAddress {
        /// The name of the tree.
        tree: &'static str,
        /// Its address.
        logical: Logical,
    },
    /// The chunk tree is newer than the superblock.
    #[error("generation {chunk} of the chunk tree is newer than the superblock's {own}")]
    ChunkGeneration {
        /// The generation of the chunk tree's root.
        chunk: u64,
        /// The generation of the superblock.
        own: u64,
    },
    /// The system chunk array is too long for its field, or too short for one chunk.
    #[error("system chunk array of {0} bytes is impossible")]
    SysChunkArraySize(u32),
    /// No device.
    #[error("the number of devices is 0")]
    NoDevices,
    /// The device item is damaged.
    #[error("device item: {0}")]
    Device(#[from] ItemError),
    /// The device item names another filesystem.
    #[error("the device belongs to filesystem {found}, not {expected}")]
    DeviceFsid {
        /// The filesystem of the superblock.
        expected: Uuid,
        /// The filesystem in the device item.
        found: Uuid,
    },
}

/// One of the four backup sets of roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupRoot {
    /// The root tree's root.
    pub tree_root: Logical,
    /// Its generation.
    pub tree_root_generation: u64,
    /// The chunk tree's root.
    pub chunk_root: Logical,
    /// Its generation.
    pub chunk_root_generation: u64,
    /// The extent tree's root.
    pub extent_root: Logical,
    /// Its generation.
    pub extent_root_generation: u64,
    /// The top-level subvolume's root.
    pub fs_root: Logical,
    /// Its generation.
    pub fs_root_generation: u64,
    /// The device tree's root.
    pub dev_root: Logical,
    /// Its generation.
    pub dev_root_generation: u64,
    /// The checksum tree's root.
    pub csum_root: Logical,
    /// Its generation.
    pub csum_root_generation: u64,
    /// Size of all devices in bytes.
    pub total_bytes: u64,
    /// Bytes in use.
    pub bytes_used: u64,
    /// The number of devices.
    pub num_devices: u64,
    /// Levels of tree, chunk, extent, fs, dev and csum root.
    pub levels: [u8; 6],
}

/// A superblock that passed its checks.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// The checksum algorithm of the filesystem.
    pub checksum_kind: ChecksumKind,
    /// The checksum of this copy.
    pub checksum: Checksum,
    /// The filesystem's id, as shown.
    pub fsid: Uuid,
    /// The offset of this copy on the device.
    pub physical: Physical,
    /// Its flags, which include the state of the filesystem.
    pub flags: SuperblockFlags,
    /// The generation of the last commit.
    pub generation: u64,
    /// The root tree's root.
    pub root: Logical,
    /// The level of the root tree's root.
    pub root_level: u8,
    /// The chunk tree's root.
    pub chunk_root: Logical,
    /// The level of the chunk tree's root.
    pub chunk_root_level: u8,
    /// The generation of the chunk tree's root.
    pub chunk_root_generation: u64,
    /// The log root tree's root, if a log is pending.
    pub log_root: Option<Logical>,
    /// The level of the log root tree's root.
    pub log_root_level: u8,
    /// The obsolete field that names the transaction of the log root; 0.
    pub log_root_transid: u64,
    /// Size of all devices in bytes.
    pub total_bytes: u64,
    /// Bytes in use.
    pub bytes_used: u64,
    /// The object id of the root tree's directory; 6.
    pub root_dir_objectid: u64,
    /// The number of devices of the filesystem.
    pub num_devices: u64,
    /// Bytes in a sector.
    pub sectorsize: u32,
    /// Bytes in a tree block.
    pub nodesize: u32,
    /// The obsolete stripe size.
    pub stripesize: u32,
    /// Features that both readers and writers may ignore.
    pub compat: u64,
    /// Features that a writer must support.
    pub compat_ro: CompatRoFlags,
    /// Features that both readers and writers must support.
    pub incompat: IncompatFlags,
    /// The device that holds this copy.
    pub device: DeviceItem,
    /// The label, without its padding.
    pub label: Vec<u8>,
    /// The generation that the v1 space cache is valid for; `u64::MAX` if it is not used.
    pub cache_generation: u64,
    /// The generation that the UUID tree is valid for.
    pub uuid_tree_generation: u64,
    /// The id in tree blocks.
    pub metadata_uuid: Uuid,
    /// Reserved fields, which are kept because newer kernels may use them.
    pub reserved: [u64; 28],
    /// The system chunks, as `(key, chunk)` pairs; [`crate::sys_chunk_array`] reads them.
    pub sys_chunk_array: Vec<u8>,
    /// The backup roots.
    pub backup_roots: [BackupRoot; BACKUP_ROOTS],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBackupRoot {
    roots: [[U64; 2]; 6],
    total_bytes: U64,
    bytes_used: U64,
    num_devices: U64,
    unused: [U64; 4],
    levels: [u8; 6],
    padding: [u8; 10],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    csum: [u8; 32],
    fsid: [u8; 16],
    bytenr: U64,
    flags: U64,
    magic: [u8; 8],
    generation: U64,
    root: U64,
    chunk_root: U64,
    log_root: U64,
    log_root_transid: U64,
    total_bytes: U64,
    bytes_used: U64,
    root_dir_objectid: U64,
    num_devices: U64,
    sectorsize: U32,
    nodesize: U32,
    leafsize: U32,
    stripesize: U32,
    sys_chunk_array_size: U32,
    chunk_root_generation: U64,
    compat_flags: U64,
    compat_ro_flags: U64,
    incompat_flags: U64,
    csum_type: U16,
    root_level: u8,
    chunk_root_level: u8,
    log_root_level: u8,
    dev_item: RawDeviceItem,
    label: [u8; 256],
    cache_generation: U64,
    uuid_tree_generation: U64,
    metadata_uuid: [u8; 16],
    reserved: [U64; 28],
    sys_chunk_array: [u8; SYS_CHUNK_ARRAY_SIZE],
    backup_roots: [RawBackupRoot; BACKUP_ROOTS],
    padding: [u8; 565],
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(size_of::<RawBackupRoot>() == 168);

impl Superblock {
    /// Returns the root and the level of the log root tree that a damaged copy with these bytes
    /// shows, if it agrees with this one in all that a log depends on: the filesystem, the commit
    /// that the log follows, and its roots.
    ///
    /// Nothing says that these bytes are right: the caller verifies the tree block.
    pub fn log_of_damaged(&self, bytes: &[u8]) -> Option<(Logical, u8)> {
        let (raw, _) = RawSuperblock::ref_from_prefix(bytes).ok()?;
        let is_same = raw.fsid == *self.fsid.as_bytes()
            && raw.generation.get() == self.generation
            && raw.root.get() == self.root.0
            && raw.chunk_root.get() == self.chunk_root.0;
        let root = raw.log_root.get();
        let level = raw.log_root_level;
        let is_root = root != 0 && root.is_multiple_of(u64::from(self.sectorsize));
        (is_same && is_root && level <= MAX_LEVEL).then_some((Logical(root), level))
    }

    /// Reads the copy at offset `at` from its [`SUPERBLOCK_SIZE`] bytes.
    pub fn parse(bytes: &[u8], at: Physical) -> Result<Self, SuperblockError> {
        let (raw, _) =
            RawSuperblock::ref_from_prefix(bytes).map_err(|_| SuperblockError::TooShort)?;
        if raw.magic != MAGIC {
            return Err(SuperblockError::Magic(raw.magic));
        }
        let (checksum_kind, checksum) = verify_checksum(raw)?;
        if raw.bytenr.get() != at.0 {
            return Err(SuperblockError::Address { at, found: raw.bytenr.get() });
        }
        check_geometry(raw)?;
        check_roots(raw)?;
        raw.validated(checksum_kind, checksum, at)
    }

    /// Writes the copy for offset `at`, with that address and its own checksum.
    ///
    /// # Panics
    ///
    /// If the label has more than 255 bytes or the system chunks take more than
    /// [`SYS_CHUNK_ARRAY_SIZE`].
    pub fn encode(&self, at: Physical) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = RawSuperblock::new(self, at);
        let checksum = self.checksum_kind.compute(&raw.as_bytes()[CSUM_AREA..]);
        raw.csum = padded(checksum.as_bytes());
        zerocopy::transmute!(raw)
    }

    /// The names of the incompat bits and states that prevent reading.
    pub fn unreadable_features(&self) -> Vec<String> {
        let refused =
            IncompatFlags::from_bits_retain(self.incompat.bits() & !IncompatFlags::READABLE.bits());
        let mut names = flag_names(&refused);
        names.extend(flag_names(&self.flags.intersection(SuperblockFlags::REFUSED)));
        if !self.incompat.contains(IncompatFlags::MIXED_BACKREF) {
            names.push("no mixed-backref".to_owned());
        }
        names
    }
}

fn verify_checksum(raw: &RawSuperblock) -> Result<(ChecksumKind, Checksum), SuperblockError> {
    let number = raw.csum_type.get();
    let kind = ChecksumKind::try_from(number).map_err(|_| SuperblockError::ChecksumKind(number))?;
    let (stored, covered) = raw.as_bytes().split_at(CSUM_AREA);
    let found = kind.compute(covered);
    let expected =
        Checksum::from_slice(&stored[..kind.size()]).expect("a checksum of any kind fits its area");
    if found != expected {
        return Err(SuperblockError::Checksum { expected, found });
    }
    Ok((kind, expected))
}

fn check_geometry(raw: &RawSuperblock) -> Result<(), SuperblockError> {
    let sector = raw.sectorsize.get();
    let node = raw.nodesize.get();
    let leaf = raw.leafsize.get();
    if sector != SECTOR_SIZE {
        return Err(SuperblockError::SectorSize(sector));
    }
    let mixed = raw.incompat_flags.get() & IncompatFlags::MIXED_GROUPS.bits() != 0;
    let possible = node.is_power_of_two() && (SECTOR_SIZE..=(64 << 10)).contains(&node);
    if !possible || (mixed && node != SECTOR_SIZE) {
        return Err(SuperblockError::NodeSize(node));
    }
    if leaf != node {
        return Err(SuperblockError::LeafSize { leaf, node });
    }
    let size = raw.sys_chunk_array_size.get();
    if size < SYS_CHUNK_ARRAY_MIN
        || usize::try_from(size).is_ok_and(|size| size > SYS_CHUNK_ARRAY_SIZE)
    {
        return Err(SuperblockError::SysChunkArraySize(size));
    }
    if raw.num_devices.get() == 0 {
        return Err(SuperblockError::NoDevices);
    }
    Ok(())
}

fn check_roots(raw: &RawSuperblock) -> Result<(), SuperblockError> {
    for (tree, level, root) in [
        ("root tree", raw.root_level, raw.root),
        ("chunk tree", raw.chunk_root_level, raw.chunk_root),
        (LOG_ROOT_TREE, raw.log_root_level, raw.log_root),
    ] {
        if level > MAX_LEVEL {
            return Err(SuperblockError::Level { tree, level });
        }
        let logical = Logical(root.get());
        let missing = logical.0 == 0 && tree != LOG_ROOT_TREE;
        if missing || !logical.is_aligned(SECTOR_SIZE) {
            return Err(SuperblockError::RootAddress { tree, logical });
        }
    }
    let chunk = raw.chunk_root_generation.get();
    let own = raw.generation.get();
    if chunk > own {
        return Err(SuperblockError::ChunkGeneration { chunk, own });
    }
    Ok(())
}

/// The bytes, padded with zeros.
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut area = [0; N];
    area.get_mut(..bytes.len()).expect("it fits its area").copy_from_slice(bytes);
    area
}

impl RawSuperblock {
    fn new(superblock: &Superblock, at: Physical) -> Self {
        let Superblock { label, sys_chunk_array, metadata_uuid, .. } = superblock;
        assert!(label.len() <= LABEL_LEN_MAX, "the label is too long");
        let chunks_size = u32::try_from(sys_chunk_array.len()).expect("it fits its area");
        let own_uuid = superblock.incompat.contains(IncompatFlags::METADATA_UUID);
        Self {
            csum: [0; CSUM_AREA],
            fsid: superblock.fsid.into_bytes(),
            bytenr: at.0.into(),
            flags: superblock.flags.bits().into(),
            magic: MAGIC,
            generation: superblock.generation.into(),
            root: superblock.root.0.into(),
            chunk_root: superblock.chunk_root.0.into(),
            log_root: superblock.log_root.map_or(0, |root| root.0).into(),
            log_root_transid: superblock.log_root_transid.into(),
            total_bytes: superblock.total_bytes.into(),
            bytes_used: superblock.bytes_used.into(),
            root_dir_objectid: superblock.root_dir_objectid.into(),
            num_devices: superblock.num_devices.into(),
            sectorsize: superblock.sectorsize.into(),
            nodesize: superblock.nodesize.into(),
            leafsize: superblock.nodesize.into(),
            stripesize: superblock.stripesize.into(),
            sys_chunk_array_size: chunks_size.into(),
            chunk_root_generation: superblock.chunk_root_generation.into(),
            compat_flags: superblock.compat.into(),
            compat_ro_flags: superblock.compat_ro.bits().into(),
            incompat_flags: superblock.incompat.bits().into(),
            csum_type: superblock.checksum_kind.to_disk().into(),
            root_level: superblock.root_level,
            chunk_root_level: superblock.chunk_root_level,
            log_root_level: superblock.log_root_level,
            dev_item: (&superblock.device).into(),
            label: padded(label),
            cache_generation: superblock.cache_generation.into(),
            uuid_tree_generation: superblock.uuid_tree_generation.into(),
            metadata_uuid: if own_uuid { metadata_uuid.into_bytes() } else { [0; 16] },
            reserved: superblock.reserved.map(U64::from),
            sys_chunk_array: padded(sys_chunk_array),
            backup_roots: superblock.backup_roots.each_ref().map(RawBackupRoot::from),
            padding: [0; 565],
        }
    }

    fn validated(
        &self,
        checksum_kind: ChecksumKind,
        checksum: Checksum,
        physical: Physical,
    ) -> Result<Superblock, SuperblockError> {
        let incompat = IncompatFlags::from_bits_retain(self.incompat_flags.get());
        let fsid = Uuid::from_bytes(self.fsid);
        let metadata_uuid = if incompat.contains(IncompatFlags::METADATA_UUID) {
            Uuid::from_bytes(self.metadata_uuid)
        } else {
            fsid
        };
        let device = self.dev_item.get()?;
        if device.fsid != metadata_uuid {
            let found = device.fsid;
            return Err(SuperblockError::DeviceFsid { expected: metadata_uuid, found });
        }
        let array_len = usize::try_from(self.sys_chunk_array_size.get())
            .expect("the size was checked against the array");
        let label_len = self.label.iter().position(|&b| b == 0).unwrap_or(self.label.len());
        Ok(Superblock {
            checksum_kind,
            checksum,
            fsid,
            physical,
            flags: SuperblockFlags::from_bits_retain(self.flags.get()),
            generation: self.generation.get(),
            root: Logical(self.root.get()),
            root_level: self.root_level,
            chunk_root: Logical(self.chunk_root.get()),
            chunk_root_level: self.chunk_root_level,
            chunk_root_generation: self.chunk_root_generation.get(),
            log_root: Some(Logical(self.log_root.get())).filter(|root| root.0 != 0),
            log_root_level: self.log_root_level,
            log_root_transid: self.log_root_transid.get(),
            total_bytes: self.total_bytes.get(),
            bytes_used: self.bytes_used.get(),
            root_dir_objectid: self.root_dir_objectid.get(),
            num_devices: self.num_devices.get(),
            sectorsize: self.sectorsize.get(),
            nodesize: self.nodesize.get(),
            stripesize: self.stripesize.get(),
            compat: self.compat_flags.get(),
            compat_ro: CompatRoFlags::from_bits_retain(self.compat_ro_flags.get()),
            incompat,
            device,
            label: self.label[..label_len].to_vec(),
            cache_generation: self.cache_generation.get(),
            uuid_tree_generation: self.uuid_tree_generation.get(),
            metadata_uuid,
            reserved: self.reserved.map(U64::get),
            sys_chunk_array: self.sys_chunk_array[..array_len].to_vec(),
            backup_roots: std::array::from_fn(|i| self.backup_roots[i].get()),
        })
    }
}

impl From<&BackupRoot> for RawBackupRoot {
    fn from(backup: &BackupRoot) -> Self {
        let roots = [
            (backup.tree_root, backup.tree_root_generation),
            (backup.chunk_root, backup.chunk_root_generation),
            (backup.extent_root, backup.extent_root_generation),
            (backup.fs_root, backup.fs_root_generation),
            (backup.dev_root, backup.dev_root_generation),
            (backup.csum_root, backup.csum_root_generation),
        ];
        Self {
            roots: roots.map(|(root, generation)| [root.0.into(), generation.into()]),
            total_bytes: backup.total_bytes.into(),
            bytes_used: backup.bytes_used.into(),
            num_devices: backup.num_devices.into(),
            unused: [U64::ZERO; 4],
            levels: backup.levels,
            padding: [0; 10],
        }
    }
}

impl RawBackupRoot {
    fn get(&self) -> BackupRoot {
        let [tree, chunk, extent, fs, dev, csum] =
            self.roots.map(|[root, generation]| (Logical(root.get()), generation.get()));
        BackupRoot {
            tree_root: tree.0,
            tree_root_generation: tree.1,
            chunk_root: chunk.0,
            chunk_root_generation: chunk.1,
            extent_root: extent.0,
            extent_root_generation: extent.1,
            fs_root: fs.0,
            fs_root_generation: fs.1,
            dev_root: dev.0,
            dev_root_generation: dev.1,
            csum_root: csum.0,
            csum_root_generation: csum.1,
            total_bytes: self.total_bytes.get(),
            bytes_used: self.bytes_used.get(),
            num_devices: self.num_devices.get(),
            levels: self.levels,
        }
    }
}
