//! A file of the kernel's, mapped into memory.
//!
//! 1. It is mapped for reading, whole, while this lives; nobody makes the file shorter meanwhile.

#![expect(unsafe_code, reason = "memory is mapped and looked at")]

use std::ffi::c_void;
use std::fs::File;
use std::ptr::{NonNull, null_mut};

use anyhow::{Context, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// See the module's text.
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: it is memory that nobody changes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file, which is not empty.
    pub(crate) fn new(file: &File) -> Result<Self> {
        let len = usize::try_from(file.metadata()?.len())?;
        // SAFETY: the kernel chooses a place that is free.
        let start = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start).context("a mapping has a place")?;
        Ok(Self { start, len })
    }

    /// What the file holds from an offset on, at most so many bytes.
    pub(crate) fn part(&self, offset: u64, len: usize) -> &[u8] {
        let bytes = self.bytes();
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        &bytes[start..bytes.len().min(start + len)]
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped while `self` lives, and nobody writes to the file.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is what was mapped, and nobody looks at it any more.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        unmapped.expect("what was mapped can be unmapped");
    }
}
