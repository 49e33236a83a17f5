//! A device in memory: for tests, and for images that were read as a whole.
//!
//! 1. Every batch is complete when `submit` returns; flush has nothing to do.
//! 2. Requests are atomic with respect to each other: a read sees all of a write or none of it.

use std::fmt;

use userbtrfs_sync::{Class, Mutex};

use crate::device::Device;
use crate::error::DeviceError;
use crate::request::{Completion, Request};
use crate::ticket::Ticket;

const NAME: &str = "memory";

/// A device in memory, shared by any number of threads.
pub struct MemoryDevice {
    bytes: Mutex<Vec<u8>>,
    len: u64,
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice").field("len", &self.len).finish_non_exhaustive()
    }
}

impl MemoryDevice {
    /// Creates a device of `len` zero bytes.
    pub fn new(len: usize) -> MemoryDevice {
        MemoryDevice::from_bytes(vec![0; len])
    }

    /// Creates a device that holds `bytes`.
    pub fn from_bytes(bytes: Vec<u8>) -> MemoryDevice {
        let len = bytes.len() as u64;
        MemoryDevice { bytes: Mutex::new(Class::DeviceQueue, bytes), len }
    }

    /// Returns a copy of all bytes as they are now.
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    fn perform(&self, mut request: Request) -> Completion {
        let result = self.apply(&mut request);
        request.complete(result)
    }

    fn apply(&self, request: &mut Request) -> Result<(), DeviceError> {
        let access = request.access();
        access.check(NAME, self.len, false)?;
        let start = usize::try_from(access.offset).expect("inside memory, so it fits");
        let end = start + usize::try_from(access.len).expect("inside memory, so it fits");
        let mut bytes = self.bytes.lock();
        match request {
            Request::Read { buffer, .. } => buffer.copy_from_slice(&bytes[start..end]),
            Request::Write { buffer, .. } => bytes[start..end].copy_from_slice(buffer),
            Request::Flush => {}
            Request::Discard { .. } => bytes[start..end].fill(0),
        }
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &str {
        NAME
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::completed(batch.into_iter().map(|request| self.perform(request)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    #[test]
    fn a_batch_is_answered_in_its_order() {
        let device = MemoryDevice::from_bytes((0..100).collect());
        let buffer = Buffer::from(&[7; 10][..]).into();
        let ticket = device.submit(vec![
            Request::Read { offset: 90, buffer: Buffer::zeroed(10) },
            Request::Write { offset: 20, buffer, fua: true },
            Request::Flush,
            Request::Discard { offset: 50, len: 5 },
        ]);
        assert!(device.is_ready(&ticket));
        let completions = device.wait(ticket);
        assert!(completions.iter().all(|completion| completion.result.is_ok()));
        let expected: Vec<u8> = (90..100).collect();
        assert_eq!(completions[0].buffer.as_deref(), Some(&expected[..]));

        let bytes = device.snapshot();
        assert_eq!(bytes[19..31], [19, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 30]);
        assert_eq!(bytes[49..56], [49, 0, 0, 0, 0, 0, 55]);
    }

    #[test]
    fn a_request_beyond_the_end_is_refused_with_its_place() {
        let device = MemoryDevice::new(4096);
        assert!(device.read(4000, 96).is_ok());
        let error = device.read(4000, 97).unwrap_err();
        let text = "memory: read of 97 bytes at 4000: beyond the end of the device at 4096";
        assert_eq!(error.to_string(), text);
        assert!(matches!(device.discard(u64::MAX, 2), Err(DeviceError::BeyondEnd { .. })));
        assert!(matches!(device.read(0, usize::MAX), Err(DeviceError::BeyondEnd { .. })));
    }

    #[test]
    fn failed_read_returns_its_buffer() {
        let device = MemoryDevice::new(10);
        let completion = device.run(Request::Read { offset: 9, buffer: Buffer::zeroed(2) });
        assert!(completion.result.is_err());
        assert_eq!(completion.buffer.map(|buffer| buffer.len()), Some(2));
    }

    #[test]
    fn read_into_fills_the_callers_memory() {
        let device = MemoryDevice::from_bytes(vec![1, 2, 3, 4]);
        let mut target = [0; 2];
        device.read_into(1, &mut target).unwrap();
        assert_eq!(target, [2, 3]);
    }
}
