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
mod helper;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bitflags::bitflags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

bitflags! {
    /// Mount flags, as in mount(8).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Read-only.
        const READ_ONLY = 1 << 0;
        /// Set-user-id and capabilities of files are ignored. Always set by the helper.
        const NO_SUID = 1 << 1;
        /// Device nodes cannot be opened. Always set by the helper.
        const NO_DEV = 1 << 2;
        /// Programs cannot be executed.
        const NO_EXEC = 1 << 3;
        /// Reading does not update the time of access.
        const NO_ATIME = 1 << 4;
        /// Writes are synchronous.
        const SYNCHRONOUS = 1 << 5;
        /// Users other than the mounting one have access.
        const ALLOW_OTHER = 1 << 6;
        /// The kernel checks permissions by the attributes.
        const DEFAULT_PERMISSIONS = 1 << 7;
        /// Symbolic links are not followed. The helper may not know it.
        const NO_SYMLINK_FOLLOW = 1 << 8;
        /// Times are written with other changes of the inode. The helper may not know it.
        const LAZY_TIME = 1 << 9;
    }
}

/// How to mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountMethod {
    /// Root mounts directly, other users through the helper.
    #[default]
    Auto,
    /// By mount(2), which requires root.
    Direct,
    /// By `fusermount3`.
    Helper,
}

/// Options of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// The source that the mount table shows: any text, or the path of the block device if
    /// `block_size` is given. If empty, the mount table shows the subtype.
    pub source: OsString,
    /// The type of filesystem: the mount table shows it as `fuse.SUBTYPE`. May be empty.
    pub subtype: String,
    /// Mounts the block device `source` as `fuseblk`, with this block size in bytes: a power of
    /// two between the block size of the device and the page size.
    pub block_size: Option<u32>,
    /// The mount flags.
    pub flags: MountFlags,
    /// The maximum size of a read in bytes, if lower than the limit of messages.
    pub max_read: Option<u32>,
    /// How to mount.
    pub way: MountMethod,
    /// Unmounts when this process ends, however it does: the helper mounts, and watches it. Not
    /// for block devices.
    pub auto_unmount: bool,
    /// Options of a security module, such as `context=`, which the kernel reads. The helper refuses
    /// them.
    pub security: Vec<String>,
}

/// Why mounting or unmounting failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MountError {
    /// The kernel has no FUSE, or this user may not use it.
    #[error("/dev/fuse: {0}")]
    Device(Errno),
    /// The mount point cannot be used.
    #[error("{}: {error}", path.display())]
    Point {
        /// The mount point.
        path: PathBuf,
        /// The reason.
        error: Errno,
    },
    /// mount(2) or umount(2) failed.
    #[error("{}: {call} failed: {error}", path.display())]
    System {
        /// The name of the call.
        call: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The reason.
        error: Errno,
    },
    /// The mount still exists, but is not found at its mount point.
    #[error("{}: what was mounted is not found there any more", path.display())]
    Elsewhere {
        /// The mount point.
        path: PathBuf,
    },
    /// An option contains a NUL.
    #[error("an option has a NUL")]
    Nul,
    /// Only root can mount a block device.
    #[error("only root mounts a block device")]
    BlockDevice,
    /// `fusermount3` could not be run.
    #[error("fusermount3, which mounts for users, cannot be run: {0}")]
    NoHelper(String),
    /// `fusermount3` failed, with this message.
    #[error("{0}")]
    Helper(String),
}

impl MountOptions {
    /// Returns the source that the mount table shows. The kernel rejects an empty one.
    fn shown_source(&self) -> &OsStr {
        match (self.source.as_os_str(), self.subtype.as_str()) {
            (source, "") if source.is_empty() => OsStr::new("fuse"),
            (source, subtype) if source.is_empty() => OsStr::new(subtype),
            (source, _) => source,
        }
    }
}

impl MountError {
    /// Returns true if the mount is not found at its mount point: another process detached it, or
    /// mounted something over it.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Elsewhere { .. })
    }

    /// Returns true if the filesystem is still in use.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::System { error, .. } => *error == Errno::BUSY,
            // The path precedes the reason.
            Self::Helper(message) => message.rsplit(": ").next().unwrap_or("").contains("busy"),
            _ => false,
        }
    }
}

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
        let by_helper = match options.way {
            MountMethod::Auto => options.auto_unmount || !rustix::process::geteuid().is_root(),
            MountMethod::Direct => false,
            MountMethod::Helper => true,
        };
        let (device, watch) = match by_helper {
            true => helper::mount(&point, options)?,
            false => (direct::mount(&point, options)?, None),
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
        is_connected(&self.device)
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

/// Returns true if a descriptor of the FUSE device is connected to a mount.
fn is_connected(device: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && !polled[0].revents().contains(PollFlags::ERR)
}

/// Returns the device number of the filesystem at `point`, without a request to its server, which
/// may not answer yet.
fn number_at(point: &Path) -> Option<DeviceNumber> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, point, flags, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Errors cannot be returned here.
        let _ = self.abort();
    }
}
