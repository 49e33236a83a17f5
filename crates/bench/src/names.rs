//! Directories for metadata benchmarks: in the library, or on the kernel's mount.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, mkdirat, openat, renameat, syncfs, unlinkat};
use userbtrfs::{Dir, Filesystem, OpenOptions, RenameMode};
use userbtrfs_testkit::linux::Mount;

use crate::bench::Bench;
use crate::fresh::Fresh;

/// Directories, and the operations on names of files in them. A directory is given by its number.
pub(crate) trait Names: Sync {
    /// Makes an empty file.
    fn create(&self, dir: usize, name: &[u8]) -> Result<()>;

    /// Renames a file within a directory.
    fn rename(&self, dir: usize, from: &[u8], to: &[u8]) -> Result<()>;

    /// Removes a file.
    fn remove(&self, dir: usize, name: &[u8]) -> Result<()>;

    /// Makes all changes durable.
    fn commit(&self) -> Result<()>;

    /// Returns the size of a directory: twice the total length of all names in it.
    fn size(&self, dir: usize) -> Result<u64>;
}

/// The permissions of new files and directories.
const FILE_MODE: u16 = 0o644;
const DIR_MODE: u16 = 0o755;

fn dir_name(number: usize) -> String {
    format!("dir-{number}")
}

/// Directories in the library.
pub(crate) struct Library {
    filesystem: Filesystem,
    dirs: Vec<Dir>,
}

impl Library {
    /// Makes directories in a new filesystem that is opened with a memory limit, in bytes.
    pub(crate) fn new(image: &Fresh, dirs: usize, memory: u64) -> Result<Self> {
        image.format()?;
        let filesystem = OpenOptions::new().write(true).memory(memory).open(image.path())?;
        let root = filesystem.root();
        let make = |number| root.create_dir(dir_name(number).as_bytes(), DIR_MODE.into());
        let dirs = (0..dirs).map(make).collect::<Result<_, _>>()?;
        filesystem.commit()?;
        Ok(Self { filesystem, dirs })
    }

    /// Closes the filesystem.
    pub(crate) fn close(self) -> Result<()> {
        drop(self.dirs);
        Ok(self.filesystem.close()?)
    }
}

impl Names for Library {
    fn create(&self, dir: usize, name: &[u8]) -> Result<()> {
        self.dirs[dir].create(name, FILE_MODE.into())?;
        Ok(())
    }

    fn rename(&self, dir: usize, from: &[u8], to: &[u8]) -> Result<()> {
        let dir = &self.dirs[dir];
        Ok(dir.rename(from, dir, to, RenameMode::Replace)?)
    }

    fn remove(&self, dir: usize, name: &[u8]) -> Result<()> {
        Ok(self.dirs[dir].remove_file(name)?)
    }

    fn commit(&self) -> Result<()> {
        Ok(self.filesystem.commit()?)
    }

    fn size(&self, dir: usize) -> Result<u64> {
        Ok(self.dirs[dir].inode().metadata()?.size)
    }
}

/// Directories on the kernel's mount. Calls are relative to the open directory, so that no path is
/// resolved.
pub(crate) struct Mounted {
    dirs: Vec<OwnedFd>,
    /// Dropped last: unmounts after the directories are closed.
    mount: Mount,
}

impl Mounted {
    /// Makes directories in a new filesystem.
    pub(crate) fn new(bench: &Bench, image: &Fresh, dirs: usize) -> Result<Self> {
        image.format_by_progs(&[])?;
        let mount = bench.mount_with(image.path(), "noatime")?;
        let root = open_dir(mount.path())?;
        let make = |number| -> Result<OwnedFd> {
            let name = dir_name(number);
            mkdirat(&root, name.as_str(), Mode::from_raw_mode(DIR_MODE.into()))?;
            open_dir(&mount.path().join(name))
        };
        let dirs = (0..dirs).map(make).collect::<Result<_>>()?;
        syncfs(&root)?;
        Ok(Self { dirs, mount })
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).with_context(|| path.display().to_string())
}

impl Names for Mounted {
    fn create(&self, dir: usize, name: &[u8]) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&self.dirs[dir], name, flags, Mode::from_raw_mode(FILE_MODE.into()))?;
        Ok(())
    }

    fn rename(&self, dir: usize, from: &[u8], to: &[u8]) -> Result<()> {
        let dir = &self.dirs[dir];
        Ok(renameat(dir, from, dir, to)?)
    }

    fn remove(&self, dir: usize, name: &[u8]) -> Result<()> {
        Ok(unlinkat(&self.dirs[dir], name, AtFlags::empty())?)
    }

    fn commit(&self) -> Result<()> {
        let root = open_dir(self.mount.path())?;
        Ok(syncfs(root)?)
    }

    fn size(&self, dir: usize) -> Result<u64> {
        Ok(u64::try_from(fstat(&self.dirs[dir])?.st_size)?)
    }
}
