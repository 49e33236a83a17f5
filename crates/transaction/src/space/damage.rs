//! Contradictions in the records of space on disk.

use thiserror::Error;
use userbtrfs_format::{BlockGroupFlags, Logical, Physical};

/// A contradiction in the filesystem's records of its space. The filesystem can be read, but must
/// not be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpaceDamage {
    /// A chunk has no block group.
    #[error("chunk at {0} has no block group")]
    NoBlockGroup(Logical),
    /// A block group has no chunk.
    #[error("block group at {0} has no chunk")]
    NoChunk(Logical),
    /// A block group differs from its chunk.
    #[error(
        "block group at {start} has {len} bytes of type {flags:?}, \
         its chunk has {chunk_len} bytes of type {chunk_flags:?}"
    )]
    ChunkDiffers {
        /// Where both start.
        start: Logical,
        /// The length of the block group in bytes.
        len: u64,
        /// The type of the block group.
        flags: BlockGroupFlags,
        /// The length of the chunk in bytes.
        chunk_len: u64,
        /// The type of the chunk.
        chunk_flags: BlockGroupFlags,
    },
    /// A chunk has another sector size than the filesystem.
    #[error("chunk at {chunk} has a sector size of {found} bytes")]
    ChunkSectorSize {
        /// The chunk.
        chunk: Logical,
        /// Its sector size.
        found: u32,
    },
    /// A block group names an impossible owner of its chunk.
    #[error("block group at {start} says that its chunk belongs to object {found}")]
    ChunkObject {
        /// Where it starts.
        start: Logical,
        /// The object id that it names.
        found: u64,
    },
    /// Data and metadata share a block group without the feature, or do not share one with it.
    #[error("block group at {start} is of type {flags:?}, which does not fit the features")]
    Mixing {
        /// Where it starts.
        start: Logical,
        /// The type of the block group.
        flags: BlockGroupFlags,
    },
    /// Two chunks take the same range of the device.
    #[error("chunk at {chunk}: another holds bytes of its stripe at {physical}")]
    StripeOverlap {
        /// The chunk.
        chunk: Logical,
        /// Where its stripe starts.
        physical: Physical,
    },
    /// A device extent belongs to no stripe of the chunk that it refers to.
    #[error("device extent at {physical} on device {device}: chunk {chunk} has no stripe there")]
    StrayDeviceExtent {
        /// The device.
        device: u64,
        /// Where it starts.
        physical: Physical,
        /// The chunk that it refers to.
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
    /// A block that a tree log refers to is not free.
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
    /// An item of the free space tree or an extent does not lie in its block group, or overlaps
    /// another one.
    #[error("block group at {start}: {len} bytes at {logical} lie outside it or over others")]
    Misplaced {
        /// The block group.
        start: Logical,
        /// Where the bytes start.
        logical: Logical,
        /// Their number.
        len: u64,
    },
    /// Free space has another form than its free space info item says.
    #[error("block group at {0}: free space in both forms")]
    FreeSpaceForm(Logical),
    /// The count of free ranges is wrong.
    #[error("block group at {start}: {found} free ranges, the count says {count}")]
    FreeSpaceCount {
        /// The block group.
        start: Logical,
        /// The count in the free space tree.
        count: u32,
        /// The number of ranges found.
        found: usize,
    },
    /// Free and used bytes do not add up to all bytes.
    #[error("block group at {start}: {free} bytes are free and {used} used of {len}")]
    Used {
        /// The block group.
        start: Logical,
        /// Its length in bytes.
        len: u64,
        /// The used bytes in its item.
        used: u64,
        /// The free bytes.
        free: u64,
    },
    /// A range that is to be freed is not in use.
    #[error("{len} bytes at {logical} were given up, but they are not in use")]
    NotInUse {
        /// Where they start.
        logical: Logical,
        /// Their number.
        len: u64,
    },
}
