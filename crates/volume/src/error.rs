//! Errors of opening a volume, and of reading and writing ranges.

use std::fmt;

use thiserror::Error;
use userbtrfs_device::DeviceError;
use userbtrfs_format::{
    BlockError, Chunk, ItemError, Logical, Physical, Profile, SuperblockError, TreeId,
};

/// The reason why a volume cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A device cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is too small for a superblock.
    #[error("{len} bytes are too few for a btrfs filesystem")]
    TooSmall {
        /// The size of the device.
        len: u64,
    },
    /// No copy of the superblock is good.
    #[error("no valid superblock: primary: {primary}{}", list_mirrors(.mirrors))]
    Superblock {
        /// The error of the primary copy.
        primary: SuperblockMirrorError,
        /// The errors of the mirrors.
        mirrors: Vec<(Physical, SuperblockMirrorError)>,
    },
    /// Features that are not supported.
    #[error("unsupported feature{}: {}", plural(.0.len()), .0.join(", "))]
    Features(Vec<String>),
    /// A number of devices other than one.
    #[error("the filesystem has {count} devices, only one is supported")]
    Devices {
        /// The number of devices.
        count: u64,
    },
    /// The device is not the one in the chunk tree.
    #[error("device {id} is not the one that the chunk tree lists")]
    DeviceMissing {
        /// Its device id.
        id: u64,
    },
    /// The device is shorter than the filesystem.
    #[error("truncated: the device has {have} bytes, the filesystem needs {need}")]
    Truncated {
        /// The size of the device according to the superblock.
        need: u64,
        /// The actual size of the device.
        have: u64,
    },
    /// The system chunk array is damaged.
    #[error("system chunk array: {0}")]
    SysChunkArray(ItemError),
    /// A chunk overlaps another.
    #[error("chunk at {logical} of {len} bytes overlaps the chunk at {other}")]
    ChunkOverlap {
        /// Its start.
        logical: Logical,
        /// Its length.
        len: u64,
        /// The other's start.
        other: Logical,
    },
    /// A stripe does not lie on its device.
    #[error("chunk at {logical}: stripe at {physical} of {len} bytes is outside device {device}")]
    StripeOutside {
        /// The chunk.
        logical: Logical,
        /// The start of the stripe.
        physical: Physical,
        /// Its length.
        len: u64,
        /// The device.
        device: u64,
    },
    /// A chunk refers to a missing device.
    #[error("chunk at {logical} is on device {device}, which is missing")]
    StripeDevice {
        /// The chunk.
        logical: Logical,
        /// The device.
        device: u64,
    },
    /// A chunk has a profile that is not supported.
    #[error(
        "chunk at {logical}: profile {} of {stripes} stripes is not supported",
        .profile.name(),
    )]
    Profile {
        /// The chunk.
        logical: Logical,
        /// Its profile.
        profile: Profile,
        /// The number of its stripes.
        stripes: usize,
    },
    /// The chunk tree cannot be read.
    #[error("chunk tree: {0}")]
    ChunkTree(#[from] ReadError),
    /// Write access was requested, but the device is open for reading only.
    #[error("cannot be written: {device} is open for reading only")]
    DeviceReadOnly {
        /// The device's name.
        device: Box<str>,
    },
    /// Write access was requested, but features or states forbid it.
    #[error("cannot be written: {}", .0.join(", "))]
    Unwritable(Vec<String>),
    /// Write access was requested, but a field of the superblock has a value with which Linux does
    /// not mount the filesystem, or that would overflow.
    #[error("cannot be written: superblock: invalid {field} {value}")]
    UnwritableField {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Write access was requested, but `total_bytes` of the superblock is below the device size.
    #[error(
        "cannot be written: superblock: total_bytes {total} is less than the {device} of the device"
    )]
    UnwritableTotal {
        /// `total_bytes` of the superblock.
        total: u64,
        /// The size of the device in the chunk tree.
        device: u64,
    },
    /// Write access was requested, but the device is smaller than its size in the chunk tree.
    #[error("cannot be written: device {id} has {have} bytes, the chunk tree lists {listed}")]
    UnwritableDeviceSize {
        /// The device id.
        id: u64,
        /// The size in the chunk tree.
        listed: u64,
        /// The actual size of the device.
        have: u64,
    },
    /// Write access was requested, but the primary superblock is damaged: data fsynced after the
    /// mirror's generation would be lost.
    #[error(
        "cannot be written: the primary superblock is damaged ({primary}), \
         and the copy at {used} may be older; a log that was pending may be lost"
    )]
    UnwritableFromMirror {
        /// The error of the primary superblock.
        primary: SuperblockMirrorError,
        /// The mirror that could be read.
        used: Physical,
    },
    /// Write access was requested, but a log is pending.
    #[error("cannot be written: a log is pending after generation {generation}")]
    UnwritableBeforeReplay {
        /// The generation of the commit it follows.
        generation: u64,
    },
}

/// The reason why a copy of the superblock is not used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuperblockMirrorError {
    /// The device failed to read it, with this message.
    #[error("{0}")]
    Unreadable(String),
    /// A check failed.
    #[error(transparent)]
    Content(#[from] SuperblockError),
}

impl OpenError {
    pub(crate) fn overlap(chunk: &Chunk, other: Logical) -> Self {
        Self::ChunkOverlap { logical: chunk.logical, len: chunk.len, other }
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn list_mirrors(mirrors: &[(Physical, SuperblockMirrorError)]) -> String {
    let each = mirrors.iter().map(|(at, error)| format!("; copy at {at}: {error}"));
    each.collect::<Vec<_>>().concat()
}

/// The reason why a range cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No chunk holds the range, or it crosses the end of one.
    #[error("logical range {logical} of {len} bytes lies in no chunk")]
    Unmapped {
        /// Its start.
        logical: Logical,
        /// Its length in bytes.
        len: u64,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No copy of a tree block is good.
    #[error("tree block {logical} of tree {tree}: {}", list_copies(.copies))]
    Block {
        /// The block.
        logical: Logical,
        /// The tree through which it was reached.
        tree: TreeId,
        /// The error of each copy.
        copies: Vec<(Physical, MirrorError)>,
    },
    /// A tree has more blocks than fit on the device.
    #[error("tree {tree} has more than {bound} blocks, which is all that fit")]
    TooManyBlocks {
        /// The tree.
        tree: TreeId,
        /// The maximum number of blocks.
        bound: u64,
    },
}

/// The reason why a range cannot be written or discarded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The volume was opened for reading.
    #[error("{device}: the filesystem is open for reading only")]
    ReadOnly {
        /// The device's name.
        device: Box<str>,
    },
    /// Writing was stopped: see [`Volume::stop_writing`](crate::Volume::stop_writing).
    #[error("{device}: the filesystem was shut down")]
    Stopped {
        /// The device's name.
        device: Box<str>,
    },
    /// No chunk holds the range, or it crosses the end of one.
    #[error("logical range {logical} of {len} bytes lies in no chunk")]
    Unmapped {
        /// Its start.
        logical: Logical,
        /// Its length in bytes.
        len: u64,
    },
    /// The range overlaps a copy of the superblock.
    #[error("logical range {logical} of {len} bytes: its copy at {physical} is on a superblock")]
    OnSuperblock {
        /// Its start.
        logical: Logical,
        /// Its length in bytes.
        len: u64,
        /// The start of the copy of the range.
        physical: Physical,
    },
    /// A device failed to write a copy of a range.
    #[error("logical range {logical}: {source}")]
    Range {
        /// Its start.
        logical: Logical,
        /// The error of the device, which contains the physical offset.
        source: DeviceError,
    },
    /// A flush of a device failed.
    #[error(transparent)]
    Flush(DeviceError),
    /// An earlier flush or superblock write failed: later writes may be lost, too.
    #[error("{device}: what was written may be lost, since an earlier flush failed")]
    NotDurable {
        /// The device's name.
        device: Box<str>,
    },
    /// A device failed to write a copy of the superblock.
    #[error("superblock copy at {at}: {source}")]
    Superblock {
        /// The offset of the copy.
        at: Physical,
        /// The error of the device.
        source: DeviceError,
    },
}

/// The error of one copy of a tree block.
#[derive(Debug, Error)]
pub enum MirrorError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A check failed.
    #[error(transparent)]
    Block(#[from] BlockError),
}

struct MirrorList<'a>(&'a [(Physical, MirrorError)]);

fn list_copies(copies: &[(Physical, MirrorError)]) -> MirrorList<'_> {
    MirrorList(copies)
}

impl fmt::Display for MirrorList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (physical, error)) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}copy at {physical}: {error}")?;
        }
        Ok(())
    }
}
