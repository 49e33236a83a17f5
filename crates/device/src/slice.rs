//! A slice of a shared buffer: the data of a write.
//!
//! 1. It lies inside its buffer; the bytes cannot change while it lives.

use std::fmt;
use std::ops::{Deref, Range};

use userbtrfs_sync::Arc;

use crate::buffer::Buffer;

/// A range of the bytes of a shared buffer.
#[derive(Clone)]
pub struct Slice {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Slice {
    /// Creates the slice of these bytes of `buffer`. Panics if the range is not inside it.
    pub fn new(buffer: Arc<Buffer>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= buffer.len(), "a part of the buffer");
        Self { buffer, range }
    }

    /// Shortens the slice to at most its first `len` bytes.
    #[must_use]
    pub fn first(mut self, len: u64) -> Self {
        let len = usize::try_from(len).map_or(self.range.len(), |len| len.min(self.range.len()));
        self.range.end = self.range.start + len;
        self
    }

    /// Returns the buffer, and the range of its bytes.
    pub fn into_parts(self) -> (Arc<Buffer>, Range<usize>) {
        (self.buffer, self.range)
    }

    /// Returns the offset of its start in memory from a multiple of 4096, in bytes.
    pub(crate) fn misalignment(&self) -> u64 {
        const PAGE: usize = 4096;
        (self.range.start % PAGE) as u64
    }
}

impl From<Arc<Buffer>> for Slice {
    fn from(buffer: Arc<Buffer>) -> Self {
        let range = 0..buffer.len();
        Self { buffer, range }
    }
}

impl From<Buffer> for Slice {
    fn from(buffer: Buffer) -> Self {
        Arc::new(buffer).into()
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Slice({:?} of {:?})", self.range, self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_exposes_only_its_range() {
        let slice = Slice::new(Arc::new(Buffer::from(&b"abcdef"[..])), 2..5);
        assert_eq!(&slice[..], b"cde");
        assert_eq!((slice.len(), slice.misalignment()), (3, 2));
        assert_eq!(&Slice::from(Buffer::from(&b"ab"[..]))[..], b"ab");
        assert_eq!((&slice.clone().first(2)[..], &slice.first(9)[..]), (&b"cd"[..], &b"cde"[..]));
    }

    #[test]
    #[should_panic(expected = "a part of the buffer")]
    fn slice_beyond_its_buffer_panics() {
        drop(Slice::new(Arc::new(Buffer::zeroed(4096)), 4000..4097));
    }
}
