//! Why a volume does not open, and why a range cannot be read or written.

use std::fmt;

use thiserror::Error;
use userbtrfs_device::DeviceError;
use userbtrfs_format::{
    BlockError, Chunk, ItemError, Logical, Physical, Profile, SuperblockError, TreeId,
};

/// Why a volume does not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A device cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Too small to hold a superblock.
    #[error("{len} bytes are too few for a btrfs filesystem")]
    TooSmall {
        /// The size of the device.
        len: u64,
    },
    /// No copy of the superblock is good.
    #[error("no valid superblock: primary: {primary}{}", list_mirrors(.mirrors))]
    Superblock {
        /// What is wrong with the first copy.
        primary: SuperblockMirrorError,
        /// What is wrong with the others.
        mirrors: Vec<(Physical, SuperblockMirrorError)>,
    },
    /// Features that are not understood.
    #[error("unsupported feature{}: {}", plural(.0.len()), .0.join(", "))]
    Features(Vec<String>),
    /// More or fewer devices than one.
    #[error("the filesystem has {count} devices, only one is supported")]
    Devices {
        /// How many there are.
        count: u64,
    },
    /// The chunk tree does not list the device.
    #[error("device {id} is not the one that the chunk tree lists")]
    DeviceMissing {
        /// Its number.
        id: u64,
    },
    /// The device is shorter than the filesystem.
    #[error("truncated: the device has {have} bytes, the filesystem needs {need}")]
    Truncated {
        /// What the superblock says.
        need: u64,
        /// What is there.
        have: u64,
    },
    /// The system chunk array is damaged.
    #[error("system chunk array: {0}")]
    SysChunkArray(ItemError),
    /// A chunk overlaps another.
    #[error("chunk at {logical} of {len} bytes overlaps the chunk at {other}")]
    ChunkOverlap {
        /// Where it starts.
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
        /// Where the stripe starts.
        physical: Physical,
        /// Its length.
        len: u64,
        /// The device.
        device: u64,
    },
    /// A chunk names a device that is not there.
    #[error("chunk at {logical} is on device {device}, which is missing")]
    StripeDevice {
        /// The chunk.
        logical: Logical,
        /// The device.
        device: u64,
    },
    /// A chunk with a profile that is not supported.
    #[error(
        "chunk at {logical}: profile {} of {stripes} stripes is not supported",
        .profile.name(),
    )]
    Profile {
        /// The chunk.
        logical: Logical,
        /// Its profile.
        profile: Profile,
        /// Its stripes.
        stripes: usize,
    },
    /// The chunk tree cannot be read.
    #[error("chunk tree: {0}")]
    ChunkTree(#[from] ReadError),
    /// Writing was asked for, and the device is open for reading alone.
    #[error("cannot be written: {device} is open for reading only")]
    DeviceReadOnly {
        /// The device's name.
        device: Box<str>,
    },
    /// Writing was asked for, and features or states forbid it.
    #[error("cannot be written: {}", .0.join(", "))]
    Unwritable(Vec<String>),
    /// Writing was asked for, and a field of the superblock has a value that Linux does not mount,
    /// or that cannot be counted on from.
    #[error("cannot be written: superblock: invalid {field} {value}")]
    UnwritableField {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Writing was asked for, and the superblock counts fewer bytes than the device has.
    #[error(
        "cannot be written: superblock: total_bytes {total} is less than the {device} of the device"
    )]
    UnwritableTotal {
        /// The count in the superblock.
        total: u64,
        /// The size of the device, as the chunk tree lists it.
        device: u64,
    },
    /// Writing was asked for, and the chunk tree lists the device as larger than it is.
    #[error("cannot be written: device {id} has {have} bytes, the chunk tree lists {listed}")]
    UnwritableDeviceSize {
        /// The number of the device.
        id: u64,
        /// The size that the chunk tree lists.
        listed: u64,
        /// The size that the device has.
        have: u64,
    },
    /// Writing was asked for, and the primary superblock is damaged: what was fsynced after the
    /// mirror's generation would be lost.
    #[error(
        "cannot be written: the primary superblock is damaged ({primary}), \
         and the copy at {used} may be older"
    )]
    UnwritableFromMirror {
        /// What is wrong with the primary.
        primary: SuperblockMirrorError,
        /// The copy that could be read.
        used: Physical,
    },
    /// Writing was asked for, and a log waits to be replayed.
    #[error("cannot be written: a log is pending after generation {generation}")]
    UnwritableBeforeReplay {
        /// The generation of the commit it follows.
        generation: u64,
    },
}

/// Why a copy of the superblock is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuperblockMirrorError {
    /// The device does not give it; this is what it says.
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

/// Why a range cannot be read.
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
        /// What is wrong with each copy.
        copies: Vec<(Physical, MirrorError)>,
    },
    /// A tree has more blocks than fit on the device.
    #[error("tree {tree} has more than {bound} blocks, which is all that fit")]
    TooManyBlocks {
        /// The tree.
        tree: TreeId,
        /// How many can be.
        bound: u64,
    },
}

/// Why a range cannot be written or given back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The volume was opened for reading.
    #[error("{device}: the filesystem is open for reading only")]
    ReadOnly {
        /// The device's name.
        device: Box<str>,
    },
    /// Nothing is written any more: see [`Volume::stop_writing`](crate::Volume::stop_writing).
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
    /// The range would fall on a copy of the superblock.
    #[error("logical range {logical} of {len} bytes: its copy at {physical} is on a superblock")]
    OnSuperblock {
        /// Its start.
        logical: Logical,
        /// Its length in bytes.
        len: u64,
        /// Where the copy starts.
        physical: Physical,
    },
    /// A device failed to write a copy of a range.
    #[error("logical range {logical}: {source}")]
    Range {
        /// Its start.
        logical: Logical,
        /// What the device says; it names the place.
        source: DeviceError,
    },
    /// A device failed to make durable what it was given.
    #[error(transparent)]
    Flush(DeviceError),
    /// Something failed before that was to make writes durable: these may be lost, too.
    #[error("{device}: what was written may be lost, since an earlier flush failed")]
    NotDurable {
        /// The device's name.
        device: Box<str>,
    },
    /// A device failed to write a copy of the superblock.
    #[error("superblock copy at {at}: {source}")]
    Superblock {
        /// Which copy.
        at: Physical,
        /// What the device says.
        source: DeviceError,
    },
}

/// What is wrong with one copy of a tree block.
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
