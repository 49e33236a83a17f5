//! A walk through the host's files.
//!
//! 1. The entries of a directory are read in the order of inode numbers, which is likely their
//!    order on disk.
//! 2. No symbolic link is followed, except in the path that the caller gives; a name is read
//!    relative to its opened parent directory.

mod content;

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use userbtrfs_engine::api::Timestamp;

use super::{Attributes, Entry, Event, Kind, Origin, Source, Xattrs};
use crate::copy::error::{CopyError, SideError, host_error as failed};
use crate::copy::host_object::HostObject;
use crate::copy::options::{CopyOptions, Filter};
use crate::copy::shared::SharedFiles;
use content::FileContent;

/// The maximum size of a list of attribute names, and of a value.
const XATTR_MAX: usize = 64 << 10;

/// A walk through the host's files.
pub(in crate::copy) struct HostTree {
    first: Option<Event<FileContent>>,
    levels: Vec<Level>,
    /// A buffer for extended attributes.
    buffer: Vec<u8>,
    /// The device and inode number of a file that is left out.
    except: Option<(u64, u64)>,
    /// The files that share data, if the copies share it.
    shared: Option<Arc<SharedFiles>>,
    filter: Option<Filter>,
    /// The filesystem to which the walk is limited, if it is: that of the first directory.
    only: Only,
}

/// The limit of a walk to one filesystem.
#[derive(Clone, Copy)]
enum Only {
    All,
    First,
    Device(u64),
}

impl Only {
    /// Returns true if a directory on this device is left empty. The first one sets the limit.
    fn leaves_empty(&mut self, device: u64) -> bool {
        match *self {
            Self::All => false,
            Self::First => {
                *self = Self::Device(device);
                false
            }
            Self::Device(only) => only != device,
        }
    }
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
    /// Starts at a path. A link at its end is followed only with `follow`, and has to lead to a
    /// directory.
    pub(in crate::copy) fn new(
        path: &Path,
        follow: bool,
        options: &CopyOptions,
        shared: Option<Arc<SharedFiles>>,
    ) -> Result<Self, CopyError> {
        let mut tree = Self {
            first: None,
            levels: Vec::new(),
            buffer: vec![0; XATTR_MAX],
            except: options.except,
            shared,
            filter: options.filter.clone(),
            only: if options.one_subvolume { Only::First } else { Only::All },
        };
        tree.first = Some(if follow {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = fs::open(path, flags, Mode::empty()).map_err(failed(path, "open"))?;
            tree.enter(fd, path, b"")?
        } else {
            let at = CString::new(path.as_os_str().as_bytes())
                .map_err(|_| failed(path, "open")(Errno::NOENT))?;
            tree.look(CWD, &at, FileType::Unknown, path.to_path_buf(), b"")?
        });
        Ok(tree)
    }

    /// Returns true if the filter leaves out a name of a directory.
    fn leaves_out(&self, level: &Level, name: &CString, kind: FileType, path: &Path) -> bool {
        let Some(filter) = &self.filter else { return false };
        let is_dir = match kind {
            FileType::Unknown => fs::statat(&level.fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
            known => known == FileType::Directory,
        };
        let top = self.levels.first().unwrap_or(level);
        !filter.takes(&top.path, path, is_dir)
    }

    /// Reads the inode at a name of a directory.
    fn look(
        &mut self,
        dir: BorrowedFd<'_>,
        at: &CString,
        kind: FileType,
        path: PathBuf,
        name: &[u8],
    ) -> Result<Event<FileContent>, CopyError> {
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
            FileType::Directory => self.enter(open(OFlags::DIRECTORY)?, &path, name),
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
        name: &[u8],
    ) -> Result<Event<FileContent>, CopyError> {
        let stat = fs::fstat(&fd).map_err(failed(path, "read attributes"))?;
        let xattrs = self.xattrs(HostObject::Open(fd.as_fd()));
        let names = if self.only.leaves_empty(stat.st_dev) {
            Vec::new()
        } else {
            read_names(&fd).map_err(failed(path, "read directory"))?
        };
        let entry = entry(name, path.to_path_buf(), Kind::Directory, &stat, xattrs);
        self.levels.push(Level { fd, path: path.to_path_buf(), names });
        Ok(Event::Enter(entry))
    }

    fn begin(
        &mut self,
        fd: OwnedFd,
        stat: &Stat,
        path: PathBuf,
        name: &[u8],
    ) -> Result<Event<FileContent>, CopyError> {
        if self.except == Some((stat.st_dev, stat.st_ino)) {
            return Err(CopyError::Itself { path });
        }
        let xattrs = self.xattrs(HostObject::Open(fd.as_fd()));
        let shared = self.shared.as_ref().and_then(|shared| shared.extents_of(&fd, stat));
        let content = FileContent::new(fd, path.clone(), stat, shared);
        Ok(Event::File(entry(name, path, Kind::File, stat, xattrs), content))
    }

    fn other(
        &mut self,
        dir: BorrowedFd<'_>,
        at: &CString,
        stat: &Stat,
        path: PathBuf,
        name: &[u8],
    ) -> Result<Event<FileContent>, CopyError> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = fs::readlinkat(dir, at, Vec::new());
                Kind::Symlink(target.map_err(failed(&path, "read link"))?.into_bytes())
            }
            _ => Kind::Special((fs::major(stat.st_rdev), fs::minor(stat.st_rdev))),
        };
        let xattrs = self.xattrs(HostObject::Named(dir, at));
        Ok(Event::Other(entry(name, path, kind, stat, xattrs)))
    }

    /// Returns the extended attributes of a file, without those that may not be read.
    fn xattrs(&mut self, file: HostObject<'_>) -> Xattrs {
        let mut xattrs = Xattrs::default();
        let names = match file.list_xattrs(&mut self.buffer) {
            // The filesystem does not support any.
            Err(Errno::NOTSUP | Errno::NOSYS) => return xattrs,
            Err(error) => {
                xattrs.failure = Some(SideError::host("read attributes")(error));
                return xattrs;
            }
            Ok(len) => self.buffer[..len].to_vec(),
        };
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let text = CString::new(name).expect("split at each NUL");
            match file.xattr(&text, &mut self.buffer) {
                // Removed since it was listed, or not permitted.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
                Err(error) => xattrs.unread.push((name.to_vec(), error)),
                Ok(len) => xattrs.found.push((name.to_vec(), self.buffer[..len].to_vec())),
            }
        }
        xattrs
    }
}

impl Source for HostTree {
    type Content = FileContent;

    fn next(&mut self) -> Option<Event<FileContent>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let mut level = self.levels.pop()?;
        let (name, kind, path) = loop {
            let Some(Name { text: name, kind, .. }) = level.names.pop() else {
                return Some(Event::Leave);
            };
            let path = level.path.join(OsStr::from_bytes(name.as_bytes()));
            if !self.leaves_out(&level, &name, kind, &path) {
                break (name, kind, path);
            }
        };
        let depth = self.levels.len();
        let next = self.look(level.fd.as_fd(), &name, kind, path, name.as_bytes());
        // Below the directory that `look` may just have entered.
        self.levels.insert(depth, level);
        Some(next.unwrap_or_else(Event::Failed))
    }
}

fn entry(name: &[u8], path: PathBuf, kind: Kind, stat: &Stat, xattrs: Xattrs) -> Entry {
    let time = |sec, nsec| Timestamp { sec, nsec: u32::try_from(nsec).unwrap_or_default() };
    let attributes = Attributes {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    Entry {
        name: name.to_vec(),
        path,
        has_links: stat.st_nlink > 1 && !matches!(kind, Kind::Directory),
        kind,
        attributes,
        xattrs: xattrs.into(),
        origin: Origin::Host(stat.st_dev, stat.st_ino),
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
