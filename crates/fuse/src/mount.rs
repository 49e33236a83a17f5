//! Mounting and unmounting.
//!
//! 1. Root mounts directly; other users run `fusermount3`, which is set-user-id root, and receive
//!    the descriptor of the device from it through a socket.
//! 2. Only the filesystem that was mounted here is unmounted: not after the kernel has reported it
//!    gone, and only while its device number is found at the mount point. Another process may have
//!    detached it while it is used, or mounted something else there.
//! 3. A block device is mounted as `fuseblk`: only then the kernel forwards sync(2), and umount(8)
//!    waits for the server. The kernel opens it exclusively, so no other process may hold it so.

mod direct;
mod error;
mod helper;
mod options;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use error::MountError;
pub use options::{MountFlags, MountMethod, MountOptions};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::clone;
use crate::values::STATX_DONT_SYNC;

/// A mounted filesystem. Dropping this unmounts it.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    device: OwnedFd,
    by_helper: bool,
    /// The helper that watches this process ends with it.
    _watch: Option<OwnedFd>,
    /// The device number, if it could be found.
    number: Option<DeviceNumber>,
}

/// The major and minor number of a device.
type DeviceNumber = (u32, u32);

impl Mount {
    /// Mounts at `point`, a directory.
    pub fn new(point: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let wrong = |error: std::io::Error| MountError::Point {
            path: point.to_owned(),
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        let point = point.canonicalize().map_err(wrong)?;
        let by_helper = match options.method {
            MountMethod::Auto => options.auto_unmount || !rustix::process::geteuid().is_root(),
            MountMethod::Direct => false,
            MountMethod::Helper => true,
        };
        let (device, watch) = if by_helper {
            helper::mount(&point, options)?
        } else {
            (direct::mount(&point, options)?, None)
        };
        let number = number_at(&point);
        Ok(Self { point, device, by_helper, _watch: watch, number })
    }

    /// Returns the mount point, an absolute path.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Returns the device number, `st_dev` of its inodes, if it could be found.
    pub fn number(&self) -> Option<u64> {
        self.number.map(|(major, minor)| rustix::fs::makedev(major, minor))
    }

    /// Returns the descriptor of the FUSE device.
    pub(crate) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Returns true if the filesystem is still mounted, according to the FUSE device.
    pub fn is_alive(&self) -> bool {
        clone::is_connected(&self.device)
    }

    /// Returns true if this filesystem is found at its mount point.
    pub(crate) fn is_in_place(&self) -> bool {
        number_at(&self.point) == self.number
    }

    /// Unmounts if the filesystem is not in use. Dirty data is written back first.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.end(UnmountFlags::empty())
    }

    /// Detaches the filesystem from its mount point, even if it is in use.
    pub fn detach(&self) -> Result<(), MountError> {
        self.end(UnmountFlags::DETACH)
    }

    /// Detaches the filesystem; if the caller is root, current and later requests fail.
    pub fn abort(&self) -> Result<(), MountError> {
        self.end(UnmountFlags::DETACH | UnmountFlags::FORCE)
    }

    fn end(&self, flags: UnmountFlags) -> Result<(), MountError> {
        if !self.is_alive() {
            return Ok(());
        }
        if !self.is_in_place() {
            return Err(MountError::Elsewhere { path: self.point.clone() });
        }
        if self.by_helper && !rustix::process::geteuid().is_root() {
            return helper::unmount(&self.point, flags.contains(UnmountFlags::DETACH));
        }
        direct::unmount(&self.point, flags)
    }
}

/// Returns the device number of the filesystem at `point`, without a request to its server, which
/// may not answer yet.
fn number_at(point: &Path) -> Option<DeviceNumber> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | STATX_DONT_SYNC;
    let found = statx(CWD, point, flags, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Errors cannot be returned here.
        let _ = self.abort();
    }
}
