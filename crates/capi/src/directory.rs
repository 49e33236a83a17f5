//! Listings of directories.

#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int};

use userbtrfs::{DirEntries, FileKind, Filesystem};

use crate::failure::{Failure, count, status};
use crate::pointers::{borrow, borrow_mut, give, store, take, text};

/// The bytes of a name with its NUL.
const NAME_LEN: usize = 256;

/// An entry of a directory, as C gets it.
#[repr(C)]
pub(crate) struct Entry {
    inode: u64,
    subvolume: u64,
    kind: u32,
    name_len: u32,
    name: [u8; NAME_LEN],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_dir_open(
    fs: *const Filesystem,
    path: *const c_char,
    dir: *mut *mut DirEntries,
) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and a string.
    let open = || Ok(unsafe { borrow(fs) }?.open_dir(unsafe { text(path) }?)?.entries());
    // SAFETY: the header demands a place that may be written.
    status(|| unsafe { give(dir, open) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_dir_next(dir: *mut DirEntries, entry: *mut Entry) -> i64 {
    count(|| {
        // SAFETY: the header demands a handle that was not ended, and that one thread uses.
        let Some(found) = unsafe { borrow_mut(dir) }?.next().transpose()? else { return Ok(0) };
        let mut name = [0; NAME_LEN];
        let len = found.name().len();
        let name_len = u32::try_from(len).ok().filter(|_| len < NAME_LEN);
        let name_len = name_len.ok_or_else(|| Failure::from(userbtrfs::Error::NameTooLong))?;
        name[..len].copy_from_slice(found.name());
        let id = found.target();
        let kind = found.kind().map_or(0, FileKind::to_mode);
        let new = Entry { inode: id.number, subvolume: id.subvolume.0, kind, name_len, name };
        // SAFETY: the header demands a place that may be written.
        unsafe { store(entry, new) }?;
        Ok(1)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_dir_close(dir: *mut DirEntries) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and that nothing uses any more.
    status(|| unsafe { take(dir) }.map(drop))
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn layout_is_that_of_the_header() {
        // The example in C states the same.
        assert_eq!(size_of::<Entry>(), 280);
        assert_eq!(offset_of!(Entry, name), 24);
    }
}
