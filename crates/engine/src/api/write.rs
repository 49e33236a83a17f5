//! Regular files: writing.

use std::io;

use userbtrfs_device::Buffer;
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::Ordering;

use super::File;
use super::filesystem::Inner;
use super::seek::position_after;
use crate::data::{Allocate, FileOps, Times};
use crate::error::{Error, Result};
use crate::inode::ops;

/// The bytes that are copied from file to file in one go.
const COPY_PART: usize = 1 << 20;

impl File {
    /// Returns the operations that change file data, if the file may be written.
    pub(super) fn writer(&self) -> Result<&Arc<FileOps>> {
        let inner = self.inode().inner();
        if !self.is_writable.load(Ordering::Relaxed) {
            ops::file_to_change(&inner.namespace, self.inode().id(), false)?;
            self.is_writable.store(true, Ordering::Relaxed);
        }
        inner.writer()
    }

    /// Returns the operations that change file data, if the file may be extended.
    fn appender(&self) -> Result<&Arc<FileOps>> {
        let inner = self.inode().inner();
        ops::file_to_change(&inner.namespace, self.inode().id(), true)?;
        inner.writer()
    }

    /// Writes bytes at `offset`, and returns how many: fewer than given only if space runs out, or
    /// on an error after the first of them.
    ///
    /// The file grows as needed; the range between its old end and `offset` is a hole. Set-id bits
    /// stay. Returns [`Error::NoSpace`] if there is no space for the first byte, and
    /// [`Error::FileTooLarge`] if it would be beyond 2^63 - 1.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.writer()?.write(&self.pages, offset, bytes, self.times)
    }

    /// Like [`File::write_at`], but leaves the times alone: for cached bytes of which the caller
    /// knows when they were written, and sets that as well.
    ///
    /// An append-only file accepts them, too, in any order, as long as only zeros are overwritten:
    /// otherwise [`Error::NotPermitted`].
    pub fn write_back_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        match self.writer() {
            Err(Error::NotPermitted) => self.appender()?.write_grown(&self.pages, offset, bytes),
            writer => writer?.write(&self.pages, offset, bytes, Times::Kept),
        }
    }

    /// Writes all bytes at `offset`; on an error, the first of them may be written.
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        while !bytes.is_empty() {
            let written = self.write_at(bytes, offset)?;
            (bytes, offset) = (&bytes[written..], offset + written as u64);
        }
        Ok(())
    }

    /// Appends bytes to the file, all or none, and returns their offset. Concurrent appends come
    /// before or after them.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.appender()?.append(&self.pages, bytes)
    }

    /// Copies bytes of `source` from one offset to another, and returns how many: fewer than asked
    /// for at the end of `source`, or on an error after the first of them. Returns
    /// [`Error::Invalid`] if both are one file, and the ranges overlap within its size.
    pub fn copy_from(&self, source: &Self, from: u64, to: u64, len: u64) -> Result<u64> {
        let len = len.min(source.len().saturating_sub(from));
        if self.inode().id() == source.inode().id() && from.abs_diff(to) < len {
            return Err(Error::Invalid("a copy onto a part of itself"));
        }
        let part = usize::try_from(len).map_or(COPY_PART, |len| len.min(COPY_PART));
        let mut bytes = vec![0; part];
        let mut done = 0;
        while done < len {
            let left = usize::try_from(len - done).map_or(part, |left| left.min(part));
            match self.copy_part(source, from + done, to + done, &mut bytes[..left]) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn copy_part(&self, source: &Self, from: u64, to: u64, bytes: &mut [u8]) -> Result<u64> {
        let read = source.read_at(bytes, from)?;
        Ok(self.write_at(&bytes[..read], to)? as u64)
    }

    /// Sets the size of the file: drops bytes at its end, or adds zeros.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.writer()?.set_len(&self.pages, size)
    }

    /// Allocates space for a range, or makes it a hole or zeros, like `fallocate`. Space may be
    /// allocated in an append-only file.
    pub fn allocate(&self, offset: u64, len: u64, what: Allocate) -> Result<()> {
        let writer = match what {
            Allocate::Reserve { .. } => self.appender(),
            _ => self.writer(),
        };
        writer?.allocate(&self.pages, offset, len, what, self.times)
    }

    /// Calls `change` on bytes in place in memory, as a writer to a mapped file does, at most a
    /// sector at a time; returns how many: fewer than asked for at the end of the file.
    pub fn modify(&self, offset: u64, len: usize, change: impl FnMut(&mut [u8])) -> Result<usize> {
        self.writer()?.modify(&self.pages, offset, len, change)
    }

    /// Writes a buffer, bypassing the page cache: it is on the device when the call returns, and
    /// durable after the next commit. Both ends must be sector boundaries ([`Error::Invalid`]).
    pub fn write_direct(&self, buffer: &Arc<Buffer>, offset: u64) -> Result<()> {
        self.writer()?.write_direct(&self.pages, buffer, offset)
    }

    /// Makes the file durable: its data and its attributes, with all changes before the call.
    ///
    /// Returns [`Error::Unwritten`] if data, written through any handle, could not be written since
    /// this `File` was opened or last reported one; each `File` reports it once. It also reports an
    /// earlier failure that no `File` has reported. The file then holds its old data there.
    pub fn sync_all(&self) -> Result<()> {
        match &self.inode().inner().log {
            Some(log) => log.sync_file(&self.pages, &self.reported),
            None => Ok(()),
        }
    }

    /// Makes the data of the file durable, and the metadata that is needed to find it.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// Closes the file, and reports data that could not be written, like [`File::sync_all`], if
    /// this `File` has not reported it. Dirty data is written later: to make it durable, sync
    /// before.
    ///
    /// If it is the last handle of the filesystem, closes that as well, and returns its error, as
    /// [`Filesystem::close`](super::Filesystem::close) does.
    pub fn close(self) -> Result<()> {
        let reported = self.pages.check_and_advance_error(self.reported.number(), &self.reported);
        let inner = Arc::clone(self.inode().inner());
        drop(self);
        reported.and(Inner::release(inner))
    }

    /// Returns a writer from `offset` on.
    pub fn writer_at(&self, offset: u64) -> FileWriter<'_> {
        FileWriter { file: self, offset }
    }
}

/// Writes a file from an offset on, in the manner of [`std::io::Write`]. It buffers nothing:
/// flushing does nothing.
#[derive(Debug)]
pub struct FileWriter<'a> {
    file: &'a File,
    offset: u64,
}

impl io::Write for FileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.offset)?;
        self.offset += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for FileWriter<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.offset = position_after(to, self.offset, self.file.len())?;
        Ok(self.offset)
    }
}
