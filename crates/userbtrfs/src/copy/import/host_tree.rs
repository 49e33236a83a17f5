//! A walk through the host's files.
//!
//! 1. The entries of a directory are read in the order of inode numbers, which is likely their
//!    order on disk.
//! 2. No symbolic link is followed, except in the path that the caller gives; a name is read
//!    relative to its opened parent directory.

mod content;
mod xattrs;

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use userbtrfs_engine::api::Timestamp;

use super::ImportError;
use super::event::{Attributes, Kind, Node, Origin, TreeEvent, Xattrs};
use super::prefetch::{Next, Source};
use content::FileContent;
use xattrs::{NamedFile, OpenFile, XattrReader};

/// A walk through the host's files.
pub(super) struct HostTree {
    first: Option<Next<FileContent>>,
    levels: Vec<Level>,
    xattrs: XattrReader,
    /// The device and inode number of a file that is left out.
    except: Option<(u64, u64)>,
}

struct Level {
    fd: OwnedFd,
    path: PathBuf,
    /// Its names, last first.
    names: Vec<Name>,
}

struct Name {
    text: CString,
    kind: FileType,
    inode: u64,
}

impl HostTree {
    /// Starts at a path, to be copied as `name`. A link at the end of the path is not followed.
    pub(super) fn of(
        path: &Path,
        name: &[u8],
        except: Option<(u64, u64)>,
    ) -> Result<Self, ImportError> {
        let mut machine = Self::empty(except);
        let at = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| failed(path, "open")(Errno::NOENT))?;
        let first = machine.look(CWD, &at, FileType::Unknown, path.to_path_buf(), name)?;
        machine.first = Some(first);
        Ok(machine)
    }

    /// Starts at a directory of which only the entries are copied.
    pub(super) fn inside(path: &Path, except: Option<(u64, u64)>) -> Result<Self, ImportError> {
        let mut machine = Self::empty(except);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).map_err(failed(path, "open"))?;
        machine.first = Some(machine.enter(fd, path, None)?);
        Ok(machine)
    }

    fn empty(except: Option<(u64, u64)>) -> Self {
        Self { first: None, levels: Vec::new(), xattrs: XattrReader::new(), except }
    }

    /// Reads the inode at a name of a directory.
    fn look(
        &mut self,
        dir: BorrowedFd<'_>,
        at: &CString,
        kind: FileType,
        path: PathBuf,
        name: &[u8],
    ) -> Result<Next<FileContent>, ImportError> {
        let stat = || {
            let stat = fs::statat(dir, at, AtFlags::SYMLINK_NOFOLLOW);
            stat.map_err(failed(&path, "read attributes"))
        };
        let kind = match kind {
            FileType::Unknown => FileType::from_raw_mode(stat()?.st_mode),
            known => known,
        };
        let open = |flags: OFlags| {
            let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fs::openat(dir, at, flags, Mode::empty()).map_err(failed(&path, "open"))
        };
        match kind {
            FileType::Directory => self.enter(open(OFlags::DIRECTORY)?, &path, Some(name)),
            // If it has become a pipe since it was listed, the open must not block.
            FileType::RegularFile => {
                let fd = open(OFlags::NONBLOCK)?;
                let stat = fs::fstat(&fd).map_err(failed(&path, "read attributes"))?;
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => self.begin(fd, &stat, path, name),
                    // It was replaced, or is a device to fakeroot(1) alone.
                    _ => self.other(dir, at, &stat, path, name),
                }
            }
            _ => {
                let stat = stat()?;
                self.other(dir, at, &stat, path, name)
            }
        }
    }

    fn enter(
        &mut self,
        fd: OwnedFd,
        path: &Path,
        name: Option<&[u8]>,
    ) -> Result<Next<FileContent>, ImportError> {
        let stat = fs::fstat(&fd).map_err(failed(path, "read attributes"))?;
        let xattrs = self.xattrs_of_open(&fd, path)?;
        let names = read_names(&fd).map_err(failed(path, "read directory"))?;
        let node = node(name, path.to_path_buf(), Kind::Directory, &stat, xattrs);
        self.levels.push(Level { fd, path: path.to_path_buf(), names });
        Ok(Next::Step(TreeEvent::Enter(node)))
    }

    fn begin(
        &mut self,
        fd: OwnedFd,
        stat: &Stat,
        path: PathBuf,
        name: &[u8],
    ) -> Result<Next<FileContent>, ImportError> {
        if self.except == Some((stat.st_dev, stat.st_ino)) {
            return Err(ImportError::Itself { path });
        }
        let xattrs = self.xattrs_of_open(&fd, &path)?;
        let content = FileContent::new(fd, path.clone(), stat);
        Ok(Next::File(node(Some(name), path, Kind::File, stat, xattrs), content))
    }

    fn other(
        &mut self,
        dir: BorrowedFd<'_>,
        at: &CString,
        stat: &Stat,
        path: PathBuf,
        name: &[u8],
    ) -> Result<Next<FileContent>, ImportError> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = fs::readlinkat(dir, at, Vec::new());
                Kind::Symlink(target.map_err(failed(&path, "read link"))?.into_bytes())
            }
            _ => Kind::Special((fs::major(stat.st_rdev), fs::minor(stat.st_rdev))),
        };
        let xattrs = self.xattrs.read(&NamedFile::new(dir, at));
        let xattrs = xattrs.map_err(failed(&path, "read attributes"))?;
        Ok(Next::Step(TreeEvent::Other(node(Some(name), path, kind, stat, xattrs))))
    }

    fn xattrs_of_open(&mut self, fd: &OwnedFd, path: &Path) -> Result<Xattrs, ImportError> {
        self.xattrs.read(&OpenFile(fd.as_fd())).map_err(failed(path, "read attributes"))
    }
}

impl Source for HostTree {
    type Content = FileContent;

    fn next(&mut self) -> Option<Next<FileContent>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let mut level = self.levels.pop()?;
        let Some(Name { text: name, kind, .. }) = level.names.pop() else {
            return Some(Next::Step(TreeEvent::Leave));
        };
        let path = level.path.join(OsStr::from_bytes(name.as_bytes()));
        let depth = self.levels.len();
        let next = self.look(level.fd.as_fd(), &name, kind, path, name.as_bytes());
        // Below the directory that `look` may just have entered.
        self.levels.insert(depth, level);
        Some(next.unwrap_or_else(|error| Next::Step(TreeEvent::Failed(error))))
    }
}

fn node(name: Option<&[u8]>, path: PathBuf, kind: Kind, stat: &Stat, xattrs: Xattrs) -> Node {
    let time = |sec, nsec| Timestamp { sec, nsec: u32::try_from(nsec).unwrap_or_default() };
    let attributes = Attributes {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    Node {
        name: name.map(<[u8]>::to_vec),
        path,
        several: stat.st_nlink > 1 && !matches!(kind, Kind::Directory),
        kind,
        attributes,
        xattrs,
        origin: Origin::Machine(stat.st_dev, stat.st_ino),
    }
}

/// Returns the names in a directory, by descending inode number.
fn read_names(fd: &OwnedFd) -> Result<Vec<Name>, Errno> {
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(fd)? {
        let entry = entry?;
        let text = entry.file_name().to_owned();
        if !matches!(text.as_bytes(), b"." | b"..") {
            names.push(Name { text, kind: entry.file_type(), inode: entry.ino() });
        }
    }
    names.sort_by_key(|name| std::cmp::Reverse(name.inode));
    Ok(names)
}

fn failed(path: &Path, doing: &'static str) -> impl Fn(Errno) -> ImportError {
    let path = path.to_path_buf();
    move |error| ImportError::Source { path: path.clone(), doing, error: error.into() }
}
