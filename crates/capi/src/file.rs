//! Open files.

#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int};

use userbtrfs::{File, FileOpenOptions, Filesystem};

use crate::failure::{Failure, count, status};
use crate::pointers::{borrow, buffer, bytes, give, take, text};

/// The bits of `userbtrfs_file_open`: the file is made if absent, it must be absent, its
/// content is removed.
const CREATE: u32 = 1;
const EXCLUSIVE: u32 = 2;
const TRUNCATE: u32 = 4;

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_file_open(
    fs: *const Filesystem,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut File,
) -> c_int {
    let open = || {
        if flags & !(CREATE | EXCLUSIVE | TRUNCATE) != 0 {
            return Err(Failure::invalid("unknown flags"));
        }
        let mut options = FileOpenOptions::new();
        options.create(flags & CREATE != 0).truncate(flags & TRUNCATE != 0).mode(mode);
        options.create_new(flags & CREATE != 0 && flags & EXCLUSIVE != 0);
        // SAFETY: the header demands a handle that was not ended, and a string.
        Ok(options.open(unsafe { borrow(fs) }?, unsafe { text(path) }?)?)
    };
    // SAFETY: the header demands a place that may be written.
    status(|| unsafe { give(file, open) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_file_read(
    file: *const File,
    target: *mut u8,
    len: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: the header demands a handle that was not ended.
        let file = unsafe { borrow(file) }?;
        // SAFETY: the header demands a buffer of that length that nothing else uses.
        Ok(file.read_at(unsafe { buffer(target, len) }?, offset)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_file_write(
    file: *const File,
    source: *const u8,
    len: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: the header demands a handle that was not ended.
        let file = unsafe { borrow(file) }?;
        // SAFETY: the header demands that many bytes, which do not change.
        Ok(file.write_at(unsafe { bytes(source, len) }?, offset)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_file_truncate(file: *const File, size: u64) -> c_int {
    // SAFETY: the header demands a handle that was not ended.
    status(|| Ok(unsafe { borrow(file) }?.set_len(size)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_file_sync(file: *const File) -> c_int {
    // SAFETY: the header demands a handle that was not ended.
    status(|| Ok(unsafe { borrow(file) }?.sync_all()?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_file_close(file: *mut File) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and that nothing uses any more.
    status(|| Ok(unsafe { take(file) }?.close()?))
}
