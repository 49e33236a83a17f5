//! One descriptor of the FUSE device.
//!
//! 1. A request is answered through the descriptor that it was received from: the kernel knows it
//!    only there. Notifications can be sent through any.
//! 2. A message is read and written as a whole, in one call.
//! 3. A reply that the kernel rejects is dropped if no caller waits for it any more, and is
//!    followed by EIO if one may.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read, writev};
use userbtrfs_sync::Arc;
use zerocopy::IntoBytes;

use crate::interrupts::Interrupts;
use crate::load_estimate::LoadEstimate;
use crate::wire;

/// The kernel accepts error numbers below this in replies.
const ERRNO_END: i32 = 512;
/// How long to wait if the kernel is out of memory.
const PAUSE: Duration = Duration::from_millis(10);
/// The number of parts of a message, with its header, that need no allocation.
const FEW_PARTS: usize = 8;

/// A descriptor, and the state that all descriptors of the mount share.
#[derive(Debug)]
pub(crate) struct Channel {
    device: OwnedFd,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    interrupts: Interrupts,
    load_estimate: LoadEstimate,
}

/// Why no more requests can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The filesystem is no longer mounted, or the mount was aborted.
    Gone,
    /// The device fails.
    Failed(Errno),
}

impl Channel {
    /// Creates the first channel of a mount.
    pub(crate) fn new(device: OwnedFd) -> Self {
        let shared = Shared { interrupts: Interrupts::new(), load_estimate: LoadEstimate::new() };
        Self { device, shared: Arc::new(shared) }
    }

    /// Creates another channel of the same mount.
    pub(crate) fn beside(&self, device: OwnedFd) -> Self {
        Self { device, shared: self.shared.clone() }
    }

    pub(crate) fn device(&self) -> &OwnedFd {
        &self.device
    }

    pub(crate) fn interrupts(&self) -> &Interrupts {
        &self.shared.interrupts
    }

    pub(crate) fn load_estimate(&self) -> &LoadEstimate {
        &self.shared.load_estimate
    }

    /// Waits for the next message and returns it. Only the part of the buffer that was ever filled
    /// takes memory.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], End> {
        loop {
            buffer.clear();
            match read(&self.device, spare_capacity(buffer)) {
                Ok(_) => return Ok(buffer),
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // The kernel is out of memory for the moment.
                Err(Errno::NOMEM) => thread::sleep(PAUSE),
                Err(Errno::NODEV | Errno::CONNABORTED) => return Err(End::Gone),
                Err(error) => return Err(End::Failed(error)),
            }
        }
    }

    /// Answers a request with the concatenated parts.
    pub(crate) fn answer(&self, unique: u64, parts: &[IoSlice<'_>]) {
        match self.write(unique, 0, parts) {
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => {
                debug_assert_ne!(error, Errno::INVAL, "a reply is built as the kernel wants it");
                self.refuse(unique, Errno::IO);
            }
        }
    }

    /// Answers a request with an error; one that the kernel does not accept is sent as EIO.
    pub(crate) fn refuse(&self, unique: u64, error: Errno) {
        let raw = error.raw_os_error();
        let number = if (1..ERRNO_END).contains(&raw) { raw } else { Errno::IO.raw_os_error() };
        // If even this fails, the request no longer exists.
        let _ = self.write(unique, -number, &[]);
    }

    /// Sends a notification.
    pub(crate) fn notify(
        &self,
        code: wire::NotifyCode,
        parts: &[IoSlice<'_>],
    ) -> Result<(), Errno> {
        self.write(0, code.number(), parts)
    }

    fn write(&self, unique: u64, error: i32, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let len = u32::try_from(size_of::<wire::OutHeader>() + length);
        let len = len.expect("a message is no longer than the buffer it was asked into");
        let header = wire::OutHeader { len, error, unique };
        self.write_behind(header.as_bytes(), parts)
    }

    fn write_behind(&self, header: &[u8], parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let mut few = [IoSlice::new(&[]); FEW_PARTS];
        few[0] = IoSlice::new(header);
        if let Some(behind) = few.get_mut(1..=parts.len()) {
            behind.copy_from_slice(parts);
            return writev(&self.device, &few[..=parts.len()]).map(drop);
        }
        let all: Vec<_> = few[..1].iter().chain(parts).copied().collect();
        writev(&self.device, &all).map(drop)
    }
}
