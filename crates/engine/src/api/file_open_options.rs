//! The options for opening a file by its path, and the creation of files that are missing.

use super::path::LINKS_MAX;
use super::{File, Filesystem, ImagePath, Inode};
use crate::error::{Error, PathError, PathOperation, PathResult, Result};

/// The permissions of files that are created without a mode.
const FILE_MODE: u32 = 0o644;

/// The options for opening a regular file by its path, in the manner of `std::fs::OpenOptions`.
///
/// There is none for reading and writing: a file may be written if its filesystem is open for
/// writing. There is no position in a file: [`File::append`] appends.
#[derive(Clone, Debug)]
pub struct FileOpenOptions {
    create: bool,
    create_new: bool,
    truncate: bool,
    mode: u32,
}

impl Default for FileOpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl FileOpenOptions {
    /// Returns the defaults: the file must exist, and keeps its content.
    pub fn new() -> Self {
        Self { create: false, create_new: false, truncate: false, mode: FILE_MODE }
    }

    /// Sets whether a file that does not exist is created. If the path is that of a symbolic link
    /// whose target does not exist, the target is created, as by open(2).
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Sets whether the file must be created: [`Error::Exists`] if there is anything at the path,
    /// also a symbolic link, which is not followed. Then `create` and `truncate` have no effect.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Sets whether the content of a file that exists is removed.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Sets the permissions of a file that is created, 0644 by default. There is no umask.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Opens the file at a path; a symbolic link at its end is followed.
    pub fn open(&self, filesystem: &Filesystem, path: impl ImagePath) -> PathResult<File> {
        let path = path.path_bytes();
        self.open_at(filesystem, path).map_err(PathError::at(PathOperation::OpenFile, path))
    }

    fn open_at(&self, filesystem: &Filesystem, path: &[u8]) -> Result<File> {
        if self.create_new {
            let (dir, name) = filesystem.parent_of_file(path)?;
            return dir.create(&name, self.mode)?.open();
        }
        let inode = if self.create {
            filesystem.find_or_create(path, || Ok(self.mode))?
        } else {
            filesystem.find(path)?
        };
        let file = inode.open()?;
        if self.truncate && !file.is_empty() {
            file.set_len(0)?;
        }
        Ok(file)
    }
}

impl Filesystem {
    /// Replaces the content of the file at a path; creates the file if it does not exist, with the
    /// permissions 0644.
    pub fn write(&self, path: impl ImagePath, content: impl AsRef<[u8]>) -> PathResult<()> {
        let path = path.path_bytes();
        let inode = self.find_or_create(path, || Ok(FILE_MODE));
        let written = inode.and_then(|inode| inode.write_content(content.as_ref()));
        written.map_err(PathError::at(PathOperation::Write, path))
    }

    /// Looks up a path; creates a file with the permissions of `mode` if nothing is there, also at
    /// the end of symbolic links.
    pub(super) fn find_or_create(
        &self,
        path: &[u8],
        mode: impl Fn() -> Result<u32>,
    ) -> Result<Inode> {
        let mut path = path.to_vec();
        let mut failure = Error::NotFound;
        for _ in 0..=LINKS_MAX {
            match self.find(&path) {
                Err(Error::NotFound) => {}
                found => return found,
            }
            let (dir, name) = self.parent_of_file(&path)?;
            match dir.create(&name, mode()?) {
                Err(Error::Exists) => {}
                made => return made,
            }
            match dir.lookup(&name).and_then(|found| found.read_link()) {
                Ok(target) => {
                    path = target_of(&path, &target);
                    failure = Error::SymlinkLoop;
                }
                // Another thread has created the file, and may have removed it since.
                Err(Error::NotASymlink | Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }
}

/// Returns the path that a symbolic link at `path` leads to.
fn target_of(path: &[u8], target: &[u8]) -> Vec<u8> {
    if target.starts_with(b"/") {
        return target.to_vec();
    }
    let dir = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    [&path[..dir], target].concat()
}
