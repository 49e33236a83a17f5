//! Open filesystems, and calls by path.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pyo3::prelude::*;
use userbtrfs::{
    Attributes, Error, FileOpenOptions, Inode, OpenOptions, PathResult, Timestamp, XattrMode,
};

use crate::directory::Dir;
use crate::failure::{Handle, run, run_two};
use crate::file::File;
use crate::mount::Mount;
use crate::stat::{Stat, stat};

/// The flags of setxattr(2), as in the module `os`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// The id of a subvolume, its path from the top level, and whether it is read-only.
type Subvolume = (u64, Cow<'static, [u8]>, bool);

/// An open filesystem. Paths are absolute, in bytes.
#[pyclass(frozen, module = "userbtrfs._native")]
pub(crate) struct Filesystem {
    handle: Handle<userbtrfs::Filesystem>,
    image: PathBuf,
}

impl Filesystem {
    /// Runs a call about the whole filesystem.
    fn run<T: Send, E: Into<Error> + Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(userbtrfs::Filesystem) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        let fs = self.handle.get()?;
        run(py, self.image.as_os_str().as_bytes(), || call(fs))
    }

    /// Runs a call about a path.
    fn at<T: Send, E: Into<Error> + Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        call: impl FnOnce(userbtrfs::Filesystem) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        let fs = self.handle.get()?;
        run(py, path, || call(fs))
    }
}

#[pymethods]
impl Filesystem {
    /// Opens an image file or a block device.
    #[new]
    fn new(py: Python<'_>, image: PathBuf, writable: bool) -> PyResult<Self> {
        let open = || OpenOptions::new().write(writable).open(&image);
        let fs = run(py, image.as_os_str().as_bytes(), open)?;
        Ok(Self { handle: Handle::new(fs), image })
    }

    /// Returns whether it was opened for writing.
    fn is_writable(&self) -> PyResult<bool> {
        Ok(self.handle.get()?.is_writable())
    }

    /// Makes all changes durable, atomically.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |fs| fs.commit())
    }

    /// Makes all changes durable and closes; does nothing if it was closed before.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(fs) = self.handle.take() else { return Ok(()) };
        run(py, self.image.as_os_str().as_bytes(), || fs.close())
    }

    /// Opens a file; with `create` it is created if it is missing, and with `exclusive` it must be
    /// missing.
    #[pyo3(signature = (path, create, exclusive, truncate, mode))]
    fn open_file(
        &self,
        py: Python<'_>,
        path: &[u8],
        create: bool,
        exclusive: bool,
        truncate: bool,
        mode: u32,
    ) -> PyResult<File> {
        let mut options = FileOpenOptions::new();
        options.create(create).create_new(exclusive).truncate(truncate).mode(mode);
        let file = self.at(py, path, |fs| options.open(&fs, path))?;
        Ok(File::new(file, path.to_vec()))
    }

    /// Opens a directory for listings.
    fn open_dir(&self, py: Python<'_>, path: &[u8]) -> PyResult<Dir> {
        let dir = self.at(py, path, |fs| fs.open_dir(path))?;
        Ok(Dir::new(dir, path.to_vec()))
    }

    /// Returns the attributes at a path.
    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Stat> {
        self.at(py, path, |fs| lookup(&fs, path, follow)?.metadata().map(|found| stat(&found)))
    }

    /// Creates a directory.
    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.at(py, path, |fs| fs.create_dir(path, mode).map(drop))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.at(py, path, |fs| fs.remove_dir(path))
    }

    /// Removes a name of anything but a directory.
    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.at(py, path, |fs| fs.remove_file(path))
    }

    /// Renames, and replaces what is there as rename(2) does.
    fn rename(&self, py: Python<'_>, source: &[u8], path: &[u8]) -> PyResult<()> {
        let fs = self.handle.get()?;
        run_two(py, source, path, || fs.rename(source, path))
    }

    /// Adds the name `path` to the inode at `source`.
    fn link(&self, py: Python<'_>, source: &[u8], path: &[u8]) -> PyResult<()> {
        let fs = self.handle.get()?;
        run_two(py, source, path, || fs.hard_link(source, path))
    }

    /// Makes the file at `path` a clone of that at `source`.
    fn clone_file(&self, py: Python<'_>, source: &[u8], path: &[u8]) -> PyResult<()> {
        let fs = self.handle.get()?;
        run_two(py, source, path, || fs.clone_file(source, path))
    }

    /// Creates a symbolic link.
    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        let fs = self.handle.get()?;
        run_two(py, target, path, || fs.symlink(target, path))
    }

    /// Returns the target of a symbolic link.
    fn readlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<Cow<'static, [u8]>> {
        self.at(py, path, |fs| fs.read_link(path).map(Cow::Owned))
    }

    /// Sets the permissions.
    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.at(py, path, |fs| fs.set_permissions(path, mode))
    }

    /// Sets the owner, the group or both; None leaves one as it is.
    #[pyo3(signature = (path, uid, gid, follow))]
    fn chown(
        &self,
        py: Python<'_>,
        path: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        let attributes = Attributes { uid, gid, ..Attributes::default() };
        self.at(py, path, |fs| lookup(&fs, path, follow)?.set_attributes(&attributes))
    }

    /// Sets the times of access and modification.
    fn utime(
        &self,
        py: Python<'_>,
        path: &[u8],
        accessed: (i64, u32),
        modified: (i64, u32),
        follow: bool,
    ) -> PyResult<()> {
        let time = |(sec, nsec): (i64, u32)| Some(Timestamp { sec, nsec });
        let attributes = Attributes {
            accessed: time(accessed),
            modified: time(modified),
            ..Attributes::default()
        };
        self.at(py, path, |fs| lookup(&fs, path, follow)?.set_attributes(&attributes))
    }

    /// Returns the value of an extended attribute.
    fn getxattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        name: &[u8],
        follow: bool,
    ) -> PyResult<Cow<'static, [u8]>> {
        self.at(py, path, |fs| lookup(&fs, path, follow)?.xattr(name).map(Cow::Owned))
    }

    /// Sets an extended attribute; `flags` are those of setxattr(2).
    fn setxattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        flags: u32,
        follow: bool,
    ) -> PyResult<()> {
        self.at(py, path, |fs| {
            let mode = match flags {
                0 => XattrMode::Either,
                XATTR_CREATE => XattrMode::Create,
                XATTR_REPLACE => XattrMode::Replace,
                _ => return Err(Error::Invalid("flags of an extended attribute")),
            };
            lookup(&fs, path, follow)?.set_xattr(name, value, mode)
        })
    }

    /// Returns the names of all extended attributes.
    fn listxattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        follow: bool,
    ) -> PyResult<Vec<Cow<'static, [u8]>>> {
        let found = self.at(py, path, |fs| lookup(&fs, path, follow)?.xattrs())?;
        Ok(found.into_iter().map(|(name, _)| Cow::Owned(name)).collect())
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, path: &[u8], name: &[u8], follow: bool) -> PyResult<()> {
        self.at(py, path, |fs| lookup(&fs, path, follow)?.remove_xattr(name))
    }

    /// Makes a file or a directory durable, as fsync(2).
    fn fsync(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.at(py, path, |fs| fs.lookup(path)?.sync_all())
    }

    /// Mounts by FUSE at a directory of the host.
    fn mount(&self, py: Python<'_>, directory: PathBuf) -> PyResult<Mount> {
        Mount::start(py, self.handle.get()?, &self.image, directory)
    }

    /// Creates an empty subvolume.
    fn create_subvolume(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.at(py, path, |fs| {
            let (dir, name) = fs.open_parent(path)?;
            dir.create_subvolume(&name, mode).map(drop)
        })
    }

    /// Deletes a subvolume with its content.
    fn delete_subvolume(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.at(py, path, |fs| {
            let (dir, name) = fs.open_parent_to_remove(path)?;
            dir.delete_subvolume(&name).map(drop)
        })
    }

    /// Makes a snapshot of the subvolume at `source`.
    fn snapshot(
        &self,
        py: Python<'_>,
        source: &[u8],
        path: &[u8],
        read_only: bool,
    ) -> PyResult<()> {
        let fs = self.handle.get()?;
        run_two(py, source, path, || {
            let id = fs.subvolume_at(&fs.lookup(source)?)?.id;
            let (dir, name) = fs.open_parent(path)?;
            dir.snapshot(&name, id, read_only).map(drop)
        })
    }

    /// Returns all subvolumes but the top level.
    fn subvolumes(&self, py: Python<'_>) -> PyResult<Vec<Subvolume>> {
        let found = self.run(py, |fs| fs.subvolumes())?;
        Ok(found.into_iter().map(|s| (s.id.0, s.path.clone().into(), s.is_read_only())).collect())
    }
}

fn lookup(fs: &userbtrfs::Filesystem, path: &[u8], follow: bool) -> PathResult<Inode> {
    if follow { fs.lookup(path) } else { fs.lookup_no_follow(path) }
}
