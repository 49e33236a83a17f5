//! New filesystems, subvolumes and mounts.

#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_char, c_int};

use userbtrfs::device::{FileDevice, FileOptions};
use userbtrfs::mount::{self, Mount, MountOptions, Mounted};
use userbtrfs::{Error, Filesystem, mkfs};

use crate::failure::{Failure, status};
use crate::pointers::{borrow, give, host_path, take, text};

/// The bit of `userbtrfs_mkfs` that allows to overwrite what is there.
const FORCE: u32 = 1;

/// The bit of `userbtrfs_snapshot` for a snapshot that may not be changed.
const READ_ONLY: u32 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_mkfs(
    image: *const c_char,
    size: u64,
    label: *const c_char,
    flags: u32,
) -> c_int {
    status(|| {
        if flags & !FORCE != 0 {
            return Err(Failure::invalid("unknown flags"));
        }
        let mut options = mkfs::Options { force: flags & FORCE != 0, ..mkfs::Options::default() };
        if !label.is_null() {
            // SAFETY: the header demands a string or NULL.
            options.label = unsafe { text(label) }?.to_vec();
        }
        // SAFETY: the header demands a string.
        let image = unsafe { host_path(image) }?;
        if size > 0 {
            mkfs::make_image(image, size, &options)?;
            return Ok(());
        }
        let writable = FileOptions { writable: true, ..FileOptions::default() };
        let device = FileDevice::open(image, writable).map_err(Error::from)?;
        mkfs::make(&device, &options)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_subvolume_create(
    fs: *const Filesystem,
    path: *const c_char,
    mode: u32,
) -> c_int {
    status(|| {
        // SAFETY: the header demands a handle that was not ended, and a string.
        let (dir, name) = unsafe { borrow(fs) }?.open_parent(unsafe { text(path) }?)?;
        dir.create_subvolume(&name, mode)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_subvolume_delete(
    fs: *const Filesystem,
    path: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the header demands a handle that was not ended, and a string.
        let (dir, name) = unsafe { borrow(fs) }?.open_parent_to_remove(unsafe { text(path) }?)?;
        dir.delete_subvolume(&name)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_snapshot(
    fs: *const Filesystem,
    source: *const c_char,
    path: *const c_char,
    flags: u32,
) -> c_int {
    status(|| {
        if flags & !READ_ONLY != 0 {
            return Err(Failure::invalid("unknown flags"));
        }
        // SAFETY: the header demands a handle that was not ended.
        let fs = unsafe { borrow(fs) }?;
        // SAFETY: the header demands a string.
        let source = fs.lookup(unsafe { text(source) }?)?;
        let id = fs.subvolume_at(&source)?.id;
        // SAFETY: the header demands a string.
        let (dir, name) = fs.open_parent(unsafe { text(path) }?)?;
        dir.snapshot(&name, id, flags & READ_ONLY != 0)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_mount(
    fs: *const Filesystem,
    source: *const c_char,
    directory: *const c_char,
    mount: *mut *mut Mounted,
) -> c_int {
    let start = || {
        // SAFETY: the header demands strings.
        let (source, point) = unsafe { (host_path(source)?, host_path(directory)?) };
        let options = MountOptions {
            source: source.into(),
            subtype: mount::KIND.to_owned(),
            ..MountOptions::default()
        };
        // SAFETY: the header demands a handle that was not ended.
        let filesystem = unsafe { borrow(fs) }?.clone();
        let mounted = Mount::new(point, &options)?;
        let options = mount::Options { device: source.into(), ..mount::Options::default() };
        Ok(Mounted::start(mounted, filesystem, &options)?)
    };
    // SAFETY: the header demands a place that may be written.
    status(|| unsafe { give(mount, start) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_mount_wait(mount: *const Mounted) -> c_int {
    // SAFETY: the header demands a handle that was not ended.
    status(|| unsafe { borrow(mount) }.map(Mounted::wait))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_unmount(mount: *const Mounted) -> c_int {
    // SAFETY: the header demands a handle that was not ended.
    status(|| Ok(unsafe { borrow(mount) }?.unmount_handle().unmount().map(drop)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn userbtrfs_mount_close(mount: *mut Mounted) -> c_int {
    // SAFETY: the header demands a handle that was not ended, and that nothing uses any more.
    status(|| Ok(unsafe { take(mount) }?.end()?))
}
