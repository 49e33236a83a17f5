//! The errors of mounting and unmounting.

use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

/// Why mounting or unmounting failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MountError {
    /// The kernel has no FUSE, or this user may not use it.
    #[error("/dev/fuse: {0}")]
    Device(Errno),
    /// The mount point cannot be used.
    #[error("{}: {error}", path.display())]
    Point {
        /// The mount point.
        path: PathBuf,
        /// The reason.
        error: Errno,
    },
    /// mount(2) or umount(2) failed.
    #[error("{}: {call} failed: {error}", path.display())]
    System {
        /// The name of the call.
        call: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The reason.
        error: Errno,
    },
    /// The mount still exists, but is not found at its mount point.
    #[error("{}: what was mounted is not found there any more", path.display())]
    Elsewhere {
        /// The mount point.
        path: PathBuf,
    },
    /// An option contains a NUL.
    #[error("an option has a NUL")]
    Nul,
    /// Only root can mount a block device.
    #[error("only root mounts a block device")]
    BlockDevice,
    /// `fusermount3` could not be run.
    #[error("fusermount3, which mounts for users, cannot be run: {0}")]
    NoHelper(String),
    /// `fusermount3` failed, with this message.
    #[error("{0}")]
    Helper(String),
}

impl MountError {
    /// Returns true if the mount is not found at its mount point: another process detached it, or
    /// mounted something over it.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Elsewhere { .. })
    }

    /// Returns the error number that mount(2) or umount(2) would fail with.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Device(error) | Self::Point { error, .. } | Self::System { error, .. } => *error,
            // That of umount(2) for a path where nothing is mounted.
            Self::Elsewhere { .. } | Self::Nul => Errno::INVAL,
            Self::BlockDevice => Errno::PERM,
            Self::NoHelper(_) => Errno::NOENT,
            Self::Helper(_) if self.is_busy() => Errno::BUSY,
            Self::Helper(_) => Errno::IO,
        };
        errno.raw_os_error()
    }

    /// Returns true if the filesystem is still in use.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::System { error, .. } => *error == Errno::BUSY,
            // The path precedes the reason.
            Self::Helper(message) => message.rsplit(": ").next().unwrap_or("").contains("busy"),
            _ => false,
        }
    }
}
