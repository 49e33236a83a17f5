//! The byte buffer that I/O reads into and writes from.
//!
//! 1. A buffer starts at a multiple of 4096 in memory and its memory is whole pages, so that
//!    direct I/O takes it as it is.
//! 2. Its bytes are always initialised: zero until written, or what some earlier buffer held
//!    where the caller says that it fills all of them ([`Buffer::unspecified`]).
//! 3. The bytes do not move while the buffer lives, not even when the `Buffer` itself is moved.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
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

    /// A buffer of `len` bytes that hold anything: for who fills all of them. Memory of buffers
    /// that this thread dropped before is used again, which spares clearing it and, for large
    /// ones, asking the system for it.
    pub fn unspecified(len: usize) -> Buffer {
        let pages = len.div_ceil(PAGE);
        let spare = SPARE.try_with(|spare| spare.borrow_mut().take(pages)).ok().flatten();
        match spare {
            Some(pages) => Buffer { pages, len },
            None => Buffer::zeroed(len),
        }
    }

    /// Shortens the buffer to its first `len` bytes; does nothing if it is not longer. The memory
    /// is kept.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

/// The most bytes of memory that a thread keeps for its next buffers.
const SPARE_BYTES_MAX: usize = 2 << 20;

/// Memory of dropped buffers.
#[derive(Default)]
struct Spare {
    runs: Vec<Box<[Page]>>,
    bytes: usize,
}

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

impl Spare {
    /// Memory of so many pages, or at most twice as many.
    fn take(&mut self, pages: usize) -> Option<Box<[Page]>> {
        let found = self.runs.iter().rposition(|run| (pages..=2 * pages).contains(&run.len()))?;
        let run = self.runs.swap_remove(found);
        self.bytes -= size_of_val(&*run);
        Some(run)
    }

    /// Keeps memory, unless there is enough.
    fn give(&mut self, run: Box<[Page]>) {
        let bytes = size_of_val(&*run);
        if bytes > 0 && self.bytes + bytes <= SPARE_BYTES_MAX {
            self.bytes += bytes;
            self.runs.push(run);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let run = std::mem::take(&mut self.pages);
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| spare.borrow_mut().give(run));
    }
}

impl From<&[u8]> for Buffer {
    /// A buffer that holds a copy of `bytes`.
    fn from(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::unspecified(bytes.len());
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
    fn dropped_memory_is_used_again_but_never_without_bound() {
        let mut first = Buffer::zeroed(3 * PAGE);
        first.fill(7);
        let at = first.as_ptr();
        drop(first);
        let second = Buffer::unspecified(3 * PAGE - 1);
        assert_eq!((second.as_ptr(), second.len()), (at, 3 * PAGE - 1));
        assert!(Buffer::zeroed(3 * PAGE).iter().all(|&byte| byte == 0));

        let many: Vec<_> = (0..100).map(|_| Buffer::zeroed(SPARE_BYTES_MAX / 10)).collect();
        drop(many);
        assert!(SPARE.with(|spare| spare.borrow().bytes <= SPARE_BYTES_MAX));
    }

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
