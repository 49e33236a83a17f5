//! Putting a filesystem into the tree of names, and taking it out.
//!
//! 1. Root mounts by itself; anybody else asks `fusermount3`, which is set-user-id root, and gets
//!    the descriptor of the device from it through a socket.
//! 2. What was mounted here is unmounted, and nothing else: not after the kernel said that it is
//!    gone, and only while its device number is found at its place. Somebody may have taken it out
//!    of the tree of names while it is used, or mounted something else there.
//! 3. A block device is mounted as `fuseblk`: only then the kernel passes sync(2) on, and waits
//!    with umount(8) for the server. The kernel opens it exclusively; nobody else may hold it so.

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
    /// How the filesystem may be used.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Nothing can be changed.
        const READ_ONLY = 1 << 0;
        /// Set-user-id and capabilities of files mean nothing. Always so through the helper.
        const NO_SUID = 1 << 1;
        /// Device nodes cannot be opened. Always so through the helper.
        const NO_DEV = 1 << 2;
        /// Programs cannot be run.
        const NO_EXEC = 1 << 3;
        /// Reading sets no time of access.
        const NO_ATIME = 1 << 4;
        /// Every write is waited for.
        const SYNCHRONOUS = 1 << 5;
        /// Other users than the mounting one may look.
        const ALLOW_OTHER = 1 << 6;
        /// The kernel checks permissions by the attributes.
        const DEFAULT_PERMISSIONS = 1 << 7;
    }
}

/// Who mounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountMethod {
    /// Root directly, others through the helper.
    #[default]
    Auto,
    /// By mount(2), which takes root.
    Direct,
    /// By `fusermount3`.
    Helper,
}

/// What is mounted, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// What the table of mounts shows as the source: any text, but the path of the block device
    /// where `block_size` is given. Where it is empty, the kind of filesystem.
    pub source: OsString,
    /// The kind of filesystem: the table of mounts shows it as `fuse.KIND`. May be empty.
    pub subtype: String,
    /// Mounts the block device `source` as `fuseblk`, with this size of blocks in bytes: a power
    /// of two between the device's own and the page size.
    pub block_size: Option<u32>,
    /// How it may be used.
    pub flags: MountFlags,
    /// The most bytes of one read, if there is a bound beside that of messages.
    pub max_read: Option<u32>,
    /// Who mounts.
    pub way: MountMethod,
}

/// Why something was not mounted, or not unmounted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MountError {
    /// No FUSE in this kernel, or not for this user.
    #[error("/dev/fuse: {0}")]
    Device(Errno),
    /// The place to mount at.
    #[error("{}: {error}", path.display())]
    Point {
        /// The place.
        path: PathBuf,
        /// What is wrong with it.
        error: Errno,
    },
    /// mount(2) or umount(2) refused.
    #[error("{}: {call} failed: {error}", path.display())]
    System {
        /// Which call.
        call: &'static str,
        /// The place.
        path: PathBuf,
        /// Why.
        error: Errno,
    },
    /// It is not unmounted, and not what is found at its place.
    #[error("{}: what was mounted is not found there any more", path.display())]
    Elsewhere {
        /// The place.
        path: PathBuf,
    },
    /// A text that cannot be passed on.
    #[error("an option has a NUL")]
    Nul,
    /// A block device is mounted by root only.
    #[error("only root mounts a block device")]
    BlockDevice,
    /// There is no `fusermount3` that could be run.
    #[error("fusermount3, which mounts for users, cannot be run: {0}")]
    NoHelper(String),
    /// `fusermount3` refused.
    #[error("{0}")]
    Helper(String),
}

impl MountOptions {
    /// What the table of mounts shows as the source. The kernel takes no empty one.
    fn shown_source(&self) -> &OsStr {
        match (self.source.as_os_str(), self.subtype.as_str()) {
            (source, "") if source.is_empty() => OsStr::new("fuse"),
            (source, subtype) if source.is_empty() => OsStr::new(subtype),
            (source, _) => source,
        }
    }
}

impl MountError {
    /// Whether it is not found at its place: somebody took it out of the tree of names, or mounted
    /// something over it.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Elsewhere { .. })
    }

    /// Whether somebody still uses the filesystem.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::System { error, .. } => *error == Errno::BUSY,
            // The path stands before the reason.
            Self::Helper(message) => message.rsplit(": ").next().unwrap_or("").contains("busy"),
            _ => false,
        }
    }
}

/// A mounted filesystem that waits for its server. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    device: OwnedFd,
    by_helper: bool,
    /// Its number as a device, where that could be found.
    number: Option<DeviceNumber>,
}

/// Major and minor number.
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
            MountMethod::Auto => !rustix::process::geteuid().is_root(),
            MountMethod::Direct => false,
            MountMethod::Helper => true,
        };
        let mount = if by_helper { helper::mount } else { direct::mount };
        let device = mount(&point, options)?;
        let number = number_at(&point);
        Ok(Self { point, device, by_helper, number })
    }

    /// Where it is mounted: an absolute path.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Its number as a device, as stat(2) shows it of its inodes, where that could be found.
    pub fn number(&self) -> Option<u64> {
        self.number.map(|(major, minor)| rustix::fs::makedev(major, minor))
    }

    /// The descriptor of the device.
    pub(crate) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Whether it is still mounted, as far as the kernel's side of the device says.
    pub fn is_alive(&self) -> bool {
        is_connected(&self.device)
    }

    /// Whether it is what is found at its place.
    pub(crate) fn is_in_place(&self) -> bool {
        number_at(&self.point) == self.number
    }

    /// Unmounts if nobody uses it. What programs have written is given to the server before.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.end(UnmountFlags::empty())
    }

    /// Takes it out of the tree of names, whoever uses it.
    pub fn detach(&self) -> Result<(), MountError> {
        self.end(UnmountFlags::DETACH)
    }

    /// Takes it out of the tree of names; where root does it, whatever is asked for now fails.
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

/// Whether a descriptor of the device is that of a mount.
fn is_connected(device: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && !polled[0].revents().contains(PollFlags::ERR)
}

/// The number of what is mounted at a place, which is not asked for that: it may not answer yet.
fn number_at(point: &Path) -> Option<DeviceNumber> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, point, flags, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.abort();
    }
}
