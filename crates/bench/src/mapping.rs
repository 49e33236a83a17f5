//! A file on the kernel's mount, mapped into memory.
//!
//! 1. The whole file is mapped for reading while this value lives; no process truncates it
//!    meanwhile.

#![expect(unsafe_code, reason = "memory is mapped and looked at")]

use std::ffi::c_void;
use std::fs::File;
use std::ptr::{NonNull, null_mut};

use anyhow::{Context, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A file mapped into memory.
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: no thread or process changes this memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file, which must not be empty.
    pub(crate) fn new(file: &File) -> Result<Self> {
        let len = usize::try_from(file.metadata()?.len())?;
        // SAFETY: the kernel chooses a free address range.
        let start = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start).context("a mapping has a place")?;
        Ok(Self { start, len })
    }

    /// Returns at most `len` bytes of the file at an offset.
    pub(crate) fn part(&self, offset: u64, len: usize) -> &[u8] {
        let bytes = self.bytes();
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        &bytes[start..bytes.len().min(start + len)]
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped while `self` lives, and no process writes to the file.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the range that was mapped, and no reference to it exists any more.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        unmapped.expect("what was mapped can be unmapped");
    }
}
