//! Names and attributes by path.

#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int};

use userbtrfs::{File, Filesystem, Metadata, Timestamp};

use crate::failure::{Failure, count, status};
use crate::pointers::{borrow, buffer, store, text};

/// A time, as C gets it.
#[repr(C)]
pub(crate) struct Time {
    seconds: i64,
    nanoseconds: u32,
    reserved: u32,
}

/// The attributes of an inode, as C gets them.
#[repr(C)]
pub(crate) struct Stat {
    inode: u64,
    subvolume: u64,
    size: u64,
    allocated: u64,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    device_major: u32,
    device_minor: u32,
    accessed: Time,
    modified: Time,
    changed: Time,
    created: Time,
}

impl Time {
    fn of(time: Timestamp) -> Self {
        Self { seconds: time.sec, nanoseconds: time.nsec, reserved: 0 }
    }
}

impl Stat {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.id.number,
            subvolume: metadata.id.subvolume.0,
            size: metadata.size,
            allocated: metadata.allocated,
            mode: metadata.mode,
            links: metadata.nlink,
            uid: metadata.uid,
            gid: metadata.gid,
            device_major: metadata.device.0,
            device_minor: metadata.device.1,
            accessed: Time::of(metadata.accessed),
            modified: Time::of(metadata.modified),
            changed: Time::of(metadata.changed),
            created: Time::of(metadata.created),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_stat(
    fs: *const Filesystem,
    path: *const c_char,
    stat: *mut Stat,
) -> c_int {
    status(|| {
        // SAFETY: the header demands a handle that was not ended, and a string.
        let metadata = unsafe { borrow(fs) }?.metadata(unsafe { text(path) }?)?;
        // SAFETY: the header demands a place that may be written.
        unsafe { store(stat, Stat::of(&metadata)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_lstat(
    fs: *const Filesystem,
    path: *const c_char,
    stat: *mut Stat,
) -> c_int {
    status(|| {
        // SAFETY: the header demands a handle that was not ended, and a string.
        let metadata = unsafe { borrow(fs) }?.symlink_metadata(unsafe { text(path) }?)?;
        // SAFETY: the header demands a place that may be written.
        unsafe { store(stat, Stat::of(&metadata)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_file_stat(file: *const File, stat: *mut Stat) -> c_int {
    status(|| {
        // SAFETY: the header demands a handle that was not ended.
        let metadata = unsafe { borrow(file) }?.inode().metadata()?;
        // SAFETY: the header demands a place that may be written.
        unsafe { store(stat, Stat::of(&metadata)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_mkdir(
    fs: *const Filesystem,
    path: *const c_char,
    mode: u32,
) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and a string.
    status(|| Ok(unsafe { borrow(fs) }?.create_dir(unsafe { text(path) }?, mode).map(drop)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_rmdir(fs: *const Filesystem, path: *const c_char) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and a string.
    status(|| Ok(unsafe { borrow(fs) }?.remove_dir(unsafe { text(path) }?)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_unlink(fs: *const Filesystem, path: *const c_char) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and a string.
    status(|| Ok(unsafe { borrow(fs) }?.remove_file(unsafe { text(path) }?)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_rename(
    fs: *const Filesystem,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and strings.
    status(|| Ok(unsafe { borrow(fs) }?.rename(unsafe { text(from) }?, unsafe { text(to) }?)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_link(
    fs: *const Filesystem,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and strings.
    status(|| Ok(unsafe { borrow(fs) }?.hard_link(unsafe { text(from) }?, unsafe { text(to) }?)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_symlink(
    fs: *const Filesystem,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and strings.
    status(|| Ok(unsafe { borrow(fs) }?.symlink(unsafe { text(target) }?, unsafe { text(path) }?)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_readlink(
    fs: *const Filesystem,
    path: *const c_char,
    target: *mut u8,
    len: usize,
) -> i64 {
    count(|| {
        // SAFETY: the header demands a handle that was not ended, and a string.
        let found = unsafe { borrow(fs) }?.read_link(unsafe { text(path) }?)?;
        // SAFETY: the header demands a buffer of that length that nothing else uses.
        let place = unsafe { buffer(target, len) }?;
        let place = place.get_mut(..found.len());
        let error = || Failure::new(rustix::io::Errno::RANGE, "the buffer is too small");
        place.ok_or_else(error)?.copy_from_slice(&found);
        Ok(found.len())
    })
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn layout_is_that_of_the_header() {
        // The example in C states the same.
        assert_eq!(size_of::<Stat>(), 120);
        assert_eq!(offset_of!(Stat, accessed), 56);
    }
}
