//! Slabs: the memory that buffers are cut from.
//!
//! 1. A slab is 2 MiB at a multiple of 2 MiB in memory, and the kernel is asked to back it by one
//!    huge page: who copies here and there from many of them misses the translation of addresses
//!    less often. Where the kernel does not do so, all is the same, but slower.
//! 2. Its bytes are zeros. It is never given back.

#![expect(unsafe_code, reason = "the kernel is told how memory is to be backed")]

use std::mem::MaybeUninit;

use rustix::mm::{Advice, madvise};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page: the unit of a buffer's memory.
pub(crate) const PAGE: usize = 4096;

/// A page of zeros, or of what somebody put there.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; PAGE]);

const _: () = assert!(size_of::<Page>() == PAGE && align_of::<Page>() == PAGE);

/// Bytes in a slab.
const SLAB: usize = 2 << 20;

#[derive(FromZeros)]
#[repr(C, align(2_097_152))]
struct Slab([Page; SLAB / PAGE]);

const _: () = assert!(size_of::<Slab>() == SLAB && align_of::<Slab>() == SLAB);

/// The pages of a new slab. Aborts when memory is out, as `Vec` does.
pub(crate) fn new() -> &'static mut [Page] {
    let mut slab = Box::<Slab>::new_uninit();
    ask_for_huge_page(&mut slab);
    slab.zero();
    // SAFETY: all its bytes were just set to zero, which `FromZeros` says is a `Slab`.
    let slab = unsafe { slab.assume_init() };
    &mut Box::leak(slab).0
}

/// To be asked before the memory is touched, which is when it is backed.
fn ask_for_huge_page(slab: &mut MaybeUninit<Slab>) {
    // SAFETY: the range is memory of ours alone, and this advice does not change what it holds.
    let asked = unsafe { madvise(slab.as_mut_ptr().cast(), SLAB, Advice::LinuxHugepage) };
    // A kernel that has none refuses: then the pages are small.
    asked.unwrap_or_default();
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
