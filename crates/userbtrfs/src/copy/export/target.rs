//! Creates files in the destination, each relative to its opened directory.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, linkat, lstat, statat};
use rustix::io::Errno;
use userbtrfs_engine::api::{FileKind, Metadata};

use super::ExportError;

/// A directory of the destination, open.
pub(super) struct TargetDir {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
}

/// Permissions of incomplete files and directories: access for their owner only.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
const PRIVATE_DIR: Mode = Mode::RWXU;

impl TargetDir {
    /// Opens an existing directory; symbolic links in the caller's path are followed.
    pub(super) fn open(path: &Path) -> Result<Self, ExportError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| failed(path, "open", error))?;
        Ok(Self { fd, path: path.to_path_buf() })
    }

    /// Returns the path of a name in it, for messages and hard links.
    pub(super) fn join(&self, name: &CString) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.as_bytes()))
    }

    /// Makes a directory, or opens an existing one.
    pub(super) fn make_dir(&self, name: &CString) -> Result<Self, ExportError> {
        let path = self.join(name);
        match rustix::fs::mkdirat(&self.fd, name, PRIVATE_DIR) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(&path, "make directory", error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(|error| failed(&path, "open directory", error))?;
        Ok(Self { fd, path })
    }

    /// Makes an empty file.
    pub(super) fn make_file(&self, name: &CString) -> Result<OwnedFd, ExportError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        self.replacing(name, "make file", || rustix::fs::openat(&self.fd, name, flags, PRIVATE))
    }

    /// Makes a symbolic link.
    pub(super) fn make_symlink(&self, name: &CString, to: &[u8]) -> Result<(), ExportError> {
        self.replacing(name, "make link", || rustix::fs::symlinkat(to, &self.fd, name))
    }

    /// Makes a device, fifo or socket.
    pub(super) fn make_special(&self, name: &CString, of: &Metadata) -> Result<(), ExportError> {
        let kind = match of.kind {
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::Fifo => FileType::Fifo,
            _ => FileType::Socket,
        };
        let (major, minor) = of.device;
        let device = rustix::fs::makedev(major, minor);
        self.replacing(name, "make special file", || {
            rustix::fs::mknodat(&self.fd, name, kind, PRIVATE, device)
        })
    }

    /// Makes a hard link to the file at `first`.
    pub(super) fn make_hard_link(&self, name: &CString, first: &Path) -> Result<(), ExportError> {
        let link = || match linkat(CWD, first, &self.fd, name, AtFlags::empty()) {
            Err(Errno::EXIST) if self.leads_to(name, first)? => Ok(()),
            linked => linked,
        };
        self.replacing(name, "link", link)
    }

    /// Returns true if a name in it and a path lead to the same inode.
    fn leads_to(&self, name: &CString, path: &Path) -> Result<bool, Errno> {
        let there = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let wanted = lstat(path)?;
        Ok((there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino))
    }

    /// Calls `make`; if a non-directory exists at `name`, removes it and calls `make` again.
    fn replacing<T>(
        &self,
        name: &CString,
        doing: &'static str,
        make: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, ExportError> {
        let made = make().or_else(|error| match error {
            Errno::EXIST => {
                rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?;
                make()
            }
            other => Err(other),
        });
        made.map_err(|error| failed(&self.join(name), doing, error))
    }

    /// Removes a file that is not complete.
    pub(super) fn remove(&self, name: &CString) {
        // Best effort: it may be gone already.
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
    }
}

impl AsFd for TargetDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(super) fn failed(path: &Path, doing: &'static str, error: Errno) -> ExportError {
    ExportError::Target { path: path.to_path_buf(), doing, error: io::Error::from(error) }
}
