//! What a request asks of a device, in few words, and every way a device fails.

use std::fmt;
use std::io;

use thiserror::Error;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bytes from the device.
    Read,
    /// Bytes to the device.
    Write,
    /// Completed writes to durable media.
    Flush,
    /// Bytes given back to the device.
    Discard,
}

/// What a request touches: named in every error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What is done.
    pub operation: Operation,
    /// First byte on the device; 0 for a flush.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub len: u64,
}

impl Access {
    /// Refuses what leaves a device of `device_len` bytes, or changes one that is read-only.
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

/// Why a device could not be opened or a request could not be done. `device` is the name that
/// [`Device::name`](crate::Device::name) gives.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system reported an error. EIO is a failing medium; ENOSPC is a full disk
    /// below a sparse image file, of which the filesystem in the image knows nothing. Part of a
    /// write may have been done.
    #[error("{device}: {access}: {source}")]
    Io {
        /// The device.
        device: Box<str>,
        /// The request that failed.
        access: Access,
        /// The system's error.
        source: io::Error,
    },
    /// The system moved no more bytes though the request lies on the device: the file was cut, or
    /// the device shrank, since it was opened.
    #[error("{device}: {access}: ended early, after {done} bytes")]
    Short {
        /// The device.
        device: Box<str>,
        /// The request that failed.
        access: Access,
        /// Bytes moved before the end.
        done: u64,
    },
    /// The request leaves the device.
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
    /// The device cannot do this at all (discard, mostly).
    #[error("{device}: {access}: not supported by the device")]
    Unsupported {
        /// The device.
        device: Box<str>,
        /// The request.
        access: Access,
    },
    /// Changes that are kept in memory would take more of it than they may.
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
    /// The image is open for writing already, here or in another process; or, where it was to be
    /// written, it is open to be read in peace.
    #[error("{device}: is locked: it is open for writing already, or mounted to be read")]
    Locked {
        /// The path.
        device: Box<str>,
    },
    /// The kernel keeps the block device for someone else: it is mounted, mostly. Or it has the
    /// file mounted, by way of a loop device.
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
        /// What it is.
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
    /// Direct I/O was demanded and the file does not take it.
    #[error("{device}: direct I/O refused: {source}")]
    DirectRefused {
        /// The path.
        device: Box<str>,
        /// The reason.
        source: io::Error,
    },
    /// io_uring was demanded and this process may not use it.
    #[error("{device}: io_uring refused: {source}")]
    RingRefused {
        /// The path.
        device: Box<str>,
        /// The reason.
        source: io::Error,
    },
}
