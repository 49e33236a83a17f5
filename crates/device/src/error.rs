//! The description of a request for messages, and the errors of devices.

use std::fmt;
use std::io;

use thiserror::Error;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads bytes from the device.
    Read,
    /// Writes bytes to the device.
    Write,
    /// Makes completed writes durable.
    Flush,
    /// Discards bytes of the device.
    Discard,
}

/// The kind and the range of a request: part of every error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The kind of the request.
    pub operation: Operation,
    /// First byte on the device; 0 for a flush.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub len: u64,
}

impl Access {
    /// Fails if the access exceeds a device of `len` bytes, or changes one that is read-only.
    pub(crate) fn check(self, device: &str, len: u64, read_only: bool) -> Result<(), DeviceError> {
        let changes = matches!(self.operation, Operation::Write | Operation::Discard);
        if changes && read_only {
            return Err(DeviceError::ReadOnly { device: device.into(), access: self });
        }
        match self.offset.checked_add(self.len) {
            Some(end) if end <= len => Ok(()),
            _ => {
                Err(DeviceError::BeyondEnd { device: device.into(), access: self, device_len: len })
            }
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => return formatter.write_str("flush"),
            Operation::Discard => "discard",
        };
        write!(formatter, "{verb} of {} bytes at {}", self.len, self.offset)
    }
}

/// The reason why a device could not be opened or a request could not be done. `device` is the name
/// that [`Device::name`](crate::Device::name) returns.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system reported an error. EIO is a failing medium; ENOSPC is a full disk
    /// below a sparse image file, which the filesystem in the image cannot see. Part of a write may
    /// have been done.
    #[error("{device}: {access}: {source}")]
    Io {
        /// The device.
        device: Box<str>,
        /// The request that failed.
        access: Access,
        /// The system's error.
        source: io::Error,
    },
    /// The system moved fewer bytes although the request lies on the device: the file was
    /// truncated, or the device shrank, since it was opened.
    #[error("{device}: {access}: ended early, after {done} bytes")]
    Short {
        /// The device.
        device: Box<str>,
        /// The request that failed.
        access: Access,
        /// Bytes moved before the end.
        done: u64,
    },
    /// The request exceeds the device.
    #[error("{device}: {access}: beyond the end of the device at {device_len}")]
    BeyondEnd {
        /// The device.
        device: Box<str>,
        /// The request.
        access: Access,
        /// Length of the device in bytes.
        device_len: u64,
    },
    /// A write or a discard on a device opened for reading.
    #[error("{device}: {access}: the device is read-only")]
    ReadOnly {
        /// The device.
        device: Box<str>,
        /// The request.
        access: Access,
    },
    /// The device does not support this request (usually discard).
    #[error("{device}: {access}: not supported by the device")]
    Unsupported {
        /// The device.
        device: Box<str>,
        /// The request.
        access: Access,
    },
    /// The changes kept in memory would exceed their bound.
    #[error("{device}: {access}: changes in memory would take more than {max} bytes")]
    OverlayFull {
        /// The device below.
        device: Box<str>,
        /// The request.
        access: Access,
        /// The bound, in bytes.
        max: usize,
    },
    /// The file could not be opened or measured.
    #[error("{device}: {source}")]
    Open {
        /// The path.
        device: Box<str>,
        /// The system's error.
        source: io::Error,
    },
    /// The device, or the filesystem that holds the image, is write-protected.
    #[error("{device}: is read-only")]
    WriteProtected {
        /// The path.
        device: Box<str>,
    },
    /// The filesystem that holds the image has no file locks.
    #[error("{device}: cannot be locked: {source}")]
    NoLocks {
        /// The path.
        device: Box<str>,
        /// The system's error.
        source: io::Error,
    },
    /// The image is open for writing already, in this or another process; or it is open for
    /// reading with writers excluded, and was to be opened for writing.
    #[error("{device}: is locked: open for writing or mounted")]
    Locked {
        /// The path.
        device: Box<str>,
    },
    /// The kernel reports the block device as in use: it is usually mounted. Or the kernel has the
    /// file mounted through a loop device.
    #[error("{device}: is mounted, or in use otherwise")]
    InUse {
        /// The path.
        device: Box<str>,
    },
    /// The path names neither a regular file nor a block device.
    #[error("{device}: is a {kind}, not a regular file or a block device")]
    NotADevice {
        /// The path.
        device: Box<str>,
        /// The kind of file that it is.
        kind: &'static str,
    },
    /// The region begins beyond the end of the image, or ends there.
    #[error("{device}: the region of {len} bytes at {start} is outside its {device_len} bytes")]
    RegionOutside {
        /// The path.
        device: Box<str>,
        /// The first byte of the region.
        start: u64,
        /// Its length in bytes.
        len: u64,
        /// The length of the image in bytes.
        device_len: u64,
    },
    /// The partition table cannot be read.
    #[error("{device}: partition table: {why}")]
    PartitionTable {
        /// The path.
        device: Box<str>,
        /// Why not.
        why: String,
    },
    /// There is no such partition.
    #[error("{device}: no partition {number}")]
    NoPartition {
        /// The path.
        device: Box<str>,
        /// Its number.
        number: u32,
    },
    /// Direct I/O was requested and the file does not support it.
    #[error("{device}: direct I/O refused: {source}")]
    DirectRefused {
        /// The path.
        device: Box<str>,
        /// The reason.
        source: io::Error,
    },
    /// io_uring was requested and this process may not use it.
    #[error("{device}: io_uring refused: {source}")]
    RingRefused {
        /// The path.
        device: Box<str>,
        /// The reason.
        source: io::Error,
    },
}

impl DeviceError {
    /// Returns the errno for a caller that reports numbers, with the numbers of Linux: that of
    /// open(2) if an image cannot be opened, otherwise EIO for failures of the device.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Open { source, .. } => source.raw_os_error().unwrap_or(5),
            Self::InUse { .. } | Self::Locked { .. } => 16,
            Self::NotADevice { .. } => 22,
            Self::WriteProtected { .. } => 30,
            _ => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_opening_has_the_errno_of_open() {
        let open = |source| DeviceError::Open { device: "/x".into(), source };
        assert_eq!(open(io::Error::from_raw_os_error(13)).errno(), 13);
        assert_eq!(open(io::Error::other("no number")).errno(), 5);
        assert_eq!(DeviceError::InUse { device: "/x".into() }.errno(), 16);
        assert_eq!(DeviceError::Locked { device: "/x".into() }.errno(), 16);
        assert_eq!(DeviceError::NotADevice { device: "/x".into(), kind: "pipe" }.errno(), 22);
        assert_eq!(DeviceError::WriteProtected { device: "/x".into() }.errno(), 30);
    }

    #[test]
    fn failed_request_is_eio_whatever_the_system_reports() {
        let access = Access { operation: Operation::Write, offset: 0, len: 1 };
        let full = io::Error::from_raw_os_error(28);
        assert_eq!(DeviceError::Io { device: "/x".into(), access, source: full }.errno(), 5);
        assert_eq!(DeviceError::ReadOnly { device: "/x".into(), access }.errno(), 5);
    }
}
