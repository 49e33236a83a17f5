//! The trait every filesystem room sees instead of a disk.

use userbtrfs_sync::Arc;

use crate::buffer::Buffer;
use crate::error::{Access, DeviceError, Operation};
use crate::request::{Completion, Request};
use crate::ticket::Ticket;

/// A fixed number of bytes on which batches of requests are done. See the crate's invariants.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a device is empty")]
pub trait Device: Send + Sync {
    /// Length in bytes; it does not change while the device is open.
    fn len(&self) -> u64;

    /// Name for messages: the path, where there is one.
    fn name(&self) -> &str;

    /// Whether writes and discards are refused.
    fn is_read_only(&self) -> bool;

    /// Says that whoever has the device open will soon be done with it: another who opens it from
    /// now on waits for that, and is not refused. There is no way back.
    fn closing(&self) {}

    /// Starts a batch. Blocks while more requests are in flight than the queue holds; and for a
    /// batch, or a part of it, that gains nothing by being in flight, until that is done.
    fn submit(&self, batch: Vec<Request>) -> Ticket;

    /// Waits for a batch of this device; the completions are in the order of its requests.
    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        ticket.wait()
    }

    /// Whether [`wait`](Device::wait) would return without waiting for I/O in flight.
    fn is_ready(&self, ticket: &Ticket) -> bool {
        ticket.is_ready()
    }

    /// Reads `len` bytes at `offset`, and waits.
    fn read(&self, offset: u64, len: usize) -> Result<Buffer, DeviceError> {
        // Checked here as well, so that a wild length costs no memory.
        let access = Access { operation: Operation::Read, offset, len: len as u64 };
        access.check(self.name(), self.len(), self.is_read_only())?;
        self.run(Request::Read { offset, buffer: Buffer::unspecified(len) }).into_buffer()
    }

    /// Reads into memory of the caller's, by way of a buffer, and waits.
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

    /// Gives `len` bytes at `offset` back to the device, and waits.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.run(Request::Discard { offset, len }).result
    }

    /// Does one request, and waits.
    fn run(&self, request: Request) -> Completion {
        let ticket = self.submit(vec![request]);
        self.wait(ticket).pop().expect("a batch of one request has one completion")
    }
}
