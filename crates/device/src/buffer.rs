//! The byte buffer that I/O reads into and writes from.
//!
//! 1. A buffer starts at a multiple of 4096 in memory and its memory is whole pages, so that
//!    direct I/O takes it as it is.
//! 2. Its bytes are always initialised: zero until written.
//! 3. The bytes do not move while the buffer lives, not even when the `Buffer` itself is moved.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page: the unit of a buffer's memory.
const PAGE: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

const _: () = assert!(size_of::<Page>() == PAGE && align_of::<Page>() == PAGE);

/// An owned run of bytes, aligned to 4096. Shared between readers as `Arc<Buffer>`.
pub struct Buffer {
    pages: Box<[Page]>,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` zero bytes; any length, also 0. Aborts when memory is out, as `Vec` does.
    pub fn zeroed(len: usize) -> Buffer {
        let pages = <[Page]>::new_box_zeroed_with_elems(len.div_ceil(PAGE))
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<Page>()));
        Buffer { pages, len }
    }

    /// Shortens the buffer to its first `len` bytes; does nothing if it is not longer. The memory
    /// is kept.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl From<&[u8]> for Buffer {
    /// A buffer that holds a copy of `bytes`.
    fn from(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_of_the_exact_length() {
        for len in [0, 1, 511, 4096, 4097, 131_072] {
            let buffer = Buffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().addr() % PAGE, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn truncate_shortens_only() {
        let mut buffer = Buffer::from(&b"abcdef"[..]);
        buffer.truncate(9);
        assert_eq!(&buffer[..], b"abcdef");
        buffer.truncate(2);
        assert_eq!(&buffer[..], b"ab");
    }

    #[test]
    fn bytes_stay_where_they_are_when_the_buffer_moves() {
        let buffer = Buffer::zeroed(5000);
        let before = buffer.as_ptr();
        let moved = [Some(buffer)];
        assert_eq!(moved[0].as_ref().unwrap().as_ptr(), before);
    }
}
