//! The resolution of paths, and changes by path, under the names that `std::fs` has for them.
//!
//! 1. A path that ends with a slash names a directory, as in POSIX: [`Error::NotADirectory`] if
//!    something else exists there, or would be created.
//! 2. An empty path leads to nothing, as in POSIX: [`Error::NotFound`]. Only
//!    [`Filesystem::create_dir_all`] accepts it, as in `std::fs`: no directory is missing.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::path::{self, FinalSymlink};
use super::{Attributes, Dir, Filesystem, ImagePath, Inode, RenameMode, join_path};
use crate::error::{Error, Result};

impl Filesystem {
    /// Opens the directory that contains the last component of a path, and returns that component,
    /// too. The path may end with slashes. Returns [`Error::BadName`] if the last component is `.`
    /// or `..`, [`Error::Exists`] if the path is that of the root, and [`Error::NotFound`] if it is
    /// empty.
    pub fn open_parent(&self, path: impl ImagePath) -> Result<(Dir, Vec<u8>)> {
        let path = path.path_bytes();
        let is_empty = path.is_empty();
        let path = &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1)];
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        match &path[start..] {
            [] if is_empty => Err(Error::NotFound),
            [] => Err(Error::Exists),
            name @ (b"." | b"..") => Err(Error::BadName(name.to_vec())),
            name if start == 0 => Ok((self.open_dir(b".")?, name.to_vec())),
            name => Ok((self.open_dir(&path[..start])?, name.to_vec())),
        }
    }

    /// Like [`Self::open_parent`], to create anything but a directory: returns
    /// [`Error::NotADirectory`] if the path ends with a slash.
    pub fn open_parent_of_file(&self, path: impl ImagePath) -> Result<(Dir, Vec<u8>)> {
        let found = self.open_parent(path.path_bytes())?;
        if path.path_bytes().ends_with(b"/") { Err(Error::NotADirectory) } else { Ok(found) }
    }

    /// Like [`Self::open_parent`], to remove or rename the name. Returns [`Error::IsRoot`] if the
    /// path is that of the root, and [`Error::NotADirectory`] if it ends with a slash and does not
    /// lead to a directory.
    pub fn open_parent_to_remove(&self, path: impl ImagePath) -> Result<(Dir, Vec<u8>)> {
        let (dir, name) = match self.open_parent(path.path_bytes()) {
            Err(Error::Exists) => return Err(Error::IsRoot),
            found => found?,
        };
        if path.path_bytes().ends_with(b"/") && !dir.lookup(&name)?.metadata()?.is_dir() {
            return Err(Error::NotADirectory);
        }
        Ok((dir, name))
    }

    /// Looks up a path.
    pub(super) fn resolve(&self, path: &[u8], last: FinalSymlink) -> Result<Inode> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        let path = self.absolute(path);
        Inode::found(self, || path::resolve(&self.inner.nodes, self.root, &path, last))
    }

    /// Returns a path that does not depend on the working directory.
    pub(super) fn absolute<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.working_dir {
            Some(dir) if !path.starts_with(b"/") => Cow::Owned(join_path(dir, path)),
            _ => Cow::Borrowed(path),
        }
    }

    /// Creates an empty directory with these permissions.
    pub fn create_dir(&self, path: impl ImagePath, mode: u32) -> Result<Dir> {
        let (dir, name) = self.open_parent(path)?;
        dir.create_dir(&name, mode)
    }

    /// Creates a directory with these permissions, and those of its ancestors that are missing.
    /// Existing directories stay as they are.
    pub fn create_dir_all(&self, path: impl ImagePath, mode: u32) -> Result<()> {
        let path = self.absolute(path.path_bytes());
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let mut way = b"/".to_vec();
        for part in parts {
            way = join_path(&way, part);
            match self.open_dir(&way) {
                Err(Error::NotFound) => drop(self.create_dir(&way, mode)?),
                found => drop(found?),
            }
        }
        Ok(())
    }

    /// Removes a name of an inode other than a directory. A symbolic link is not followed.
    pub fn remove_file(&self, path: impl ImagePath) -> Result<()> {
        let (dir, name) = self.open_parent_to_remove(path)?;
        dir.remove_file(&name)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl ImagePath) -> Result<()> {
        let (dir, name) = self.open_parent_to_remove(path)?;
        dir.remove_dir(&name)
    }

    /// Removes a directory with all of its content. A symbolic link is not followed. The first
    /// failure ends it.
    pub fn remove_dir_all(&self, path: impl ImagePath) -> Result<()> {
        self.remove_dir_all_with(path, |_, error| Err(error))
    }

    /// Like [`Self::remove_dir_all`], but passes each failure below the directory to `failed`, and
    /// continues, like [`Dir::remove_content_with`].
    pub fn remove_dir_all_with(
        &self,
        path: impl ImagePath,
        failed: impl FnMut(&[u8], Error) -> Result<()>,
    ) -> Result<()> {
        self.remove_dir_all_counted(path, &AtomicU64::new(0), failed)
    }

    /// Like [`Self::remove_dir_all_with`], and counts the removed names in `removed`.
    pub fn remove_dir_all_counted(
        &self,
        path: impl ImagePath,
        removed: &AtomicU64,
        failed: impl FnMut(&[u8], Error) -> Result<()>,
    ) -> Result<()> {
        let (dir, name) = self.open_parent_to_remove(path)?;
        if dir.lookup(&name)?.open_dir()?.remove_content_counted(removed, failed)? {
            dir.remove_dir(&name)?;
            removed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Moves an inode from one path to another, and replaces what is there, as
    /// [`RenameMode::Replace`] describes.
    pub fn rename(&self, from: impl ImagePath, to: impl ImagePath) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Like [`Self::rename`], in another mode.
    pub fn rename_with(
        &self,
        from: impl ImagePath,
        to: impl ImagePath,
        mode: RenameMode,
    ) -> Result<()> {
        let (dir, name) = self.open_parent_to_remove(from)?;
        let is_dir = || Ok::<_, Error>(dir.lookup(&name)?.metadata()?.is_dir());
        let (to, new_name) = if to.path_bytes().ends_with(b"/") && !is_dir()? {
            self.open_parent_of_file(to)?
        } else {
            self.open_parent(to)?
        };
        dir.rename(&name, &to, &new_name, mode)
    }

    /// Adds the name `link` to the inode at the path `original`, which is no directory. A symbolic
    /// link at the end of `original` is not followed.
    pub fn hard_link(&self, original: impl ImagePath, link: impl ImagePath) -> Result<()> {
        let inode = self.lookup_no_follow(original)?;
        let (dir, name) = self.open_parent_of_file(link)?;
        dir.link(&name, &inode)
    }

    /// Creates a symbolic link to `original` at `link`.
    pub fn symlink(&self, original: impl ImagePath, link: impl ImagePath) -> Result<()> {
        let (dir, name) = self.open_parent_of_file(link)?;
        dir.symlink(&name, original.path_bytes()).map(drop)
    }

    /// Sets the permissions of the inode at a path; a symbolic link at its end is followed.
    pub fn set_permissions(&self, path: impl ImagePath, mode: u32) -> Result<()> {
        let attributes = Attributes { mode: Some(mode), ..Attributes::default() };
        self.lookup(path)?.set_attributes(&attributes)
    }
}
