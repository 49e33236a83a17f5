//! Sequential reading of files.

use std::fmt;
use std::io;
use std::ops::Range;

use super::Inode;
use super::seek::position_after;
use crate::data::{ReadExtents, Stream};
use crate::error::{Error, Result};

/// Reads a file from start to end, with readahead. It belongs to the thread that created it.
///
/// [`FileReader::next_chunk`] returns the buffers themselves and reports holes; [`std::io::Read`]
/// copies, and reads holes as zeros. Both continue where the other one ended.
///
/// A position of [`std::io::Seek`] counts from the start of the range that is read, which is the
/// whole file with [`File::reader`](super::File::reader). A seek drops what was read ahead, except
/// for one to the present position and a short one forward.
///
/// Like an open file, it keeps the file from being deleted when its last name is removed.
pub struct FileReader {
    stream: Stream,
    /// The offsets between which it reads.
    range: Range<u64>,
    /// The rest of the chunk that `read` or `seek` is in.
    current: Option<Chunk>,
    /// Keeps the inode from being deleted.
    inode: Inode,
}

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader").field("inode", &self.inode).finish_non_exhaustive()
    }
}

/// Bytes of a file, or a hole in it.
#[derive(Clone, Debug)]
pub struct Chunk {
    offset: u64,
    fetched: ReadExtents,
}

impl Chunk {
    /// Returns the start in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length in bytes; holes may be long.
    pub fn len(&self) -> u64 {
        match &self.fetched {
            ReadExtents::Zeros(len) => *len,
            ReadExtents::Bytes { len, .. } => *len as u64,
        }
    }

    /// Returns true if it has no bytes, which no chunk is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes; `None` if it is a hole or preallocated, and reads as zeros.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.fetched.bytes()
    }

    /// Returns the rest after the first `count` bytes; `None` if nothing is left.
    fn after(self, count: u64) -> Option<Self> {
        let offset = self.offset + count;
        let fetched = self.fetched.after(count);
        (fetched.len() > 0).then_some(Self { offset, fetched })
    }
}

impl FileReader {
    pub(super) fn new(stream: Stream, range: Range<u64>, inode: Inode) -> Self {
        Self { stream, range, current: None, inode }
    }

    /// Starts to read the first bytes without waiting for them.
    pub fn prefetch(&mut self) -> Result<()> {
        self.stream.prefetch()
    }

    /// Returns the next bytes or hole, in order and without gap; `None` at the end, and after an
    /// error, before which all good data was returned.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        if let Some(rest) = self.current.take() {
            return Ok(Some(rest));
        }
        let next = self.stream.next()?;
        Ok(next.map(|(offset, fetched)| Chunk { offset, fetched }))
    }

    /// Returns the offset in the file of the next byte.
    fn offset(&self) -> u64 {
        self.current.as_ref().map_or_else(|| self.stream.position(), Chunk::offset)
    }

    /// Returns the length of the range, as far as it is in the file.
    fn range_len(&self) -> u64 {
        self.range.end.min(self.stream.file_len()).saturating_sub(self.range.start)
    }

    /// Continues at an offset in the file.
    fn move_to(&mut self, offset: u64) {
        match self.current.take() {
            // Reads on. A seek back drops the chunk, so that later writes are seen.
            Some(chunk) if (chunk.offset..chunk.offset + chunk.len()).contains(&offset) => {
                let count = offset - chunk.offset;
                self.current = chunk.after(count);
            }
            _ => self.stream.seek(offset, self.range.end),
        }
    }
}

impl io::Read for FileReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if target.is_empty() {
            return Ok(0);
        }
        let Some(chunk) = self.next_chunk()? else { return Ok(0) };
        let len = usize::try_from(chunk.len()).map_or(target.len(), |len| len.min(target.len()));
        copy(&chunk, &mut target[..len]);
        self.current = chunk.after(len as u64);
        Ok(len)
    }
}

/// Copies the first bytes of a chunk.
fn copy(chunk: &Chunk, target: &mut [u8]) {
    match chunk.bytes() {
        None => target.fill(0),
        Some(bytes) => target.copy_from_slice(&bytes[..target.len()]),
    }
}

impl io::Seek for FileReader {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let start = self.range.start;
        let position = position_after(to, self.offset() - start, self.range_len())?;
        let offset = start.checked_add(position).ok_or(Error::FileTooLarge)?;
        self.move_to(offset);
        Ok(position)
    }
}
