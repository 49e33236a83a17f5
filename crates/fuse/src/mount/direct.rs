//! Mounting as root, by mount(2).

use std::ffi::CString;
use std::fmt::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::stat;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{getgid, getuid};

use super::error::MountError;
use super::options::{MountFlags, MountOptions};
use crate::clone;

/// Mounts, and returns the descriptor of the FUSE device.
pub(super) fn mount(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = clone::open_device().map_err(MountError::Device)?;
    let wrong = |error| MountError::Point { path: point.to_owned(), error };
    let mode = stat(point).map_err(wrong)?.st_mode;
    let data = CString::new(data(&device, mode, options)).map_err(|_| MountError::Nul)?;
    let flags = options.flags.to_system();
    let source = options.shown_source();
    let failed = |error| MountError::System { call: "mount", path: point.to_owned(), error };
    rustix::mount::mount(source, point, kind(options), flags, data.as_c_str()).map_err(failed)?;
    if options.block_size.is_some() && !clone::is_connected(&device) {
        // The kernel has one superblock for a block device: an old one, whose server is gone but
        // which is still in use, was mounted here again.
        let _ = unmount(point, UnmountFlags::DETACH);
        return Err(failed(Errno::BUSY));
    }
    Ok(device)
}

/// Unmounts.
pub(super) fn unmount(point: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    let path = || point.to_owned();
    rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW)
        .map_err(|error| MountError::System { call: "umount", path: path(), error })
}

/// Returns the filesystem type for mount(2).
fn kind(options: &MountOptions) -> String {
    let kind = if options.block_size.is_some() { "fuseblk" } else { "fuse" };
    match options.subtype.as_str() {
        "" => kind.to_owned(),
        subtype => format!("{kind}.{subtype}"),
    }
}

/// Returns the options that FUSE itself parses.
fn data(device: &OwnedFd, mode: u32, options: &MountOptions) -> String {
    const KIND_OF_FILE: u32 = 0o170_000;
    let user = getuid().as_raw();
    let group = getgid().as_raw();
    let root = mode & KIND_OF_FILE;
    let fd = device.as_raw_fd();
    let mut data = format!("fd={fd},rootmode={root:o},user_id={user},group_id={group}");
    if options.flags.contains(MountFlags::ALLOW_OTHER) {
        data.push_str(",allow_other");
    }
    if options.flags.contains(MountFlags::DEFAULT_PERMISSIONS) {
        data.push_str(",default_permissions");
    }
    for option in &options.security {
        write!(data, ",{option}").expect("a string takes all that is written");
    }
    for (name, value) in [("max_read", options.max_read), ("blksize", options.block_size)] {
        if let Some(value) = value {
            write!(data, ",{name}={value}").expect("a string takes all that is written");
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn options_are_those_that_the_kernel_reads() {
        let options = MountOptions {
            flags: MountFlags::ALLOW_OTHER | MountFlags::DEFAULT_PERMISSIONS,
            block_size: Some(4096),
            subtype: "x".to_owned(),
            ..MountOptions::default()
        };
        let device = null();
        let text = data(&device, 0o040_755, &options);
        let fd = device.as_raw_fd();
        assert!(text.starts_with(&format!("fd={fd},rootmode=40000,user_id=")), "{text}");
        assert!(text.ends_with(",allow_other,default_permissions,blksize=4096"), "{text}");
        assert_eq!(kind(&options), "fuseblk.x");
        assert_eq!(kind(&MountOptions::default()), "fuse");
    }
}
