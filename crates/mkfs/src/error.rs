//! Why no filesystem is made.

use thiserror::Error;
use userbtrfs_device::DeviceError;
use userbtrfs_format::Profile;

/// Why no filesystem is made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// The first chunks do not fit.
    #[error("{have} bytes are too small for a filesystem, it needs at least {need}")]
    TooSmall {
        /// Bytes that are needed with these options.
        need: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// There is something on the device.
    #[error("there is {found} on it already; not overwritten without force")]
    NotEmpty {
        /// What was found.
        found: &'static str,
    },
    /// The node size is no power of two from 4 to 64 KiB.
    #[error("node size {0} is impossible: it is a power of two from 4096 to 65536")]
    NodeSize(u32),
    /// Mixed block groups with nodes larger than a sector.
    #[error("with mixed block groups the node size must be 4096, not {0}")]
    MixedNodeSize(u32),
    /// Mixed block groups with two profiles.
    #[error(
        "with mixed block groups data ({}) must be kept like metadata ({})",
        data.name(),
        metadata.name()
    )]
    MixedProfiles {
        /// How data shall be kept.
        data: Profile,
        /// How metadata shall be kept.
        metadata: Profile,
    },
    /// A profile that needs several devices.
    #[error("profile {} needs several devices, only one is supported", .0.name())]
    Profile(Profile),
    /// A block group tree without a free space tree.
    #[error("a block group tree needs a free space tree")]
    BlockGroupTree,
    /// The label is too long.
    #[error("the label has {0} bytes, at most 255 are possible")]
    LabelLength(usize),
    /// The label holds a newline or NUL.
    #[error("the label holds a newline or NUL")]
    LabelCharacter,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
