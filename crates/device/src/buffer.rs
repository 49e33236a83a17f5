//! The byte buffer that I/O reads into and writes from.
//!
//! 1. A buffer starts at a multiple of 4096 in memory and its memory is whole pages, so that
//!    direct I/O can use it as it is.
//! 2. Its bytes are always initialised: zero until written, or the bytes of an earlier buffer if
//!    the caller is going to fill all of them ([`Buffer::unspecified`]).
//! 3. The bytes do not move while the buffer lives, not even when the `Buffer` itself is moved.
//! 4. Memory of buffers up to 128 KiB is cut from slabs ([`slab`]) and reused by the next buffer
//!    of its size on any thread. It is never returned to the system: it amounts to the peak in use.
//!    Other allocations can therefore not fragment it, which would cost as much as the buffers do.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};

use userbtrfs_sync::FreeList;
use zerocopy::{FromZeros, IntoBytes};

use crate::slab::{self, PAGE, Page};

/// An owned run of bytes, aligned to 4096. Shared between readers as `Arc<Buffer>`.
pub struct Buffer {
    run: Run,
    len: usize,
}

/// Memory of a buffer.
enum Run {
    /// A piece of a slab, of a power of two of pages.
    Piece(&'static mut [Page]),
    /// A separate allocation: larger, or empty.
    Own(Box<[Page]>),
}

impl Buffer {
    /// Creates a buffer of `len` zero bytes; `len` may be 0. Aborts if out of memory, as `Vec`
    /// does.
    pub fn zeroed(len: usize) -> Buffer {
        let pages = len.div_ceil(PAGE);
        if class_of(pages).is_none() {
            return Buffer { run: Run::Own(zeroed(pages)), len };
        }
        let mut buffer = Buffer::unspecified(len);
        buffer.fill(0);
        buffer
    }

    /// Creates a buffer of `len` bytes of any value, for a caller that fills all of them. It reuses
    /// memory of dropped buffers, which saves clearing it and, for large ones, allocating it.
    pub fn unspecified(len: usize) -> Buffer {
        let pages = len.div_ceil(PAGE);
        let run = match class_of(pages) {
            Some(class) => Run::Piece(piece(class)),
            None => Run::Own(spare(pages).unwrap_or_else(|| zeroed(pages))),
        };
        Buffer { run, len }
    }

    /// Shortens the buffer to its first `len` bytes; does nothing if it is not longer. The memory
    /// is kept.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

fn zeroed(pages: usize) -> Box<[Page]> {
    <[Page]>::new_box_zeroed_with_elems(pages)
        .unwrap_or_else(|_| handle_alloc_error(Layout::new::<Page>()))
}

/// The number of piece sizes: 1, 2, 4 .. 32 pages.
const CLASSES: usize = 6;

/// The free pieces, by the logarithm of their number of pages.
static PIECES: [FreeList<&'static mut [Page]>; CLASSES] = [const { FreeList::new() }; CLASSES];

/// Returns the class of the smallest pieces of at least `pages` pages.
fn class_of(pages: usize) -> Option<usize> {
    (0..CLASSES).find(|class| (1..=1 << class).contains(&pages))
}

/// Returns a free piece of this class, from a new slab if there is none.
fn piece(class: usize) -> &'static mut [Page] {
    if let Some(piece) = PIECES[class].take() {
        return piece;
    }
    let (first, rest) = slab::new().split_at_mut(1 << class);
    PIECES[class].give_all(rest.chunks_exact_mut(1 << class));
    first
}

/// The maximum number of bytes that a thread keeps for its next large buffers.
const SPARE_BYTES_MAX: usize = 2 << 20;

/// Memory of large buffers that a thread dropped.
#[derive(Default)]
struct Spare {
    runs: Vec<Box<[Page]>>,
    bytes: usize,
}

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

/// Returns memory that this thread kept, of at least `pages` and at most twice as many pages.
fn spare(pages: usize) -> Option<Box<[Page]>> {
    SPARE.try_with(|spare| spare.borrow_mut().take(pages)).ok().flatten()
}

impl Spare {
    fn take(&mut self, pages: usize) -> Option<Box<[Page]>> {
        let mut lens = self.runs.iter().map(|run| run.len());
        let found = lens.rposition(|len| (pages..=2 * pages).contains(&len))?;
        let run = self.runs.swap_remove(found);
        self.bytes -= size_of_val(&run[..]);
        Some(run)
    }

    /// Keeps memory, unless that would exceed the maximum.
    fn give(&mut self, run: Box<[Page]>) {
        let bytes = size_of_val(&run[..]);
        if bytes > 0 && self.bytes + bytes <= SPARE_BYTES_MAX {
            self.bytes += bytes;
            self.runs.push(run);
        }
    }
}

impl Run {
    fn pages(&self) -> &[Page] {
        match self {
            Self::Piece(piece) => piece,
            Self::Own(own) => own,
        }
    }

    fn pages_mut(&mut self) -> &mut [Page] {
        match self {
            Self::Piece(piece) => piece,
            Self::Own(own) => own,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match mem::replace(&mut self.run, Run::Own(Box::default())) {
            Run::Piece(piece) => {
                let class = class_of(piece.len()).expect("a piece is of a class");
                PIECES[class].give(piece);
            }
            // A thread that is ending keeps no memory.
            Run::Own(own) => drop(SPARE.try_with(|spare| spare.borrow_mut().give(own))),
        }
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
        &self.run.pages().as_bytes()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.run.pages_mut().as_mut_bytes()[..self.len]
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
        let is_used_again = |len: usize| {
            let mut first = Buffer::zeroed(len);
            first.fill(7);
            let at = first.as_ptr();
            drop(first);
            let second = Buffer::unspecified(len - 1);
            assert_eq!(second.len(), len - 1);
            second.as_ptr() == at
        };
        // Another thread may take the piece first.
        assert!((0..100).any(|_| is_used_again(3 * PAGE)));
        assert!(is_used_again(100 * PAGE));
        assert!(Buffer::zeroed(3 * PAGE).iter().all(|&byte| byte == 0));

        let many: Vec<_> = (0..100).map(|_| Buffer::zeroed(SPARE_BYTES_MAX / 10)).collect();
        drop(many);
        assert!(SPARE.with(|spare| spare.borrow().bytes <= SPARE_BYTES_MAX));
    }

    #[test]
    fn pieces_of_a_slab_are_disjoint_and_are_reused_across_threads() {
        let fill = |count: usize| -> Vec<_> {
            (0..count)
                .map(|number| Buffer::from(&number.to_le_bytes().repeat(2 * PAGE)[..]))
                .collect()
        };
        let many = fill(20);
        for (number, buffer) in many.iter().enumerate() {
            assert!(buffer.chunks_exact(8).all(|bytes| *bytes == number.to_le_bytes()));
        }
        let left = std::thread::spawn(move || drop(many));
        left.join().unwrap();
        let class = class_of(16).unwrap();
        assert!(PIECES[class].take().is_some_and(|piece| piece.len() == 16));
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
