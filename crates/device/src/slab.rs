//! Slabs: the memory that buffers are cut from.
//!
//! 1. A slab is 2 MiB at a multiple of 2 MiB in memory, and the kernel is asked to back it by one
//!    huge page: who copies here and there from many of them misses the translation of addresses
//!    less often. Where the kernel does not do so, all is the same, but slower.
//! 2. It is mapped anew, for no page of it may be there before that is asked: the kernel would go
//!    on page by page.
//! 3. Its bytes are zeros, as they are mapped; nobody clears them again. It is never given back.

#![expect(unsafe_code, reason = "memory is had from the kernel, and it is told how to back it")]

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::{ptr, slice};

use rustix::io::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page: the unit of a buffer's memory.
pub(crate) const PAGE: usize = 4096;

/// A page of zeros, or of what somebody put there.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; PAGE]);

const _: () = assert!(size_of::<Page>() == PAGE && align_of::<Page>() == PAGE);

/// Bytes in a slab.
const SLAB: usize = 2 << 20;
/// Pages in a slab.
const PAGES: usize = SLAB / PAGE;

/// The pages of a new slab. Aborts when memory is out, as `Vec` does.
pub(crate) fn new() -> &'static mut [Page] {
    let start = map().unwrap_or_else(|_| handle_alloc_error(Layout::new::<[Page; PAGES]>()));
    // SAFETY: these pages are mapped to be read and written, start at a multiple of their size,
    // and hold zeros, which are a `Page`. Nothing else knows of them, and they stay for good.
    unsafe { slice::from_raw_parts_mut(start.cast(), PAGES) }
}

/// Maps a slab. It is cut from twice as much, since a mapping starts at any page.
fn map() -> Result<*mut c_void> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: it asks for memory anywhere, and takes none that is in use.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), 2 * SLAB, access, flags)? };
    let before = mapped.addr().next_multiple_of(SLAB) - mapped.addr();
    let (start, end) = (mapped.wrapping_byte_add(before), mapped.wrapping_byte_add(before + SLAB));
    for (rest, len) in [(mapped, before), (end, SLAB - before)] {
        if len > 0 {
            // SAFETY: it is of the mapping just made, and outside of the slab. Where the kernel
            // refuses, it stays, and is never touched.
            unsafe { munmap(rest, len) }.unwrap_or_default();
        }
    }
    // SAFETY: the slab is of that mapping, too, and this advice does not change what it holds.
    // A kernel that has no huge pages refuses: then the pages are small.
    unsafe { madvise(start, SLAB, Advice::LinuxHugepage) }.unwrap_or_default();
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_is_aligned_and_all_zeros() {
        let slab = new();
        assert_eq!((slab.as_ptr().addr() % SLAB, size_of_val(slab)), (0, SLAB));
        assert!(slab.as_bytes().iter().all(|&byte| byte == 0));
    }
}
