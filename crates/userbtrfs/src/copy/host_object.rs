//! The attributes of a file of the host, of a source or of a copy.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Mode, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

/// A file of the host.
#[derive(Clone, Copy)]
pub(super) enum HostObject<'a> {
    /// A file or directory that is open.
    Open(BorrowedFd<'a>),
    /// A link or a special file, which may not be opened: its directory and its name there.
    Named(BorrowedFd<'a>, &'a CStr),
}

impl HostObject<'_> {
    /// Lists the names of the extended attributes, each ended by NUL.
    pub(super) fn list_xattrs(self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, buffer),
            Self::Named(dir, name) => rustix::fs::llistxattr(path_of(dir, name), buffer),
        }
    }

    pub(super) fn xattr(self, name: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, buffer),
            Self::Named(dir, file) => rustix::fs::lgetxattr(path_of(dir, file), name, buffer),
        }
    }

    pub(super) fn set_owner(self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => {
                // Most new files have the right owner already, and a query is cheaper.
                let has = |is: u32, wanted: Option<u32>| wanted.is_none_or(|wanted| wanted == is);
                let found = rustix::fs::fstat(fd);
                if found.is_ok_and(|is| has(is.st_uid, uid) && has(is.st_gid, gid)) {
                    return Ok(());
                }
                // A call of libc, which fakeroot(1) replaces; that of rustix bypasses libc here.
                std::os::unix::fs::fchown(fd, uid, gid)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            Self::Named(dir, name) => {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(
                    dir,
                    name,
                    uid.map(Uid::from_raw),
                    gid.map(Gid::from_raw),
                    flags,
                )
            }
        }
    }

    pub(super) fn set_xattr(self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let flags = XattrFlags::empty();
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, &name, value, flags),
            Self::Named(dir, file) => {
                rustix::fs::lsetxattr(path_of(dir, file), &name, value, flags)
            }
        }
    }

    /// Removes an attribute. Few files have one, and a query is cheaper than a removal.
    pub(super) fn remove_xattr(self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => {
                rustix::fs::fgetxattr_query(fd, name)?;
                rustix::fs::fremovexattr(fd, name)
            }
            Self::Named(dir, file) => {
                let path = path_of(dir, file);
                rustix::fs::lgetxattr_query(&*path, name)?;
                rustix::fs::lremovexattr(&*path, name)
            }
        }
    }

    pub(super) fn set_mode(self, mode: u32) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => {
                let mode = nix::sys::stat::Mode::from_bits_truncate(mode);
                nix::sys::stat::fchmod(fd, mode)
                    .map_err(|error| Errno::from_io_error(&error.into()).unwrap_or(Errno::IO))
            }
            // A special file was just made here, so that no link is followed.
            Self::Named(dir, name) => {
                rustix::fs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())
            }
        }
    }

    pub(super) fn set_times(self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::futimens(fd, times),
            Self::Named(dir, name) => {
                rustix::fs::utimensat(dir, name, times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}

/// Returns a path for calls that do not take a directory and a name.
fn path_of(dir: BorrowedFd<'_>, name: &CStr) -> PathBuf {
    let is_current = dir.as_raw_fd() == CWD.as_raw_fd();
    let prefix = (!is_current).then(|| format!("/proc/self/fd/{}", dir.as_raw_fd()));
    PathBuf::from(prefix.unwrap_or_default()).join(OsStr::from_bytes(name.to_bytes()))
}
