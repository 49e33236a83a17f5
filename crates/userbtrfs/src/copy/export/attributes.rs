//! Owners, extended attributes, modes and times.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use userbtrfs_engine::api::{Inode, Metadata, Timestamp};
use userbtrfs_format::Quoted;

use super::target::{TargetDir, failed};
use super::{ExportError, Report};

/// The set-user-ID and set-group-ID bits of a mode.
const SET_ID: u32 = 0o6000;

/// The attributes that hold the access and the default POSIX ACL.
const LISTS: [&CStr; 2] = [c"system.posix_acl_access", c"system.posix_acl_default"];

/// The file that gets the attributes.
pub(super) enum Place<'a> {
    /// A file or directory that is open.
    Open(&'a dyn AsFdObject),
    /// A name that may not be opened: a link or a special file.
    Named(&'a TargetDir, &'a CString),
}

/// `AsFd` as a trait object.
pub(super) trait AsFdObject {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_>;
}

impl<T: AsFd> AsFdObject for T {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.as_fd()
    }
}

/// Sets the attributes of a copy to those of its source. Failures, and attributes that cannot be
/// kept, are passed to `report`, and the rest is still set; but the mode is not set if an ACL
/// cannot be removed.
pub(super) fn apply(
    report: &Report<'_>,
    source: &Inode,
    metadata: &Metadata,
    place: &Place<'_>,
    path: &Path,
) {
    let or_report = |doing, done: Result<(), Errno>| match done {
        Ok(()) => true,
        Err(error) => {
            report(failed(path, doing, error));
            false
        }
    };
    let owned = match place.set_owner(metadata) {
        // EINVAL: the owner is not mapped in this user namespace.
        Err(error @ (Errno::PERM | Errno::INVAL)) => {
            report(not_kept(path, "owner".to_owned(), error));
            false
        }
        done => or_report("set owner", done),
    };
    let given = give_xattrs(report, source, place, path);
    if !metadata.is_symlink() {
        // The set-id bits must not be set on a file with another owner.
        let mode = metadata.mode & if owned { 0o7777 } else { 0o7777 & !SET_ID };
        // With an ACL that is not the source's, the mode would grant rights to users named there.
        let _ = or_report("remove access list", place.remove_lists(&given))
            && or_report("set mode", place.set_mode(mode));
    }
    or_report("set times", place.set_times(metadata));
}

/// Sets the extended attributes of the source, and returns the names of those that were set.
fn give_xattrs(
    report: &Report<'_>,
    source: &Inode,
    place: &Place<'_>,
    path: &Path,
) -> Vec<Vec<u8>> {
    let xattrs = source.xattrs().unwrap_or_else(|error| {
        let path = path.display().to_string();
        report(ExportError::Source { path, error: Box::new(error) });
        Vec::new()
    });
    let mut given = Vec::new();
    for (name, value) in xattrs {
        match place.set_xattr(&name, &value) {
            Ok(()) => given.push(name),
            Err(error) => report(not_kept(path, Quoted(&name).to_string(), error)),
        }
    }
    given
}

fn not_kept(path: &Path, what: String, error: Errno) -> ExportError {
    ExportError::NotKept { path: path.to_path_buf(), what, error: error.into() }
}

impl Place<'_> {
    fn set_owner(&self, metadata: &Metadata) -> Result<(), Errno> {
        let (uid, gid) = (Uid::from_raw(metadata.uid), Gid::from_raw(metadata.gid));
        match self {
            Self::Open(file) => {
                if owner_is(file.fd(), metadata) {
                    return Ok(());
                }
                // By the call of libc, which rustix goes past here.
                let owner = (Some(metadata.uid), Some(metadata.gid));
                std::os::unix::fs::fchown(file.fd(), owner.0, owner.1)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            Self::Named(dir, name) => {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(&dir.fd, *name, Some(uid), Some(gid), flags)
            }
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file.fd(), &name, value, XattrFlags::empty()),
            Self::Named(dir, file) => {
                let path = path_of(dir, file);
                rustix::fs::lsetxattr(path, &name, value, XattrFlags::empty())
            }
        }
    }

    /// Removes the ACLs that are not in `given`: they were inherited from the parent directory, or
    /// were there before.
    fn remove_lists(&self, given: &[Vec<u8>]) -> Result<(), Errno> {
        let others =
            LISTS.into_iter().filter(|list| !given.iter().any(|name| name == list.to_bytes()));
        for list in others {
            match self.remove_xattr(list) {
                Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
                // The file was just made, so it is `/proc` that is missing.
                Err(Errno::NOENT) if matches!(self, Self::Named(..)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes an attribute. Few files have one, and a query is cheaper than a removal.
    fn remove_xattr(&self, name: &CStr) -> Result<(), Errno> {
        match self {
            Self::Open(file) => {
                rustix::fs::fgetxattr_query(file.fd(), name)?;
                rustix::fs::fremovexattr(file.fd(), name)
            }
            Self::Named(dir, file) => {
                let path = path_of(dir, file);
                rustix::fs::lgetxattr_query(&*path, name)?;
                rustix::fs::lremovexattr(&*path, name)
            }
        }
    }

    fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::Open(file) => {
                let mode = nix::sys::stat::Mode::from_bits_truncate(mode.bits());
                nix::sys::stat::fchmod(file.fd(), mode)
                    .map_err(|error| Errno::from_io_error(&error.into()).unwrap_or(Errno::IO))
            }
            // A special file was just made here, so that no link is followed.
            Self::Named(dir, name) => rustix::fs::chmodat(&dir.fd, *name, mode, AtFlags::empty()),
        }
    }

    fn set_times(&self, metadata: &Metadata) -> Result<(), Errno> {
        let times = Timestamps {
            last_access: timespec(metadata.accessed),
            last_modification: timespec(metadata.modified),
        };
        match self {
            Self::Open(file) => rustix::fs::futimens(file.fd(), &times),
            Self::Named(dir, name) => {
                rustix::fs::utimensat(&dir.fd, *name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}

/// Returns a path for calls that do not take a directory and a name.
fn path_of(dir: &TargetDir, name: &CStr) -> Vec<u8> {
    let dir = format!("/proc/self/fd/{}/", dir.fd.as_raw_fd());
    [dir.as_bytes(), name.to_bytes()].concat()
}

/// Returns true if a file already has the wanted owner, as most new files do: a query is cheaper
/// than a change.
fn owner_is(fd: std::os::fd::BorrowedFd<'_>, wanted: &Metadata) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|is| is.st_uid == wanted.uid && is.st_gid == wanted.gid)
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.sec, tv_nsec: i64::from(time.nsec) }
}
