//! The trait through which the other crates access a disk.

use userbtrfs_sync::Arc;

use crate::buffer::Buffer;
use crate::crash_point::CrashPoint;
use crate::error::{Access, DeviceError, Operation};
use crate::request::{Completion, Request};
use crate::ticket::Ticket;

/// A block device, file or memory that executes batches of requests. See the
/// crate's invariants.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a device is empty")]
pub trait Device: Send + Sync {
    /// Returns the length in bytes. It changes only by [`measure`](Device::measure) and
    /// [`set_len`](Device::set_len).
    fn len(&self) -> u64;

    /// Measures the device again, and returns its length: a block device or a file may have grown
    /// since it was opened.
    fn measure(&self) -> Result<u64, DeviceError> {
        Ok(self.len())
    }

    /// Sets the length of an image file. Returns false, without effect, if the device is none that
    /// is all of a file. No request in flight lies beyond the new end.
    fn set_len(&self, _len: u64) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Returns the name for messages: the path, if there is one.
    fn name(&self) -> &str;

    /// Returns whether writes and discards are refused.
    fn is_read_only(&self) -> bool;

    /// Marks the device as about to be closed: openers wait for that from now on, and are not
    /// refused. This cannot be undone.
    fn mark_closing(&self) {}

    /// Notes that a thread reached a point of the code above.
    #[cfg(feature = "crash-points")]
    fn reached(&self, _point: CrashPoint) {}

    /// Starts a batch. Blocks while more requests are in flight than the queue holds. Requests
    /// that gain nothing by being in flight are done before this returns.
    fn submit(&self, batch: Vec<Request>) -> Ticket;

    /// Waits for a batch of this device; the completions are in the order of its requests.
    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        ticket.wait()
    }

    /// Returns whether [`wait`](Device::wait) would return without waiting for I/O in flight.
    fn is_ready(&self, ticket: &Ticket) -> bool {
        ticket.is_ready()
    }

    /// Reads `len` bytes at `offset`, and waits.
    fn read(&self, offset: u64, len: usize) -> Result<Buffer, DeviceError> {
        // Checked here as well, so that an invalid length allocates no memory.
        let access = Access { operation: Operation::Read, offset, len: len as u64 };
        access.check(self.name(), self.len(), self.is_read_only())?;
        self.run(Request::Read { offset, buffer: Buffer::unspecified(len) }).into_buffer()
    }

    /// Reads into the memory of the caller, through a buffer, and waits.
    fn read_into(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        target.copy_from_slice(&self.read(offset, target.len())?);
        Ok(())
    }

    /// Writes all of `buffer` at `offset`, and waits; with `fua`, until it is durable.
    fn write(&self, offset: u64, buffer: Arc<Buffer>, fua: bool) -> Result<(), DeviceError> {
        self.run(Request::Write { offset, buffer: buffer.into(), fua }).result
    }

    /// Makes every completed write durable, and waits.
    fn flush(&self) -> Result<(), DeviceError> {
        self.run(Request::Flush).result
    }

    /// Discards `len` bytes at `offset`, and waits.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.run(Request::Discard { offset, len }).result
    }

    /// Does one request, and waits.
    fn run(&self, request: Request) -> Completion {
        let ticket = self.submit(vec![request]);
        self.wait(ticket).pop().expect("a batch of one request has one completion")
    }
}

/// Reports to the device that the thread reached a point. Without the feature `crash-points` this
/// is nothing.
#[inline]
pub fn crash_point(device: &dyn Device, point: CrashPoint) {
    #[cfg(feature = "crash-points")]
    device.reached(point);
    #[cfg(not(feature = "crash-points"))]
    let _ = (device, point);
}
