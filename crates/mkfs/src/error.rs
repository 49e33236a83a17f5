//! Errors of creating a filesystem.

use thiserror::Error;
use userbtrfs_device::DeviceError;
use userbtrfs_format::Profile;

/// The reason why no filesystem is created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// The device is too small for the initial chunks.
    #[error("{have} bytes are too small for a filesystem, it needs at least {need}")]
    TooSmall {
        /// The number of bytes needed with these options.
        need: u64,
        /// The size of the device.
        have: u64,
    },
    /// The device has existing content.
    #[error("contains {found} (use --force to overwrite)")]
    NotEmpty {
        /// A description of the content.
        found: &'static str,
    },
    /// The node size is not a power of two from 4 to 64 KiB.
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
        /// The profile of data.
        data: Profile,
        /// The profile of metadata.
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

impl MkfsError {
    /// Returns the errno for a caller that reports numbers, with the numbers of Linux. One of the
    /// device is that of [`DeviceError::errno`].
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::NotEmpty { .. } => 17,
            Self::TooSmall { .. } => 28,
            Self::NodeSize(_)
            | Self::MixedNodeSize(_)
            | Self::MixedProfiles { .. }
            | Self::Profile(_)
            | Self::BlockGroupTree
            | Self::LabelLength(_)
            | Self::LabelCharacter => 22,
        }
    }
}
