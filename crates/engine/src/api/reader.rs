//! Sequential reading of files.

use std::fmt;
use std::io;

use super::Inode;
use crate::data::{ReadExtents, Stream};
use crate::error::Result;

/// Reads a file from start to end, with readahead. It belongs to the thread that created it.
///
/// [`FileReader::next_chunk`] returns the buffers themselves and reports holes; [`std::io::Read`]
/// copies, and reads holes as zeros.
///
/// Like an open file, it keeps the file from being deleted when its last name is removed.
pub struct FileReader {
    stream: Stream,
    /// The chunk that `read` is in, and how much of it was read.
    current: Option<(Chunk, u64)>,
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
}

impl FileReader {
    pub(super) fn new(stream: Stream, inode: Inode) -> Self {
        Self { stream, current: None, inode }
    }

    /// Starts to read the first bytes without waiting for them.
    pub fn prefetch(&mut self) -> Result<()> {
        self.stream.prefetch()
    }

    /// Returns the next bytes or hole, in order and without gap; `None` at the end, and after an
    /// error, before which all good data was returned.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        let next = self.stream.next()?;
        Ok(next.map(|(offset, fetched)| Chunk { offset, fetched }))
    }
}

impl io::Read for FileReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some((chunk, done)) = &mut self.current {
                let left = chunk.len() - *done;
                if left > 0 || target.is_empty() {
                    let len = usize::try_from(left).map_or(target.len(), |l| l.min(target.len()));
                    copy(chunk, *done, &mut target[..len]);
                    *done += len as u64;
                    return Ok(len);
                }
            }
            match self.next_chunk()? {
                Some(chunk) => self.current = Some((chunk, 0)),
                None => return Ok(0),
            }
        }
    }
}

fn copy(chunk: &Chunk, from: u64, target: &mut [u8]) {
    match chunk.bytes() {
        None => target.fill(0),
        Some(bytes) => {
            let from = usize::try_from(from).expect("within the chunk's bytes");
            target.copy_from_slice(&bytes[from..][..target.len()]);
        }
    }
}
