//! Slabs: the memory that buffers are cut from.
//!
//! 1. A slab is 2 MiB at a multiple of 2 MiB in memory, and the kernel is asked to back it by one
//!    huge page: random copies from many buffers then miss the TLB less often. If the kernel does
//!    not do so, everything works the same, but slower.
//! 2. It is a new mapping, since no page of it may be present when the huge page is asked for: the
//!    kernel would continue with small pages.
//! 3. Its bytes are zeros, as mapped, and are not cleared again. It is never unmapped.

#![expect(unsafe_code, reason = "memory is had from the kernel, and it is told how to back it")]

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::{ptr, slice};

use rustix::io::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page: the unit of a buffer's memory.
pub(crate) const PAGE: usize = 4096;

/// A page of memory; its bytes are always initialised.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; PAGE]);

const _: () = assert!(size_of::<Page>() == PAGE && align_of::<Page>() == PAGE);

/// Bytes in a slab.
const SLAB: usize = 2 << 20;
/// Pages in a slab.
const PAGES: usize = SLAB / PAGE;

/// Returns the pages of a new slab. Aborts if out of memory, as `Vec` does.
pub(crate) fn new() -> &'static mut [Page] {
    let start = map().unwrap_or_else(|_| handle_alloc_error(Layout::new::<[Page; PAGES]>()));
    // SAFETY: these pages are mapped readable and writable, start at a multiple of their size,
    // and hold zeros, which are a valid `Page`. Nothing else refers to them, and they are never
    // unmapped.
    unsafe { slice::from_raw_parts_mut(start.cast(), PAGES) }
}

/// Maps a slab. It is cut from a mapping of twice its size, since a mapping starts at any page.
fn map() -> Result<*mut c_void> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE;
    // SAFETY: the kernel chooses the address (no `MAP_FIXED`), so no memory in use is replaced.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), 2 * SLAB, access, flags)? };
    let before = mapped.addr().next_multiple_of(SLAB) - mapped.addr();
    let start = mapped.wrapping_byte_add(before);
    let end = mapped.wrapping_byte_add(before + SLAB);
    for (rest, len) in [(mapped, before), (end, SLAB - before)] {
        if len > 0 {
            // SAFETY: the range is in the mapping just made, and outside of the slab. If the
            // kernel refuses, it stays mapped, and is never accessed.
            unsafe { munmap(rest, len) }.unwrap_or_default();
        }
    }
    // SAFETY: the slab is in that mapping, too, and this advice does not change its contents.
    // A kernel without huge pages refuses: then the pages are small.
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
