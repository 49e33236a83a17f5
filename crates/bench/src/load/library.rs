//! The library under load.
//!
//! 1. Each call has a path from the root, as a system call has, and no handle of a directory is
//!    kept.
//! 2. The library has no file locks: below a mount they belong to the kernel. So a lock does
//!    nothing here.

use anyhow::{Result, bail, ensure};
use userbtrfs::{Attributes, Dir, Error, File, Filesystem, PathError, PathResult, now};

use super::files::Files;
use super::loadfile::How;

/// The permissions of new files and directories.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// An open filesystem.
pub(crate) struct Library(Filesystem);

/// An open file or directory.
pub(crate) enum Opened {
    File(File),
    Directory(Dir),
}

impl Library {
    /// Wraps an open filesystem.
    pub(crate) fn new(filesystem: Filesystem) -> Self {
        Self(filesystem)
    }

    /// Commits, and closes the filesystem.
    pub(crate) fn close(self) -> Result<()> {
        Ok(self.0.close()?)
    }

    fn create(&self, path: &[u8]) -> Result<File> {
        let (dir, name) = self.0.open_parent_of_file(path)?;
        Ok(dir.create(&name, FILE_MODE)?.open()?)
    }
}

impl Opened {
    fn file(&self) -> Result<&File> {
        match self {
            Self::File(file) => Ok(file),
            Self::Directory(_) => bail!("it is a directory"),
        }
    }
}

/// Returns `None` if there is no such path.
fn found<T>(result: PathResult<T>) -> Result<Option<T>> {
    match result {
        Err(PathError { error: Error::NotFound, .. }) => Ok(None),
        other => Ok(Some(other?)),
    }
}

impl Files for Library {
    type File = Opened;

    fn stat(&self, path: &[u8]) -> Result<Option<bool>> {
        Ok(found(self.0.metadata(path))?.map(|metadata| metadata.is_dir()))
    }

    fn list(&self, path: &[u8], see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let Some(dir) = found(self.0.open_dir(path))? else { return Ok(false) };
        for entry in dir.entries() {
            see(entry?.name())?;
        }
        Ok(true)
    }

    fn make_dir(&self, path: &[u8]) -> Result<()> {
        match self.0.create_dir(path, DIR_MODE) {
            Err(PathError { error: Error::Exists, .. }) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    fn open(&self, path: &[u8], how: How) -> Result<Option<Opened>> {
        if how == How::Directory {
            let Some(dir) = found(self.0.open_dir(path))? else { return Ok(None) };
            dir.inode().metadata()?;
            return Ok(Some(Opened::Directory(dir)));
        }
        let file = match found(self.0.open_file(path))? {
            Some(file) if how == How::Truncate => {
                file.set_len(0)?;
                file
            }
            Some(file) => file,
            None if how == How::Existing => return Ok(None),
            None => self.create(path)?,
        };
        file.inode().metadata()?;
        Ok(Some(Opened::File(file)))
    }

    fn remove(&self, path: &[u8]) -> Result<()> {
        Ok(self.0.remove_file(path)?)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        Ok(self.0.rename(from, to)?)
    }

    fn space(&self) -> Result<()> {
        Ok(self.0.space_left().map(drop)?)
    }

    fn attributes(&self, file: &Opened) -> Result<()> {
        let inode = match file {
            Opened::File(file) => file.inode(),
            Opened::Directory(dir) => dir.inode(),
        };
        Ok(inode.metadata().map(drop)?)
    }

    fn touch(&self, file: &Opened, path: &[u8]) -> Result<()> {
        let modified = Some(file.file()?.inode().metadata()?.modified);
        let times = Attributes { accessed: Some(now()), modified, ..Attributes::default() };
        Ok(self.0.lookup(path)?.set_attributes(&times)?)
    }

    fn read(&self, file: &Opened, target: &mut [u8], offset: u64) -> Result<usize> {
        Ok(file.file()?.read_at(target, offset)?)
    }

    fn write(&self, file: &Opened, bytes: &[u8], offset: u64) -> Result<()> {
        let written = file.file()?.write_at(bytes, offset)?;
        ensure!(written == bytes.len(), "no space");
        Ok(())
    }

    fn sync(&self, file: &Opened) -> Result<()> {
        Ok(file.file()?.sync_all()?)
    }

    fn lock(&self, _: &Opened, _: bool) -> Result<()> {
        Ok(())
    }
}
