//! A directory of a mounted filesystem under load, by system calls.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fcntl_lock, mkdir,
    statfs, utimensat,
};
use rustix::io::Errno;

use super::files::Files;
use super::loadfile::How;

/// The permissions of new files and directories.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// A directory, at which all paths begin.
pub(crate) struct Host(PathBuf);

impl Host {
    /// Wraps a directory.
    pub(crate) fn new(root: &Path) -> Self {
        Self(root.to_owned())
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        self.0.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
    }
}

/// Returns `None` if there is no such path.
fn found<T>(result: io::Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => Ok(Some(other?)),
    }
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn open_file(path: &Path, how: How) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(FILE_MODE);
    options.create(how != How::Existing).truncate(how == How::Truncate);
    options.open(path)
}

impl Files for Host {
    type File = File;

    fn stat(&self, path: &[u8]) -> Result<Option<bool>> {
        Ok(found(fs::metadata(self.path(path)))?.map(|metadata| metadata.is_dir()))
    }

    fn list(&self, path: &[u8], see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let Some(entries) = found(fs::read_dir(self.path(path)))? else { return Ok(false) };
        for entry in entries {
            see(entry?.file_name().as_bytes())?;
        }
        Ok(true)
    }

    fn make_dir(&self, path: &[u8]) -> Result<()> {
        match mkdir(self.path(path), Mode::from_raw_mode(DIR_MODE)) {
            Err(Errno::EXIST) => Ok(()),
            other => Ok(other?),
        }
    }

    fn open(&self, path: &[u8], how: How) -> Result<Option<File>> {
        let path = self.path(path);
        let file = match how {
            How::Directory => open_directory(&path),
            other => open_file(&path, other),
        };
        let Some(file) = found(file)? else { return Ok(None) };
        file.metadata()?;
        Ok(Some(file))
    }

    fn remove(&self, path: &[u8]) -> Result<()> {
        Ok(fs::remove_file(self.path(path))?)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        Ok(fs::rename(self.path(from), self.path(to))?)
    }

    fn space(&self) -> Result<()> {
        Ok(statfs(&self.0).map(drop)?)
    }

    fn attributes(&self, file: &File) -> Result<()> {
        Ok(file.metadata().map(drop)?)
    }

    fn touch(&self, file: &File, path: &[u8]) -> Result<()> {
        let modified = file.metadata()?.modified()?.duration_since(std::time::UNIX_EPOCH)?;
        let last_modification = Timespec {
            tv_sec: modified.as_secs().try_into()?,
            tv_nsec: modified.subsec_nanos().into(),
        };
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access, last_modification };
        Ok(utimensat(CWD, self.path(path), &times, AtFlags::empty())?)
    }

    fn read(&self, file: &File, target: &mut [u8], offset: u64) -> Result<usize> {
        Ok(file.read_at(target, offset)?)
    }

    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
        Ok(file.write_all_at(bytes, offset)?)
    }

    fn sync(&self, file: &File) -> Result<()> {
        Ok(file.sync_all()?)
    }

    fn lock(&self, file: &File, lock: bool) -> Result<()> {
        let how = if lock { FlockOperation::LockExclusive } else { FlockOperation::Unlock };
        Ok(fcntl_lock(file, how)?)
    }
}
