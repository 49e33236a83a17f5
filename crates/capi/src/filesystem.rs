//! Open filesystems.

#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int};

use userbtrfs::{Filesystem, OpenOptions};

use crate::failure::{Failure, status};
use crate::pointers::{borrow, give, host_path, take};

/// The bit that opens for writing.
const WRITE: u32 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_open(
    image: *const c_char,
    flags: u32,
    fs: *mut *mut Filesystem,
) -> c_int {
    let open = || {
        if flags & !WRITE != 0 {
            return Err(Failure::invalid("unknown flags"));
        }
        // SAFETY: the header demands a string.
        let image = unsafe { host_path(image) }?;
        Ok(OpenOptions::new().write(flags & WRITE != 0).open(image)?)
    };
    // SAFETY: the header demands a place that may be written.
    status(|| unsafe { give(fs, open) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_commit(fs: *const Filesystem) -> c_int {
    // SAFETY: the header demands a handle that was not ended.
    status(|| Ok(unsafe { borrow(fs) }?.commit()?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_close(fs: *mut Filesystem) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and that nothing uses any more.
    status(|| Ok(unsafe { take(fs) }?.close()?))
}
