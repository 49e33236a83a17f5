//! The sizes that a filesystem can have.

use rustix::io::Errno;
use userbtrfs_format::SECTOR;

use super::outcome::Outcome;

/// The least size that a filesystem is resized to, in bytes.
pub(crate) const SIZE_MIN: u64 = 256 << 20;

/// The sizes of a device and of the filesystem on it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) device: u64,
    pub(super) filesystem: u64,
}

impl Sizes {
    /// Returns the sizes if the filesystem takes all of the device.
    pub(super) fn of_device(bytes: u64) -> Self {
        Self { device: bytes, filesystem: bytes / SECTOR * SECTOR }
    }

    /// Returns the sizes after the filesystem is resized.
    pub(super) fn resized(self, bytes: u64) -> Outcome<Self> {
        if bytes < SIZE_MIN {
            return Err(Errno::INVAL);
        }
        if bytes > self.device {
            return Err(Errno::FBIG);
        }
        Ok(Self { filesystem: bytes / SECTOR * SECTOR, ..self })
    }
}
