//! Requests and their completions.

use crate::buffer::Buffer;
use crate::error::{Access, DeviceError, Operation};
use crate::slice::Slice;

/// A request to a device. Offsets and lengths are in bytes, of any value.
#[derive(Debug)]
pub enum Request {
    /// Fills `buffer` from `offset`.
    Read {
        /// First byte.
        offset: u64,
        /// The buffer to fill; its length is the length of the read.
        buffer: Buffer,
    },
    /// Writes all of `buffer`, a slice of a shared buffer, at `offset`.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        buffer: Slice,
        /// Complete only when these bytes are durable (force unit access).
        fua: bool,
    },
    /// Makes every write that has completed durable.
    Flush,
    /// Discards bytes that are not needed. A later read of them returns unspecified bytes. Partial
    /// sectors at both ends may be left unchanged.
    Discard {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

impl Request {
    /// Returns the kind and the range of the request.
    pub fn access(&self) -> Access {
        let (operation, offset, len) = match self {
            Request::Read { offset, buffer } => (Operation::Read, *offset, buffer.len() as u64),
            Request::Write { offset, buffer, .. } => {
                (Operation::Write, *offset, buffer.len() as u64)
            }
            Request::Flush => (Operation::Flush, 0, 0),
            Request::Discard { offset, len } => (Operation::Discard, *offset, *len),
        };
        Access { operation, offset, len }
    }

    /// Returns the same request `bytes` further on. The caller knows that it lies there.
    pub(crate) fn moved_up(mut self, bytes: u64) -> Self {
        match &mut self {
            Self::Read { offset, .. }
            | Self::Write { offset, .. }
            | Self::Discard { offset, .. } => {
                *offset += bytes;
            }
            Self::Flush => {}
        }
        self
    }

    /// Completes this request with `result`, without doing it.
    pub fn complete(self, result: Result<(), DeviceError>) -> Completion {
        let buffer = match self {
            Request::Read { buffer, .. } => Some(buffer),
            _ => None,
        };
        Completion { result, buffer }
    }
}

/// The completion of a request.
#[derive(Debug)]
pub struct Completion {
    /// `Ok` if the request was done as a whole, else the error.
    pub result: Result<(), DeviceError>,
    /// The buffer of a read, whether the read succeeded or not; `None` for other requests.
    pub buffer: Option<Buffer>,
}

impl Completion {
    /// Returns the buffer of a successful read. Panics if the request was not a read.
    pub fn into_buffer(self) -> Result<Buffer, DeviceError> {
        self.result.map(|()| self.buffer.expect("the completion of a read holds its buffer"))
    }
}
