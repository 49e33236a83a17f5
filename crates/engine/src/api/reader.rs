//! Files from start to end.

use std::io;

use super::Inode;
use crate::data::{ReadExtents, Stream};
use crate::error::Result;

/// Reads a file from start to end, and fetches ahead of what is asked for. It belongs to the
/// thread that made it.
///
/// [`FileReader::next_chunk`] hands out the buffers themselves and names holes;
/// [`std::io::Read`] copies, and reads holes as zeros.
///
/// As an open file does, it keeps what it reads, though its last name goes.
pub struct FileReader {
    stream: Stream,
    /// The chunk that `read` is in, and how much of it was read.
    current: Option<(Chunk, u64)>,
    /// Held while it is read.
    _inode: Inode,
}

/// Bytes of a file, or a hole in it.
#[derive(Clone, Debug)]
pub struct Chunk {
    offset: u64,
    fetched: ReadExtents,
}

impl Chunk {
    /// Where it starts in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length in bytes; holes may be long.
    pub fn len(&self) -> u64 {
        match &self.fetched {
            ReadExtents::Zeros(len) => *len,
            ReadExtents::Bytes { len, .. } => *len as u64,
        }
    }

    /// Whether it has no bytes; a chunk has some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes; nothing where it is a hole or was never written, and reads as zeros.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.fetched.bytes()
    }
}

impl FileReader {
    pub(super) fn new(stream: Stream, inode: Inode) -> Self {
        Self { stream, current: None, _inode: inode }
    }

    /// Starts to fetch the first bytes without waiting for them.
    pub fn prefetch(&mut self) -> Result<()> {
        self.stream.prefetch()
    }

    /// The next bytes or hole, in order and without gap; nothing at the end, and after an
    /// error, before which all that is good was given.
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
