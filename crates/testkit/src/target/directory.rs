//! A file tree accessed through system calls, as programs access it.
//!
//! 1. Paths are resolved one directory at a time, so that lookups are in the order that
//!    [`crate::operation`] defines, and paths may exceed `PATH_MAX`.
//! 2. An object is looked up first, and then accessed only through its descriptor.

mod data;
mod descriptor;
mod sharing;
mod subvolumes;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Mode as OpenMode, OFlags, RenameFlags};
use rustix::fs::{Gid, IFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use crate::manifest::{Bytes, Kind, Mode, Time};
use crate::model::{Answer, End, Outcome};
use crate::operation::{Attributes, Object, Operation, RenameKind, XattrKind, names, split};
use crate::test_env::set_own_umask;

use self::descriptor::{by_itself, kind};

/// The root of a tree and its open handles. Creating one clears the umask of the thread.
pub struct Directory {
    handles: BTreeMap<u8, OwnedFd>,
    root: OwnedFd,
}

impl Directory {
    /// Opens the tree at a path.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        set_own_umask(0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, OpenMode::empty())?;
        Ok(Self { handles: BTreeMap::new(), root })
    }

    /// Calls fsync(2), or fdatasync(2), on a file or directory.
    pub fn sync(&self, object: &Object, data_only: bool) -> Outcome {
        self.on_object(object, |at| {
            let opened = reopen_any(&at.try_clone_to_owned().map_err(io_error)?)?;
            if data_only { fs::fdatasync(opened) } else { fs::fsync(opened) }
        })
    }

    /// Makes the whole filesystem durable.
    pub fn commit(&self) -> Outcome {
        fs::syncfs(&self.root)
    }

    /// Executes an operation.
    pub fn apply(&mut self, operation: &Operation) -> End {
        match operation {
            Operation::Read { object, offset, length } => {
                self.on_object(object, |at| data::read(at, *offset, *length)).map(Answer)
            }
            Operation::Clone { source, object, .. } | Operation::Dedupe { source, object, .. } => {
                self.on_object(source, |from| {
                    self.on_object(object, |to| sharing::share(from, to, operation))
                })
                .map(Answer)
            }
            change => self.change(change).map(|()| Answer::default()),
        }
    }

    fn on_object<T>(
        &self,
        object: &Object,
        act: impl FnOnce(BorrowedFd<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        match object {
            Object::Path(path) => act(self.at_path(path)?.as_fd()),
            Object::Handle(handle) => act(self.at_handle(*handle)?),
        }
    }

    fn change(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create { .. }
            | Operation::Mkdir { .. }
            | Operation::Mknod { .. }
            | Operation::Symlink { .. } => self.make(operation),
            Operation::Link { from, to } => self.link(from, to),
            Operation::Unlink { path } => self.unlink(path, AtFlags::empty()),
            Operation::Rmdir { path } => {
                self.delete(path, |dir, name| fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
            }
            Operation::Subvolume { path } => {
                let (dir, name) = self.parent(path)?;
                subvolumes::create(&dir, name)
            }
            Operation::Snapshot { source, path, read_only } => {
                let source = self.at_path(source)?;
                let (dir, name) = self.parent(path)?;
                subvolumes::snapshot(&source, &dir, name, *read_only)
            }
            Operation::SetReadOnly { path, read_only } => {
                subvolumes::set_read_only(&self.at_path(path)?, *read_only)
            }
            Operation::DeleteSubvolume { path } => self.delete(path, subvolumes::delete),
            Operation::Rename { from, to, kind } => self.rename(from, to, *kind),
            Operation::Tmpfile { dir, handle, mode } => {
                let dir = self.dir(dir.as_slice())?;
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let opened = fs::openat(dir, c".", flags, raw(*mode))?;
                self.handles.insert(*handle, opened);
                Ok(())
            }
            Operation::Open { path, handle } => {
                let opened = reopen_any(&self.at_path(path)?)?;
                self.handles.insert(*handle, opened);
                Ok(())
            }
            Operation::Close { handle } => self.handles.remove(handle).map(drop).ok_or(Errno::BADF),
            Operation::Setattr { object, .. }
            | Operation::SetFlags { object, .. }
            | Operation::SetXattr { object, .. }
            | Operation::RemoveXattr { object, .. } => {
                self.on_object(object, |at| change(at, operation))
            }
            Operation::Truncate { object, .. }
            | Operation::Write { object, .. }
            | Operation::Append { object, .. }
            | Operation::Replace { object, .. }
            | Operation::Allocate { object, .. }
            | Operation::Defragment { object, .. }
            | Operation::Sync { object } => {
                self.on_object(object, |at| data::change(at, operation))
            }
            Operation::Read { .. }
            | Operation::Clone { .. }
            | Operation::Dedupe { .. }
            | Operation::Resize { .. }
            | Operation::Commit
            | Operation::Reopen => {
                unreachable!("no change that is asked of a target")
            }
        }
    }

    fn make(&self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create { path, mode } => {
                let (dir, name) = self.parent(path)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                fs::openat(dir, name, flags, raw(*mode)).map(drop)
            }
            Operation::Mkdir { path, mode } => {
                let (dir, name) = self.parent(path)?;
                fs::mkdirat(dir, name, raw(*mode))
            }
            Operation::Mknod { path, kind, mode, rdev: (major, minor) } => {
                let (dir, name) = self.parent(path)?;
                let rdev = fs::makedev(*major, *minor);
                fs::mknodat(dir, name, file_type(*kind), raw(*mode), rdev)
            }
            Operation::Symlink { path, target } => {
                let (dir, name) = self.parent(path)?;
                fs::symlinkat(target.as_slice(), dir, name)
            }
            _ => unreachable!("an operation that makes something"),
        }
    }

    fn link(&self, from: &Object, to: &Bytes) -> Outcome {
        let old_dir = match from {
            Object::Path(path) => Some(self.dir(split(path.as_slice()).unwrap_or_default().0)?),
            Object::Handle(_) => None,
        };
        let (new_dir, new_name) = self.parent(to)?;
        let (old, name, flags) = match (from, &old_dir) {
            (Object::Path(path), Some(dir)) => (dir.as_fd(), last(path), AtFlags::empty()),
            (Object::Handle(handle), _) => {
                (self.at_handle(*handle)?, &b""[..], AtFlags::EMPTY_PATH)
            }
            (Object::Path(_), None) => unreachable!("its directory was opened"),
        };
        fs::linkat(old, name, new_dir, new_name, flags)
    }

    fn unlink(&self, path: &Bytes, flags: AtFlags) -> Outcome {
        let (dir, name) = self.parent(path)?;
        fs::unlinkat(dir, name, flags)
    }

    /// Deletes a directory or a subvolume; closes the handles in a subvolume.
    fn delete(&mut self, path: &Bytes, act: fn(&OwnedFd, &[u8]) -> Outcome) -> Outcome {
        let (dir, name) = self.parent(path)?;
        // A deleted subvolume has another device number.
        let device = subvolumes::device(&dir, name);
        let is_in = |it: &OwnedFd| fs::fstat(it).is_ok_and(|found| Some(found.st_dev) == device);
        let within: Vec<u8> =
            self.handles.iter().filter(|(_, it)| is_in(it)).map(|(handle, _)| *handle).collect();
        act(&dir, name)?;
        self.handles.retain(|handle, _| !within.contains(handle));
        Ok(())
    }

    fn rename(&self, from: &Bytes, to: &Bytes, kind: RenameKind) -> Outcome {
        let (old_dir, old_name) = self.parent(from)?;
        let (new_dir, new_name) = self.parent(to)?;
        let flags = match kind {
            RenameKind::Plain => RenameFlags::empty(),
            RenameKind::NoReplace => RenameFlags::NOREPLACE,
            RenameKind::Exchange => RenameFlags::EXCHANGE,
            RenameKind::Whiteout => RenameFlags::WHITEOUT,
            RenameKind::WhiteoutNoReplace => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
        };
        fs::renameat_with(old_dir, old_name, new_dir, new_name, flags)
    }

    fn dir(&self, path: &[u8]) -> Outcome<OwnedFd> {
        let root = open_dir(&self.root, c".")?;
        names(path).try_fold(root, open_dir)
    }

    fn parent<'a>(&self, path: &'a Bytes) -> Outcome<(OwnedFd, &'a [u8])> {
        let (dir, name) = split(path.as_slice()).ok_or(Errno::INVAL)?;
        Ok((self.dir(dir)?, name))
    }

    /// Opens a path with `O_PATH`.
    fn at_path(&self, path: &Bytes) -> Outcome<OwnedFd> {
        let dir = self.dir(split(path.as_slice()).unwrap_or_default().0)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(dir, last(path), flags, OpenMode::empty())
    }

    fn at_handle(&self, handle: u8) -> Outcome<BorrowedFd<'_>> {
        self.handles.get(&handle).map(AsFd::as_fd).ok_or(Errno::BADF)
    }
}

fn open_dir(at: impl AsFd, name: impl rustix::path::Arg) -> Outcome<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(at, name, flags, OpenMode::empty())
}

/// Returns the last name of a path, or `.` for the root.
fn last(path: &Bytes) -> &[u8] {
    split(path.as_slice()).map_or(b".", |(_, name)| name)
}

fn raw(mode: Mode) -> OpenMode {
    OpenMode::from_raw_mode(mode.bits())
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Block => FileType::BlockDevice,
        Kind::Char => FileType::CharacterDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}

/// Reopens a file or directory for reading and, if it is a file, writing where that is possible.
fn reopen_any(object: &OwnedFd) -> Outcome<OwnedFd> {
    let access = match kind(object)? {
        FileType::RegularFile => OFlags::RDWR,
        FileType::Directory => OFlags::RDONLY,
        FileType::Symlink => return Err(Errno::LOOP),
        _ => return Err(Errno::INVAL),
    };
    let open = |access| fs::open(by_itself(object), access | OFlags::CLOEXEC, OpenMode::empty());
    match open(access) {
        // A file in a read-only subvolume.
        Err(Errno::ROFS) => open(OFlags::RDONLY),
        opened => opened,
    }
}

fn change(object: BorrowedFd<'_>, operation: &Operation) -> Outcome {
    match operation {
        Operation::Setattr { attributes, .. } => set_attributes(object, attributes),
        Operation::SetFlags { flags, .. } => {
            let opened = reopen_any(&object.try_clone_to_owned().map_err(io_error)?)?;
            fs::ioctl_setflags(opened, IFlags::from_bits_retain(*flags))
        }
        Operation::SetXattr { name, value, kind, .. } => {
            let flags = match kind {
                XattrKind::Any => XattrFlags::empty(),
                XattrKind::Create => XattrFlags::CREATE,
                XattrKind::Replace => XattrFlags::REPLACE,
            };
            fs::setxattr(by_itself(object), name.as_slice(), value.as_slice(), flags)
        }
        Operation::RemoveXattr { name, .. } => fs::removexattr(by_itself(object), name.as_slice()),
        _ => unreachable!("an operation on an object"),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn io_error(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).expect("an error of the system")
}

fn set_attributes(object: BorrowedFd<'_>, attributes: &Attributes) -> Outcome {
    let Attributes { mode, uid, gid, atime, mtime } = attributes;
    if mode.is_some() && kind(object)? == FileType::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    let here = by_itself(object);
    if uid.is_some() || gid.is_some() {
        let uid = uid.map(Uid::from_raw);
        let gid = gid.map(Gid::from_raw);
        fs::chownat(object, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = mode {
        fs::chmod(&here, raw(*mode))?;
    }
    if atime.is_some() || mtime.is_some() {
        let times = Timestamps { last_access: time(*atime), last_modification: time(*mtime) };
        fs::utimensat(fs::CWD, &here, &times, AtFlags::empty())?;
    }
    Ok(())
}

fn time(time: Option<Time>) -> Timespec {
    match time {
        Some(Time { seconds, nanoseconds }) => {
            Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
        }
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}
