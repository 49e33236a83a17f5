//! The content of a file of the host.
//!
//! 1. A file is read up to the size that it had when it was opened, or to its end if it is shorter
//!    by then. A file that the kernel generates is read to its end, whatever its size: those of
//!    `/proc` have size 0, those of `/sys` that of a page.
//! 2. If the host supports `SEEK_DATA`, only data is read, and holes are skipped.
//! 3. A range that shares its extent with a file that was copied before is not read.
//! 4. Any other file that changes while it is read is kept as it was read, and is reported.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{self, SeekFrom, Stat};
use rustix::io::{Errno, pread, retry_on_intr};

use crate::copy::error::{CopyError, host_error as failed};
use crate::copy::shared::{FileExtents, SharedData, SharedRange};
use crate::copy::source::{Content, ContentReader, Piece};

/// The types of filesystems whose files the kernel generates as they are read, as statfs(2) returns
/// them: proc, sysfs, debugfs, tracefs, securityfs, configfs, cgroup and cgroup2, pstore.
const GENERATED: [u64; 9] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0x0027_e0eb,
    0x6367_7270,
    0x6165_676c,
];

/// Bytes in a block as `stat` counts them.
const STAT_BLOCK: u64 = 512;

/// A file that is being read.
pub(in crate::copy) struct FileContent {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    then: Version,
    /// Whether the kernel generates it: its size and times are not those of its content.
    is_generated: bool,
    /// The offset of the next read, and the end of the data that is being read.
    at: u64,
    data_end: u64,
    /// The extents that it shares with other files.
    extents: Option<FileExtents>,
    /// The ranges at `at` or after it that were copied with other files, last first.
    shared: Vec<SharedRange>,
}

/// The attributes that change with the content.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    size: u64,
    modified: (i64, i64),
}

impl From<&Stat> for Version {
    fn from(stat: &Stat) -> Self {
        let modified = (stat.st_mtime, stat.st_mtime_nsec);
        Self { size: stat.st_size.cast_unsigned(), modified }
    }
}

impl FileContent {
    pub(super) fn new(
        fd: OwnedFd,
        path: PathBuf,
        stat: &Stat,
        extents: Option<FileExtents>,
    ) -> Self {
        let then = Version::from(stat);
        let is_full = stat.st_blocks.cast_unsigned().saturating_mul(STAT_BLOCK) >= then.size;
        // If it has holes, `find_data` is needed.
        let data_end = if is_full { then.size } else { 0 };
        let is_generated = stat.st_blocks == 0 && is_generated(&fd);
        let mut shared = extents.as_ref().map_or(Vec::new(), |known| known.known_ranges(then.size));
        shared.reverse();
        let fd = Arc::new(fd);
        Self { fd, path, then, is_generated, at: 0, data_end, extents, shared }
    }

    /// Returns the range at the current offset that was copied with another file, and advances to
    /// its end.
    fn next_shared(&mut self) -> Option<SharedData> {
        self.shared.truncate(self.shared.partition_point(|range| range.offset >= self.at));
        let range = self.shared.pop_if(|range| range.offset == self.at)?;
        self.at += range.len;
        Some(SharedData { range, file: Arc::clone(&self.fd), path: self.path.clone() })
    }

    /// Advances to the next data, or to the end if there is none.
    fn find_data(&mut self) -> Result<(), Errno> {
        let size = self.then.size;
        let (start, end) = match fs::seek(&self.fd, SeekFrom::Data(self.at)) {
            Ok(start) => (start, fs::seek(&self.fd, SeekFrom::Hole(start))),
            Err(Errno::NXIO) => (size, Ok(size)),
            // `SEEK_DATA` is not supported: treat all of it as data.
            Err(Errno::INVAL | Errno::NOTSUP) => (self.at, Ok(size)),
            Err(error) => return Err(error),
        };
        (self.at, self.data_end) = (start.min(size), end?.min(size));
        Ok(())
    }

    fn end(&self, size: u64) -> Result<Piece, CopyError> {
        if self.is_generated {
            return Ok(Piece::End { size, shares: false, remark: None });
        }
        let now = fs::fstat(&self.fd).map_err(failed(&self.path, "read attributes"))?;
        let is_whole = size == self.then.size || self.then.size == 0;
        let is_same = is_whole && Version::from(&now) == self.then;
        let remark = (!is_same).then(|| CopyError::Changed { path: self.path.clone() });
        let shares = is_same && self.extents.as_ref().is_some_and(|extents| extents.add(&now));
        Ok(Piece::End { size, shares, remark })
    }

    /// Reads at the current offset.
    fn read_on(&mut self, room: &mut [u8]) -> Result<Piece, CopyError> {
        let read = retry_on_intr(|| pread(&self.fd, &mut *room, self.at));
        match read.map_err(failed(&self.path, "read"))? {
            // The end of the file: if it had a size, it has become shorter.
            0 => self.end(self.at),
            len => {
                let offset = self.at;
                self.at += len as u64;
                Ok(Piece::Data { offset, len })
            }
        }
    }
}

/// Returns true if the kernel generates the files of the filesystem of this one.
fn is_generated(fd: &OwnedFd) -> bool {
    let kind = fs::fstatfs(fd).ok().and_then(|found| u64::try_from(found.f_type).ok());
    kind.is_some_and(|kind| GENERATED.contains(&kind))
}

impl Content for FileContent {
    type Reader = Self;

    fn into_reader(self) -> Self {
        self
    }
}

impl ContentReader for FileContent {
    fn read(&mut self, room: &mut [u8]) -> Result<Piece, CopyError> {
        let size = self.then.size;
        if self.is_generated || size == 0 {
            return self.read_on(room);
        }
        if self.at >= self.data_end && self.at < size {
            self.find_data().map_err(failed(&self.path, "find data"))?;
        }
        if self.at >= size {
            return self.end(size);
        }
        if let Some(shared) = self.next_shared() {
            return Ok(Piece::Shared(shared));
        }
        let end = self.shared.last().map_or(self.data_end, |next| next.offset.min(self.data_end));
        let left = usize::try_from(end - self.at).unwrap_or(usize::MAX);
        let len = left.min(room.len());
        self.read_on(&mut room[..len])
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const LEN: usize = 10_000;

    /// Returns a file to read, and the same file for changing it meanwhile.
    fn opened(change: impl FnOnce(&File)) -> (FileContent, File) {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; LEN], 0).unwrap();
        change(&file);
        let stat = fs::fstat(&file).unwrap();
        let path = PathBuf::from("file");
        (FileContent::new(file.try_clone().unwrap().into(), path, &stat, None), file)
    }

    /// Reads to the end; returns the ranges of data, the size and the remark.
    fn read(content: &mut FileContent) -> (Vec<(u64, usize)>, u64, String) {
        let mut data = Vec::new();
        let mut room = [0; 4096];
        loop {
            match content.read(&mut room).unwrap() {
                Piece::Data { offset, len } => data.push((offset, len)),
                Piece::Shared(_) => unreachable!("no other file was copied"),
                Piece::End { size, remark, .. } => {
                    return (data, size, remark.map_or(String::new(), |error| error.to_string()));
                }
            }
        }
    }

    const CHANGED: &str = "file: it changed while it was read; kept as it was read";

    #[test]
    fn file_is_read_in_pieces() {
        let (mut content, _) = opened(|_| {});
        let pieces = vec![(0, 4096), (4096, 4096), (8192, LEN - 8192)];
        assert_eq!(read(&mut content), (pieces, LEN as u64, String::new()));
    }

    #[test]
    fn holes_are_left_out() {
        let (mut content, _) = opened(|file| {
            file.set_len(1 << 30).unwrap();
            file.write_all_at(&[7; 100], 1 << 29).unwrap();
        });
        let (data, size, said) = read(&mut content);
        assert_eq!((size, said.as_str()), (1 << 30, ""));
        assert_eq!(data.iter().map(|(_, len)| len).sum::<usize>(), 12_288 + 4096);
        assert_eq!(data.last(), Some(&(1 << 29, 4096)));
    }

    #[test]
    fn file_growing_while_read_is_kept_at_its_old_size() {
        let (mut content, file) = opened(|_| {});
        file.write_all_at(&[7; 1], 1 << 20).unwrap();
        let (data, size, said) = read(&mut content);
        assert_eq!((data.len(), size, said.as_str()), (3, LEN as u64, CHANGED));
    }

    #[test]
    fn file_shrinking_while_read_is_kept_at_its_new_size() {
        let (mut content, file) = opened(|_| {});
        file.set_len(5000).unwrap();
        assert_eq!(read(&mut content), (vec![(0, 4096), (4096, 904)], 5000, CHANGED.to_owned()));
    }

    #[test]
    fn file_overwritten_while_read_is_reported() {
        let (mut content, file) = opened(|file| {
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        });
        file.write_all_at(&[8; 1], 9000).unwrap();
        let (_, size, said) = read(&mut content);
        assert_eq!((size, said.as_str()), (LEN as u64, CHANGED));
    }
}
