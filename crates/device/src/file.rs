//! A regular file or a block device as a [`Device`].
//!
//! 1. Requests are submitted to the ring of the submitting thread; they are done by plain calls if
//!    io_uring is off, not allowed, not worth it, or the thread could not make its ring.
//! 2. A write that does not fit the alignment of a direct file is done in `submit`: read, change,
//!    write, one at a time per device. No aligned write can share a sector with it, so no other
//!    order is needed.
//! 3. If there is a ring, an image file that is open for writing is accessed in two ways. Large
//!    reads and writes bypass the page cache: they are of file data, which the caller caches as it
//!    needs. Small ones, as of tree nodes, use it: they are read again, and writes are merged
//!    there. A direct call writes back and drops the cached pages of its range, so that both ways
//!    stay coherent, unless a range is read or written while it is being written, which no caller
//!    does.
//! 4. Offsets of requests count from the start of the region that is the device, and those of the
//!    file from its first byte: `admit` alone turns the one into the other, once the request is
//!    known to lie in the region.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;

use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::Ordering;

use crate::batch::Admitted;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::DeviceError;
use crate::merge_adjacent::gather;
use crate::open::{AlignedSpan, FileOptions, IoUring, OpenFile};
use crate::pread_pwrite;
use crate::request::{Completion, Request};
use crate::ring;
use crate::ticket::Ticket;
use crate::transfer::Transfer;

const QUEUE_DEPTH_MAX: u32 = 4096;

/// A file or block device. A process that forks opens its devices afterwards: the rings of the
/// parent's threads are no use to the child.
pub struct FileDevice {
    file: Arc<OpenFile>,
    /// The depth of the rings it makes; `None` if it uses plain calls only.
    ring_depth: Option<u32>,
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("name", &self.file.name)
            .field("ring_depth", &self.ring_depth)
            .finish_non_exhaustive()
    }
}

impl FileDevice {
    /// Opens the regular file or block device at `path`; the error for anything else names its
    /// kind. A file opened for writing is locked: see [`FileOptions::writable`].
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> Result<FileDevice, DeviceError> {
        let ring = (options.io_uring != IoUring::Off).then(ring::probe);
        let has_ring = ring.is_some_and(|answer| answer.is_ok());
        let file = OpenFile::open(path.as_ref(), options, has_ring)?;
        if let (IoUring::On, Some(Err(errno))) = (options.io_uring, ring) {
            return Err(DeviceError::RingRefused { device: file.name, source: errno.into() });
        }
        let depth = options.queue_depth.clamp(1, QUEUE_DEPTH_MAX);
        Ok(FileDevice { file: Arc::new(file), ring_depth: has_ring.then_some(depth) })
    }

    /// Creates a sparse image file of `len` bytes at `path`, where nothing may exist, and opens it
    /// for writing. If that fails, no new file is left.
    pub fn create_new(path: impl AsRef<Path>, len: u64) -> Result<FileDevice, DeviceError> {
        let path = path.as_ref();
        let failed = |source| DeviceError::Open { device: path.to_string_lossy().into(), source };
        let file = File::create_new(path).map_err(failed)?;
        let options = FileOptions { writable: true, ..FileOptions::default() };
        let opened = file.set_len(len).map_err(failed).and_then(|()| Self::open(path, options));
        // The error that is returned says more than one of this.
        opened.inspect_err(|_| drop(fs::remove_file(path)))
    }

    /// Returns whether all I/O bypasses the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Publishes the device number of the mount that serves this image, which
    /// [`mount_of_holder`](crate::mount_of_holder) returns until it is
    /// [closing](Device::mark_closing). No effect if the device is not locked.
    pub fn publish_mount(&self, mount: u64) {
        if let Some(lock) = &self.file.lock {
            lock.publish_mount(mount);
        }
    }

    /// Withdraws what [`Self::publish_mount`] published: another mount of the image is still
    /// served.
    pub fn withdraw_mount(&self, mount: u64) {
        if let Some(lock) = &self.file.lock {
            lock.withdraw_mount(mount);
        }
    }

    /// Returns whether I/O may be submitted by io_uring.
    pub fn uses_io_uring(&self) -> bool {
        self.ring_depth.is_some()
    }

    fn admit(&self, request: Request) -> Admitted {
        let access = request.access();
        if let Err(error) = access.check(self.name(), self.len(), self.is_read_only()) {
            return Admitted::Completed(request.complete(Err(error)));
        }
        let request = request.moved_up(self.file.start);
        match self.decide(&request) {
            Some(result) => Admitted::Completed(request.complete(result)),
            None => Admitted::Pending(Transfer::new(self.file.way_of(&request), request)),
        }
    }

    /// Returns the result of a request, with offsets of the file, if it needs no engine.
    fn decide(&self, request: &Request) -> Option<Result<(), DeviceError>> {
        match request {
            Request::Read { .. } | Request::Write { .. } if request.access().len == 0 => {
                Some(Ok(()))
            }
            Request::Read { .. } | Request::Flush => None,
            Request::Write { offset, buffer, fua } => {
                let span = self.file.span(*offset, buffer.len());
                (!span.is_exact()).then(|| self.write_unaligned(span, buffer, *fua))
            }
            Request::Discard { offset, len } => {
                self.file.whole_sectors(*offset, *len).is_empty().then_some(Ok(()))
            }
        }
    }

    fn write_unaligned(
        &self,
        span: AlignedSpan,
        bytes: &[u8],
        fua: bool,
    ) -> Result<(), DeviceError> {
        let _alone = self.file.unaligned_write.lock();
        let offset = span.start;
        let read = Request::Read { offset, buffer: Buffer::zeroed(span.len) };
        let mut buffer = self.run_now(read).into_buffer()?;
        buffer[span.within()].copy_from_slice(bytes);
        self.run_now(Request::Write { offset, buffer: buffer.into(), fua }).result
    }

    fn run_now(&self, request: Request) -> Completion {
        pread_pwrite::run(Transfer::new(&self.file, request))
    }
}

impl Device for FileDevice {
    fn len(&self) -> u64 {
        self.file.len.load(Ordering::SeqCst)
    }

    fn measure(&self) -> Result<u64, DeviceError> {
        self.file.measure_again()
    }

    fn set_len(&self, len: u64) -> Result<bool, DeviceError> {
        self.file.set_len(len)
    }

    fn name(&self) -> &str {
        &self.file.name
    }

    fn is_read_only(&self) -> bool {
        !self.file.is_writable
    }

    fn mark_closing(&self) {
        if let Some(lock) = &self.file.lock {
            lock.mark_closing();
        }
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let mut batch: Vec<_> = batch.into_iter().map(|request| self.admit(request)).collect();
        gather(&mut batch);
        if self.ring_depth.is_some() && ring::has_short_copy(&batch) {
            batch = pread_pwrite::copy(batch);
        }
        let rejected = match self.ring_depth {
            Some(depth) if ring::is_worth_it(&batch) => match ring::submit(depth, batch) {
                Ok(batch) => return Ticket::in_flight(batch),
                Err(batch) => batch,
            },
            _ => batch,
        };
        Ticket::deferred(pread_pwrite::submit(rejected))
    }
}

#[cfg(test)]
pub(crate) mod tests;
