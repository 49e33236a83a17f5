//! Calls by path, under the names that `std::fs` has for them.
//!
//! 1. A path that ends with a slash names a directory, as in POSIX: [`Error::NotADirectory`] if
//!    something else exists there, or would be created.
//! 2. An empty path leads to nothing, as in POSIX: [`Error::NotFound`]. Only
//!    [`Filesystem::create_dir_all`] accepts it, as in `std::fs`: no directory is missing.
//! 3. Errors have the path and the operation of the call that was made: calls by path that are made
//!    of others use the functions without these, which are private.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::path::{self, FinalSymlink};
use super::{
    Attributes, Dir, File, Filesystem, ImagePath, Inode, Metadata, RenameMode, Walk, join_path,
};
use crate::error::{Error, PathError, PathOperation, PathResult, Result};

impl Filesystem {
    /// Looks up a path; a symbolic link at its end is followed.
    pub fn lookup(&self, path: impl ImagePath) -> PathResult<Inode> {
        let path = path.path_bytes();
        self.find(path).map_err(PathError::at(PathOperation::Lookup, path))
    }

    /// Looks up a path; a symbolic link at its end is not followed.
    pub fn lookup_no_follow(&self, path: impl ImagePath) -> PathResult<Inode> {
        let path = path.path_bytes();
        self.find_no_follow(path).map_err(PathError::at(PathOperation::Lookup, path))
    }

    /// Opens the regular file at a path; [`super::FileOpenOptions`] also create and truncate it.
    pub fn open_file(&self, path: impl ImagePath) -> PathResult<File> {
        let path = path.path_bytes();
        let opened = self.find(path).and_then(|inode| inode.open());
        opened.map_err(PathError::at(PathOperation::OpenFile, path))
    }

    /// Opens the directory at a path.
    pub fn open_dir(&self, path: impl ImagePath) -> PathResult<Dir> {
        let path = path.path_bytes();
        self.dir_at(path).map_err(PathError::at(PathOperation::OpenDir, path))
    }

    /// Returns the attributes of the inode at a path; a symbolic link at its end is followed.
    pub fn metadata(&self, path: impl ImagePath) -> PathResult<Metadata> {
        let path = path.path_bytes();
        let found = self.find(path).and_then(|inode| inode.metadata());
        found.map_err(PathError::at(PathOperation::Metadata, path))
    }

    /// Returns the attributes of the inode at a path; a symbolic link at its end is not followed.
    pub fn symlink_metadata(&self, path: impl ImagePath) -> PathResult<Metadata> {
        let path = path.path_bytes();
        let found = self.find_no_follow(path).and_then(|inode| inode.metadata());
        found.map_err(PathError::at(PathOperation::Metadata, path))
    }

    /// Returns the target of the symbolic link at a path.
    pub fn read_link(&self, path: impl ImagePath) -> PathResult<Vec<u8>> {
        let path = path.path_bytes();
        let target = self.find_no_follow(path).and_then(|link| link.read_link());
        target.map_err(PathError::at(PathOperation::ReadLink, path))
    }

    /// Reads the whole content of the regular file at a path.
    pub fn read(&self, path: impl ImagePath) -> PathResult<Vec<u8>> {
        let path = path.path_bytes();
        let content = self.find(path).and_then(|inode| inode.open()?.read_all());
        content.map_err(PathError::at(PathOperation::Read, path))
    }

    /// Walks the tree at a path, parents before children. Symbolic links are not followed.
    pub fn walk(&self, path: impl ImagePath) -> PathResult<Walk> {
        let path = path.path_bytes();
        let top = self.find_no_follow(path).map_err(PathError::at(PathOperation::Walk, path))?;
        Ok(Walk::new(top, path))
    }

    /// Opens the directory that contains the last component of a path, and returns that component,
    /// too. The path may end with slashes. Fails with [`Error::BadName`] if the last component is
    /// `.` or `..`, with [`Error::Exists`] if the path is that of the root, and with
    /// [`Error::NotFound`] if it is empty.
    pub fn open_parent(&self, path: impl ImagePath) -> PathResult<(Dir, Vec<u8>)> {
        let path = path.path_bytes();
        self.parent(path).map_err(PathError::at(PathOperation::OpenParent, path))
    }

    /// Like [`Self::open_parent`], to create anything but a directory: fails with
    /// [`Error::NotADirectory`] if the path ends with a slash.
    pub fn open_parent_of_file(&self, path: impl ImagePath) -> PathResult<(Dir, Vec<u8>)> {
        let path = path.path_bytes();
        self.parent_of_file(path).map_err(PathError::at(PathOperation::OpenParent, path))
    }

    /// Like [`Self::open_parent`], to remove or rename the name. Fails with [`Error::IsRoot`] if
    /// the path is that of the root, and with [`Error::NotADirectory`] if it ends with a slash and
    /// does not lead to a directory.
    pub fn open_parent_to_remove(&self, path: impl ImagePath) -> PathResult<(Dir, Vec<u8>)> {
        let path = path.path_bytes();
        self.parent_to_remove(path).map_err(PathError::at(PathOperation::OpenParent, path))
    }

    /// Creates an empty directory with these permissions.
    pub fn create_dir(&self, path: impl ImagePath, mode: u32) -> PathResult<Dir> {
        let path = path.path_bytes();
        let created = self.parent(path).and_then(|(dir, name)| dir.create_dir(&name, mode));
        created.map_err(PathError::at(PathOperation::CreateDir, path))
    }

    /// Creates a directory with these permissions, and those of its ancestors that are missing.
    /// Existing directories stay as they are.
    pub fn create_dir_all(&self, path: impl ImagePath, mode: u32) -> PathResult<()> {
        let path = self.absolute(path.path_bytes());
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let mut way = b"/".to_vec();
        for part in parts {
            way = join_path(&way, part);
            match self.dir_at(&way) {
                Err(Error::NotFound) => drop(self.create_dir(&way, mode)?),
                found => drop(found.map_err(PathError::at(PathOperation::CreateDir, &way))?),
            }
        }
        Ok(())
    }

    /// Removes a name of an inode other than a directory. A symbolic link is not followed.
    pub fn remove_file(&self, path: impl ImagePath) -> PathResult<()> {
        let path = path.path_bytes();
        let removed = self.parent_to_remove(path).and_then(|(dir, name)| dir.remove_file(&name));
        removed.map_err(PathError::at(PathOperation::RemoveFile, path))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl ImagePath) -> PathResult<()> {
        let path = path.path_bytes();
        let removed = self.parent_to_remove(path).and_then(|(dir, name)| dir.remove_dir(&name));
        removed.map_err(PathError::at(PathOperation::RemoveDir, path))
    }

    /// Removes a directory with all of its content. A symbolic link is not followed. The first
    /// failure ends it; its path is that of the inode that cannot be removed.
    pub fn remove_dir_all(&self, path: impl ImagePath) -> PathResult<()> {
        let path = path.path_bytes();
        let mut failed_at = None;
        let removed = self.remove_dir_all_with(path, |below, error| {
            failed_at = Some(join_path(path, below));
            Err(error)
        });
        removed.map_err(|mut failed| {
            failed.call.path = failed_at.unwrap_or(failed.call.path);
            failed
        })
    }

    /// Like [`Self::remove_dir_all`], but passes each failure below the directory to `failed`, with
    /// the path from there, and continues, like [`Dir::remove_content_with`].
    pub fn remove_dir_all_with(
        &self,
        path: impl ImagePath,
        failed: impl FnMut(&[u8], Error) -> Result<()>,
    ) -> PathResult<()> {
        self.remove_dir_all_counted(path, &AtomicU64::new(0), failed)
    }

    /// Like [`Self::remove_dir_all_with`], and counts the removed names in `removed`.
    pub fn remove_dir_all_counted(
        &self,
        path: impl ImagePath,
        removed: &AtomicU64,
        failed: impl FnMut(&[u8], Error) -> Result<()>,
    ) -> PathResult<()> {
        let path = path.path_bytes();
        let remove = || {
            let (dir, name) = self.parent_to_remove(path)?;
            if dir.lookup(&name)?.open_dir()?.remove_content_counted(removed, failed)? {
                dir.remove_dir(&name)?;
                removed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        remove().map_err(PathError::at(PathOperation::RemoveDirAll, path))
    }

    /// Moves an inode from one path to another, and replaces what is there, as
    /// [`RenameMode::Replace`] describes.
    pub fn rename(&self, from: impl ImagePath, to: impl ImagePath) -> PathResult<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Like [`Self::rename`], in another mode.
    pub fn rename_with(
        &self,
        from: impl ImagePath,
        to: impl ImagePath,
        mode: RenameMode,
    ) -> PathResult<()> {
        let from = from.path_bytes();
        let to = to.path_bytes();
        let rename = || {
            let (dir, name) = self.parent_to_remove(from)?;
            let is_dir = || Ok::<_, Error>(dir.lookup(&name)?.metadata()?.is_dir());
            let (to, new_name) = if to.ends_with(b"/") && !is_dir()? {
                self.parent_of_file(to)?
            } else {
                self.parent(to)?
            };
            dir.rename(&name, &to, &new_name, mode)
        };
        rename().map_err(PathError::between(PathOperation::Rename, from, to))
    }

    /// Adds the name `link` to the inode at the path `original`, which is no directory. A symbolic
    /// link at the end of `original` is not followed.
    pub fn hard_link(&self, original: impl ImagePath, link: impl ImagePath) -> PathResult<()> {
        let original = original.path_bytes();
        let link = link.path_bytes();
        let add = || {
            let inode = self.find_no_follow(original)?;
            let (dir, name) = self.parent_of_file(link)?;
            dir.link(&name, &inode)
        };
        add().map_err(PathError::between(PathOperation::HardLink, original, link))
    }

    /// Creates a symbolic link to `original` at `link`.
    pub fn symlink(&self, original: impl ImagePath, link: impl ImagePath) -> PathResult<()> {
        let original = original.path_bytes();
        let link = link.path_bytes();
        let created =
            self.parent_of_file(link).and_then(|(dir, name)| dir.symlink(&name, original));
        created.map(drop).map_err(PathError::at(PathOperation::Symlink, link))
    }

    /// Sets the permissions of the inode at a path; a symbolic link at its end is followed.
    pub fn set_permissions(&self, path: impl ImagePath, mode: u32) -> PathResult<()> {
        let path = path.path_bytes();
        let attributes = Attributes { mode: Some(mode), ..Attributes::default() };
        let set = self.find(path).and_then(|inode| inode.set_attributes(&attributes));
        set.map_err(PathError::at(PathOperation::SetPermissions, path))
    }

    /// [`Self::lookup`], without the path in an error.
    pub(super) fn find(&self, path: &[u8]) -> Result<Inode> {
        self.resolve(path, FinalSymlink::Follow)
    }

    /// [`Self::lookup_no_follow`], without the path in an error.
    fn find_no_follow(&self, path: &[u8]) -> Result<Inode> {
        self.resolve(path, FinalSymlink::Keep)
    }

    fn resolve(&self, path: &[u8], last: FinalSymlink) -> Result<Inode> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        let path = self.absolute(path);
        Inode::found(self, || path::resolve(&self.inner.nodes, self.root, &path, last))
    }

    /// [`Self::open_dir`], without the path in an error.
    fn dir_at(&self, path: &[u8]) -> Result<Dir> {
        self.find(path)?.open_dir()
    }

    /// [`Self::open_parent`], without the path in an error.
    fn parent(&self, path: &[u8]) -> Result<(Dir, Vec<u8>)> {
        let is_empty = path.is_empty();
        let path = &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1)];
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        match &path[start..] {
            [] if is_empty => Err(Error::NotFound),
            [] => Err(Error::Exists),
            name @ (b"." | b"..") => Err(Error::BadName(name.to_vec())),
            name if start == 0 => Ok((self.dir_at(b".")?, name.to_vec())),
            name => Ok((self.dir_at(&path[..start])?, name.to_vec())),
        }
    }

    /// [`Self::open_parent_of_file`], without the path in an error.
    pub(super) fn parent_of_file(&self, path: &[u8]) -> Result<(Dir, Vec<u8>)> {
        let found = self.parent(path)?;
        if path.ends_with(b"/") { Err(Error::NotADirectory) } else { Ok(found) }
    }

    /// [`Self::open_parent_to_remove`], without the path in an error.
    fn parent_to_remove(&self, path: &[u8]) -> Result<(Dir, Vec<u8>)> {
        let (dir, name) = match self.parent(path) {
            Err(Error::Exists) => return Err(Error::IsRoot),
            found => found?,
        };
        if path.ends_with(b"/") && !dir.lookup(&name)?.metadata()?.is_dir() {
            return Err(Error::NotADirectory);
        }
        Ok((dir, name))
    }

    /// Returns a path that does not depend on the working directory.
    pub(super) fn absolute<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.working_dir {
            Some(dir) if !path.starts_with(b"/") => Cow::Owned(join_path(dir, path)),
            _ => Cow::Borrowed(path),
        }
    }
}
