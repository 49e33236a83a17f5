//! What is on the machine, as steps through a tree.
//!
//! 1. Each directory is entered, then left; what is in it comes between, in the order of inode
//!    numbers, in which disks have it.
//! 2. An error stands for one name; the walk goes on behind it.
//! 3. A step holds all that there is to know, so that steps may be made ahead of their use.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use userbtrfs_engine::api::Timestamp;

use super::InsertError;

/// Files of this size and above are not read: content of that size is not taken yet.
const CONTENT_MAX: u64 = 4096;

/// The most bytes that the names or the value of extended attributes have.
const XATTR_MAX: usize = 64 << 10;

/// Names and values of extended attributes.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A step.
pub(super) enum Step {
    /// A directory, and what is in it follows.
    Enter(Node),
    /// What is not a directory.
    Other(Node),
    /// The directory that was entered last, and not left, is complete.
    Leave,
}

/// What stands at a name.
pub(super) struct Node {
    /// The name it gets; none for a directory whose content alone is copied.
    pub(super) name: Option<Vec<u8>>,
    /// Where it is on the machine.
    pub(super) path: PathBuf,
    pub(super) content: Content,
    pub(super) attributes: Attributes,
    pub(super) xattrs: Xattrs,
    /// Device and number of an inode with several names.
    pub(super) several: Option<(u64, u64)>,
}

/// What it is.
pub(super) enum Content {
    Directory,
    File(Vec<u8>),
    /// A file too large to be taken.
    LargeFile,
    Symlink(Vec<u8>),
    /// A device, with its number, a pipe or a socket.
    Special((u32, u32)),
}

/// Attributes as `stat` gives them.
#[derive(Clone, Copy)]
pub(super) struct Attributes {
    /// With the type.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
}

/// See the module's text.
pub(super) struct Walk {
    first: Option<Step>,
    levels: Vec<Level>,
    scratch: Vec<u8>,
}

struct Level {
    fd: OwnedFd,
    path: PathBuf,
    /// What is in it, last first.
    names: Vec<Name>,
}

struct Name {
    text: CString,
    kind: FileType,
    inode: u64,
}

impl Walk {
    /// What is at a path, which is not followed at its end, to be made under a name.
    pub(super) fn of(path: &Path, name: &[u8]) -> Result<Self, InsertError> {
        let mut walk = Self::empty();
        let at = CString::new(path.as_os_str().as_bytes()).map_err(|_| no_path(path))?;
        let first = walk.look(CWD, &at, FileType::Unknown, path.to_path_buf(), name)?;
        walk.first = Some(first);
        Ok(walk)
    }

    /// What is in a directory.
    pub(super) fn inside(path: &Path) -> Result<Self, InsertError> {
        let mut walk = Self::empty();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).map_err(failed(path, "open"))?;
        let mut node = walk.node_of_open(&fd, path, None)?;
        node.content = Content::Directory;
        walk.push(fd, path)?;
        walk.first = Some(Step::Enter(node));
        Ok(walk)
    }

    fn empty() -> Self {
        Self { first: None, levels: Vec::new(), scratch: vec![0; XATTR_MAX] }
    }

    /// Reads what stands at a name of a directory.
    fn look(
        &mut self,
        dir: BorrowedFd<'_>,
        at: &CString,
        kind: FileType,
        path: PathBuf,
        name: &[u8],
    ) -> Result<Step, InsertError> {
        let stat = || fs::statat(dir, at, AtFlags::SYMLINK_NOFOLLOW);
        let kind = match kind {
            FileType::Unknown => {
                FileType::from_raw_mode(stat().map_err(failed(&path, "read attributes"))?.st_mode)
            }
            known => known,
        };
        let open = |flags: OFlags| {
            let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fs::openat(dir, at, flags, Mode::empty()).map_err(failed(&path, "open"))
        };
        match kind {
            FileType::Directory => {
                let fd = open(OFlags::DIRECTORY)?;
                let node = self.node_of_open(&fd, &path, Some(name))?;
                self.push(fd, &path)?;
                Ok(Step::Enter(node))
            }
            FileType::RegularFile => {
                // What has become a pipe meanwhile shall not be waited for.
                let fd = open(OFlags::NONBLOCK)?;
                self.node_of_open(&fd, &path, Some(name)).map(Step::Other)
            }
            _ => {
                let stat = stat().map_err(failed(&path, "read attributes"))?;
                self.node_of_named(dir, at, &stat, path, name).map(Step::Other)
            }
        }
    }

    fn node_of_open(
        &mut self,
        fd: &OwnedFd,
        path: &Path,
        name: Option<&[u8]>,
    ) -> Result<Node, InsertError> {
        let stat = fs::fstat(fd).map_err(failed(path, "read attributes"))?;
        let content = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Content::Directory,
            FileType::RegularFile => {
                read_content(fd, stat.st_size.cast_unsigned()).map_err(failed(path, "read"))?
            }
            _ => return Err(failed(path, "open")(Errno::AGAIN)),
        };
        let xattrs = self.xattrs(&OpenFile(fd.as_fd())).map_err(failed(path, "read attributes"))?;
        Ok(Node::new(name, path.to_path_buf(), content, &stat, xattrs))
    }

    fn node_of_named(
        &mut self,
        dir: BorrowedFd<'_>,
        at: &CString,
        stat: &Stat,
        path: PathBuf,
        name: &[u8],
    ) -> Result<Node, InsertError> {
        let content = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = fs::readlinkat(dir, at, Vec::new());
                Content::Symlink(target.map_err(failed(&path, "read link"))?.into_bytes())
            }
            _ => Content::Special((fs::major(stat.st_rdev), fs::minor(stat.st_rdev))),
        };
        let named = NamedFile::new(dir, at);
        let xattrs = self.xattrs(&named).map_err(failed(&path, "read attributes"))?;
        Ok(Node::new(Some(name), path, content, stat, xattrs))
    }

    fn xattrs(&mut self, file: &dyn HasXattrs) -> Result<Xattrs, Errno> {
        let names = match file.list(&mut self.scratch) {
            // The filesystem has none.
            Err(Errno::NOTSUP | Errno::NOSYS) | Ok(0) => return Ok(Vec::new()),
            len => self.scratch[..len?].to_vec(),
        };
        let mut xattrs = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let text = CString::new(name).expect("split at each NUL");
            match file.get(&text, &mut self.scratch) {
                // Gone meanwhile, or not for us.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
                len => xattrs.push((name.to_vec(), self.scratch[..len?].to_vec())),
            }
        }
        Ok(xattrs)
    }

    fn push(&mut self, fd: OwnedFd, path: &Path) -> Result<(), InsertError> {
        let names = read_names(&fd).map_err(failed(path, "read directory"))?;
        self.levels.push(Level { fd, path: path.to_path_buf(), names });
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<Step, InsertError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let mut level = self.levels.pop()?;
        let Some(Name { text: name, kind, .. }) = level.names.pop() else {
            return Some(Ok(Step::Leave));
        };
        let path = level.path.join(OsStr::from_bytes(name.as_bytes()));
        let depth = self.levels.len();
        let step = self.look(level.fd.as_fd(), &name, kind, path, name.as_bytes());
        // Below what may just have been entered.
        self.levels.insert(depth, level);
        Some(step)
    }
}

impl Node {
    fn new(
        name: Option<&[u8]>,
        path: PathBuf,
        content: Content,
        stat: &Stat,
        xattrs: Xattrs,
    ) -> Self {
        let several = stat.st_nlink > 1 && !matches!(content, Content::Directory);
        let time = |sec, nsec| Timestamp { sec, nsec: u32::try_from(nsec).unwrap_or_default() };
        let attributes = Attributes {
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            accessed: time(stat.st_atime, stat.st_atime_nsec),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
        };
        Self {
            name: name.map(<[u8]>::to_vec),
            path,
            content,
            attributes,
            xattrs,
            several: several.then_some((stat.st_dev, stat.st_ino)),
        }
    }
}

/// The names in a directory, by inode number, last first.
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

/// The content of a file that is to have this size.
fn read_content(fd: &OwnedFd, size: u64) -> Result<Content, Errno> {
    if size >= CONTENT_MAX {
        return Ok(Content::LargeFile);
    }
    let size = usize::try_from(size).expect("it is small");
    // One byte more: so a read that ends before it is the last one.
    let mut content = vec![0; size + 1];
    let mut len = 0;
    while len < size {
        match rustix::io::read(fd, &mut content[len..])? {
            0 => break,
            more => len += more,
        }
    }
    if len > size {
        return Err(Errno::AGAIN);
    }
    content.truncate(len);
    Ok(Content::File(content))
}

/// Something with extended attributes.
trait HasXattrs {
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno>;
    fn get(&self, name: &CString, buffer: &mut [u8]) -> Result<usize, Errno>;
}

struct OpenFile<'a>(BorrowedFd<'a>);

impl HasXattrs for OpenFile<'_> {
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        fs::flistxattr(self.0, buffer)
    }

    fn get(&self, name: &CString, buffer: &mut [u8]) -> Result<usize, Errno> {
        fs::fgetxattr(self.0, name, buffer)
    }
}

/// A link or a special file: there is no call that takes a directory and a name.
struct NamedFile(Vec<u8>);

impl NamedFile {
    fn new(dir: BorrowedFd<'_>, at: &CString) -> Self {
        let is_of_dir = dir.as_raw_fd() != CWD.as_raw_fd();
        let prefix = is_of_dir.then(|| format!("/proc/self/fd/{}/", dir.as_raw_fd()));
        Self([prefix.unwrap_or_default().as_bytes(), at.as_bytes()].concat())
    }
}

impl HasXattrs for NamedFile {
    fn list(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        fs::llistxattr(&*self.0, buffer)
    }

    fn get(&self, name: &CString, buffer: &mut [u8]) -> Result<usize, Errno> {
        fs::lgetxattr(&*self.0, name, buffer)
    }
}

fn no_path(path: &Path) -> InsertError {
    failed(path, "open")(Errno::NOENT)
}

fn failed(path: &Path, doing: &'static str) -> impl Fn(Errno) -> InsertError {
    let path = path.to_path_buf();
    move |error| InsertError::Source { path: path.clone(), doing, error: error.into() }
}
