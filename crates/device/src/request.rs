//! Requests and their completions.

use crate::buffer::Buffer;
use crate::error::{Access, DeviceError, Operation};
use crate::slice::Slice;

/// One thing to do on a device. Offsets and lengths are in bytes, any values.
#[derive(Debug)]
pub enum Request {
    /// Fills `buffer` from `offset`.
    Read {
        /// First byte.
        offset: u64,
        /// Where the bytes go; its length is the length of the read.
        buffer: Buffer,
    },
    /// Writes all of `buffer`, a part of a shared one, at `offset`.
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
    /// Tells the device that these bytes are not needed. What a later read finds there is
    /// unspecified. Parts of sectors at both ends may be left alone.
    Discard {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

impl Request {
    /// What the request touches.
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

    /// The completion of this request without doing it.
    pub fn complete(self, result: Result<(), DeviceError>) -> Completion {
        let buffer = match self {
            Request::Read { buffer, .. } => Some(buffer),
            _ => None,
        };
        Completion { result, buffer }
    }
}

/// How a request ended.
#[derive(Debug)]
pub struct Completion {
    /// Done whole, or why not.
    pub result: Result<(), DeviceError>,
    /// A read's buffer, whether the read succeeded or not; none for the other requests.
    pub buffer: Option<Buffer>,
}

impl Completion {
    /// The bytes of a successful read. Panics when the completion is of another request.
    pub fn into_buffer(self) -> Result<Buffer, DeviceError> {
        self.result.map(|()| self.buffer.expect("the completion of a read holds its buffer"))
    }
}
