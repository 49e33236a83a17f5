//! Regular files: writing.

use std::io;

use userbtrfs_device::Buffer;
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::Ordering;

use super::File;
use crate::data::{Allocate, Times, WriteContext};
use crate::error::{Error, Result};

/// Bytes that are copied from file to file in one go.
const COPY_PART: usize = 1 << 20;

impl File {
    /// Who writes it, if it may be written.
    fn writer(&self) -> Result<&Arc<WriteContext>> {
        let inner = self.inode().inner();
        if !self.is_writable.load(Ordering::Relaxed) {
            inner.nodes.file_to_change(self.inode().id(), false)?;
            self.is_writable.store(true, Ordering::Relaxed);
        }
        inner.writer()
    }

    /// Who makes it longer, if that may be.
    fn appender(&self) -> Result<&Arc<WriteContext>> {
        let inner = self.inode().inner();
        inner.nodes.file_to_change(self.inode().id(), true)?;
        inner.writer()
    }

    /// Writes bytes at `offset`, and gives how many: fewer than there are only where space ends,
    /// or an error comes behind the first of them.
    ///
    /// The file grows as need be; what comes to lie between its old end and `offset` is a hole.
    /// Set-id bits stay. [`Error::NoSpace`] where there is no room for the first byte,
    /// [`Error::FileTooLarge`] where it would lie behind 2^63 - 1.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.writer()?.write(&self.pages, offset, bytes, self.times)
    }

    /// As [`File::write_at`], but its times stay: of bytes that somebody has kept, who knows when
    /// they were written, and sets that as well.
    ///
    /// A file that only grows takes them, too, in any order, as long as no byte of it changes but
    /// zeros: otherwise [`Error::NotPermitted`].
    pub fn write_back_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        match self.writer() {
            Err(Error::NotPermitted) => self.appender()?.write_grown(&self.pages, offset, bytes),
            writer => writer?.write(&self.pages, offset, bytes, Times::Kept),
        }
    }

    /// Writes all bytes at `offset`; where that fails, the first of them may be written.
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        while !bytes.is_empty() {
            let written = self.write_at(bytes, offset)?;
            (bytes, offset) = (&bytes[written..], offset + written as u64);
        }
        Ok(())
    }

    /// Writes bytes behind the end of the file, all or none, and gives where they are. What
    /// others append meanwhile comes before or after them.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.appender()?.append(&self.pages, bytes)
    }

    /// Copies bytes of `source` from one offset to another, and gives how many: fewer than asked
    /// for where `source` ends, or an error comes behind the first of them. [`Error::Invalid`]
    /// where both are one file, and the ranges overlap as far as the file goes.
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

    /// Gives the file this size: bytes go, or zeros come.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.writer()?.set_len(&self.pages, size)
    }

    /// Allocates space for a range, makes a hole of it, or zeros: as `fallocate` does. Space may be
    /// allocated in a file that only grows.
    pub fn allocate(&self, offset: u64, len: u64, what: Allocate) -> Result<()> {
        let writer = match what {
            Allocate::Reserve { .. } => self.appender(),
            _ => self.writer(),
        };
        writer?.allocate(&self.pages, offset, len, what, self.times)
    }

    /// Lets `change` change bytes where they are in memory, as a writer to a mapped file does, at
    /// most a sector at a time; gives how many: fewer than asked for where the file ends.
    pub fn modify(&self, offset: u64, len: usize, change: impl FnMut(&mut [u8])) -> Result<usize> {
        self.writer()?.modify(&self.pages, offset, len, change)
    }

    /// Writes a buffer past memory: it is on the device when the call returns, and durable after
    /// the next commit. Both ends lie between sectors ([`Error::Invalid`]).
    pub fn write_direct(&self, buffer: &Arc<Buffer>, offset: u64) -> Result<()> {
        self.writer()?.write_direct(&self.pages, buffer, offset)
    }

    /// Makes the file durable: its data and its attributes, and all that was changed before the
    /// call.
    ///
    /// [`Error::Unwritten`] where data could not be written, by whomever, since this `File` was
    /// opened or told last, which each `File` is told of once; or before, if no `File` was told of
    /// it. There the file holds what it held before.
    pub fn sync_all(&self) -> Result<()> {
        match &self.inode().inner().log {
            Some(log) => log.sync_file(&self.pages, &self.told),
            None => Ok(()),
        }
    }

    /// Makes the data of the file durable, and what is needed to find it.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// Closes the file, and tells of what could not be written, as [`File::sync_all`] does, if it
    /// was not told. What is dirty is written later: who wants it durable syncs before.
    pub fn close(self) -> Result<()> {
        self.pages.tell_failure(self.told.number(), &self.told)
    }

    /// A writer from `offset` on.
    pub fn writer_at(&self, offset: u64) -> FileWriter<'_> {
        FileWriter { file: self, offset }
    }
}

/// Writes a file from one place on, in the manner of [`std::io::Write`]. Nothing is kept back: to
/// flush it does nothing.
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
        let (from, by) = match to {
            io::SeekFrom::Start(offset) => (offset, 0),
            io::SeekFrom::Current(by) => (self.offset, by),
            io::SeekFrom::End(by) => (self.file.len(), by),
        };
        let to = from.checked_add_signed(by).ok_or(Error::Invalid("a place before the start"))?;
        self.offset = to;
        Ok(to)
    }
}
