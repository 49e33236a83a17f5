//! What can be wrong with the books as they stand on disk.

use thiserror::Error;
use userbtrfs_format::{BlockGroupFlags, Logical, Physical};

/// A contradiction in what the filesystem says about its space. It can be read; written it
/// must not be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpaceDamage {
    /// A chunk has no block group.
    #[error("chunk at {0} has no block group")]
    NoBlockGroup(Logical),
    /// A block group has no chunk.
    #[error("block group at {0} has no chunk")]
    NoChunk(Logical),
    /// A block group is not what its chunk is.
    #[error(
        "block group at {start} has {len} bytes of type {flags:?}, \
         its chunk has {chunk_len} bytes of type {chunk_flags:?}"
    )]
    ChunkDiffers {
        /// Where both start.
        start: Logical,
        /// The length of the block group in bytes.
        len: u64,
        /// What it holds.
        flags: BlockGroupFlags,
        /// The length of the chunk in bytes.
        chunk_len: u64,
        /// What it holds.
        chunk_flags: BlockGroupFlags,
    },
    /// Data and metadata share a block group without the feature, or do not in spite of it.
    #[error("block group at {start} is of type {flags:?}, which does not fit the features")]
    Mixing {
        /// Where it starts.
        start: Logical,
        /// What it holds.
        flags: BlockGroupFlags,
    },
    /// Two chunks hold the same range of the device.
    #[error("chunk at {chunk}: another holds bytes of its stripe at {physical}")]
    StripeOverlap {
        /// The chunk.
        chunk: Logical,
        /// Where its stripe starts.
        physical: Physical,
    },
    /// A device extent is of no stripe of the chunk that it names.
    #[error("device extent at {physical} on device {device}: chunk {chunk} has no stripe there")]
    StrayDeviceExtent {
        /// The device.
        device: u64,
        /// Where it starts.
        physical: Physical,
        /// The chunk that it names.
        chunk: Logical,
    },
    /// A stripe of a chunk has no device extent.
    #[error("chunk at {chunk}: its stripe at {physical} has no device extent")]
    NoDeviceExtent {
        /// The chunk.
        chunk: Logical,
        /// Where its stripe starts.
        physical: Physical,
    },
    /// A device extent is not as long as its chunk.
    #[error("chunk at {chunk} has {chunk_len} bytes, its device extent at {physical} has {len}")]
    DeviceExtentLength {
        /// The chunk.
        chunk: Logical,
        /// Where the device extent starts.
        physical: Physical,
        /// The length of the device extent in bytes.
        len: u64,
        /// The length of the chunk in bytes.
        chunk_len: u64,
    },
    /// There are no block groups for the chunk tree, or none for the other trees.
    #[error("there is no {0} block group")]
    NoGroupOf(&'static str),
    /// A block that a tree log names is not free.
    #[error("{len} bytes at {logical}, of a tree log, are not free")]
    NotFree {
        /// Where it starts.
        logical: Logical,
        /// Its length in bytes.
        len: u64,
    },
    /// The free space tree does not list a block group.
    #[error("the free space tree does not know the block group at {0}")]
    NoFreeSpaceInfo(Logical),
    /// An item of the free space tree or an extent does not lie in its block group, or lies
    /// over another.
    #[error("block group at {start}: {len} bytes at {logical} lie outside it or over others")]
    Misplaced {
        /// The block group.
        start: Logical,
        /// Where the bytes start.
        logical: Logical,
        /// How many they are.
        len: u64,
    },
    /// Free space is kept in another form than the free space tree says.
    #[error("block group at {0}: free space in both forms")]
    FreeSpaceForm(Logical),
    /// The count of free ranges is wrong.
    #[error("block group at {start}: {found} free ranges, the count says {count}")]
    FreeSpaceCount {
        /// The block group.
        start: Logical,
        /// What the free space tree counts.
        count: u32,
        /// What it lists.
        found: usize,
    },
    /// Free and used bytes are not all bytes.
    #[error("block group at {start}: {free} bytes are free and {used} used of {len}")]
    Used {
        /// The block group.
        start: Logical,
        /// Its length in bytes.
        len: u64,
        /// What its item says.
        used: u64,
        /// What is free.
        free: u64,
    },
    /// A range that was given up was not in use.
    #[error("{len} bytes at {logical} were given up, but they are not in use")]
    NotInUse {
        /// Where they start.
        logical: Logical,
        /// How many they are.
        len: u64,
    },
}
