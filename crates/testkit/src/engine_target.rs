//! userbtrfs as a target: executes operations through the public interface of the library.
//!
//! 1. This module implements what Linux decides above its filesystems: the valid names of xattrs
//!    and the inodes they apply to, the mode bits of a new directory, and numbered open files.
//! 2. [`Actor`]s of one filesystem may run concurrently; each has its own handles. One of them may
//!    resize it.
//! 3. After a resize, a file takes the space at the start of the device, so that the next resize
//!    has something to relocate (`Ballast`).

mod ballast;
mod crowd;
mod data;
mod outcome;
mod resizing;
mod subvolumes;

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::io::Errno;
use userbtrfs::device::Device;
use userbtrfs::{
    Attributes as NewAttributes, Dir, File, FileKind, Filesystem, Inode, InodeFlags, OpenOptions,
    RenameMode, Timestamp, TreeId, XattrMode,
};
use userbtrfs_sync::Arc;

use crate::manifest::{Kind, Manifest, Mode, Time};
use crate::model::{Answer, End, Model, Outcome};
use crate::operation::{
    Attributes, Object, Operation, RenameKind, XattrKind, is_answered_unlike_linux, names, split,
};
use crate::target::Target;
use crate::walk_ours;

use self::ballast::Ballast;
use self::outcome::outcome;

pub use self::ballast::used_beyond;
pub use self::crowd::{crowd_out, with_little_memory};
pub use self::outcome::errno;

/// The mode bits that mkdir(2) uses.
const MKDIR_BITS: u32 = 0o1777;

/// Inode flags with their bits for `FS_IOC_SETFLAGS` (`linux/fs.h`).
const FLAGS: &[(InodeFlags, u32)] = &[
    (InodeFlags::SYNC, 0x8),
    (InodeFlags::NODUMP, 0x40),
    (InodeFlags::NOATIME, 0x80),
    (InodeFlags::DIRSYNC, 0x1_0000),
    (InodeFlags::NODATACOW, 0x80_0000),
];

/// The longest name of an xattr, in bytes.
const XATTR_NAME_MAX: usize = 255;

/// The longest value of an xattr, in bytes.
const XATTR_VALUE_MAX: usize = 65536;

/// The target of a symbolic link is shorter than this, in bytes.
const PATH_MAX: usize = 4096;

/// Executes operations on a filesystem.
pub struct Actor {
    filesystem: Filesystem,
    handles: HashMap<u8, Handle>,
    ballast: Ballast,
    late_errors: Cell<u64>,
}

/// An open file or directory.
struct Handle {
    inode: Inode,
    /// The open file, if it is a regular file.
    file: Option<File>,
}

impl Handle {
    fn new(inode: Inode) -> Outcome<Self> {
        let file = match kind(&inode)? {
            FileKind::Regular => Some(outcome(inode.open())?),
            _ => None,
        };
        Ok(Self { inode, file })
    }

    fn close(self) -> Outcome {
        self.file.map_or(Ok(()), |file| outcome(file.close()))
    }
}

impl Actor {
    /// Creates an actor; paths start at the root of the filesystem.
    pub fn new(filesystem: &Filesystem) -> Self {
        let handles = HashMap::new();
        let late_errors = Cell::new(0);
        let ballast = Ballast::default();
        Self { filesystem: filesystem.clone(), handles, ballast, late_errors }
    }

    /// Returns how often closing a file reported that earlier data was lost: a file opened for a
    /// single operation, or one whose handle was replaced.
    pub fn late_errors(&self) -> u64 {
        self.late_errors.get()
    }

    /// Executes an operation. A commit is executed; a reopen only closes all handles.
    pub fn apply(&mut self, operation: &Operation) -> End {
        match operation {
            Operation::Read { object, offset, length } => {
                self.on_file(object, |file| data::read(file, *offset, *length)).map(Answer)
            }
            Operation::Clone { source, object, .. } | Operation::Dedupe { source, object, .. } => {
                let kinds = [kind(&self.inode(source)?)?, kind(&self.inode(object)?)?];
                if kinds.contains(&FileKind::Directory) {
                    return Err(Errno::ISDIR);
                }
                self.on_file(source, |from| {
                    self.on_file(object, |to| data::share(from, to, operation))
                })
                .map(Answer)
            }
            change => self.change(change).map(|()| Answer::default()),
        }
    }

    fn change(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create { path, mode } => {
                let (dir, name) = self.parent(path.as_slice())?;
                outcome(dir.create(name, mode.bits()).map(drop))
            }
            Operation::Mkdir { path, mode } => {
                let (dir, name) = self.parent(path.as_slice())?;
                outcome(dir.create_dir(name, mode.bits() & MKDIR_BITS).map(drop))
            }
            Operation::Mknod { path, kind, mode, rdev } => {
                let (dir, name) = self.parent(path.as_slice())?;
                make_node(&dir, name, *kind, *mode, *rdev)
            }
            Operation::Symlink { path, target } => {
                let (dir, name) = self.parent(path.as_slice())?;
                check_target(target.as_slice())?;
                outcome(dir.symlink(name, target.as_slice()).map(drop))
            }
            Operation::Link { from, to } => self.link(from, to.as_slice()),
            Operation::Unlink { path } => {
                let (dir, name) = self.parent(path.as_slice())?;
                outcome(dir.remove_file(name))
            }
            Operation::Rmdir { path } => {
                self.delete(path.as_slice(), |dir, name| outcome(dir.remove_dir(name)))
            }
            Operation::Subvolume { .. }
            | Operation::Snapshot { .. }
            | Operation::SetReadOnly { .. }
            | Operation::DeleteSubvolume { .. } => self.apply_to_subvolumes(operation),
            Operation::Rename { from, to, kind } => {
                let (from, name) = self.parent(from.as_slice())?;
                let (to, new) = self.parent(to.as_slice())?;
                outcome(from.rename(name, &to, new, rename_mode(*kind)))
            }
            Operation::Resize { bytes } => self.resize(*bytes),
            Operation::Commit => outcome(self.filesystem.commit()),
            Operation::Reopen => {
                self.ballast.delete()?;
                for (_, handle) in std::mem::take(&mut self.handles) {
                    self.note(handle.close());
                }
                outcome(self.filesystem.commit())
            }
            other => self.apply_to_inode(other),
        }
    }

    fn apply_to_inode(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Tmpfile { dir, handle, mode } => {
                let inode = outcome(self.dir(dir.as_slice())?.create_unnamed(mode.bits()))?;
                self.hold(*handle, Handle::new(inode)?);
                Ok(())
            }
            Operation::Open { path, handle } => {
                let inode = self.inode(&Object::Path(path.clone()))?;
                check_openable(&inode)?;
                self.hold(*handle, Handle::new(inode)?);
                Ok(())
            }
            Operation::Close { handle } => self.handles.remove(handle).ok_or(Errno::BADF)?.close(),
            Operation::Setattr { object, attributes } => {
                outcome(self.inode(object)?.set_attributes(&new_attributes(attributes)))
            }
            Operation::SetFlags { object, flags } => set_flags(&self.inode(object)?, *flags),
            Operation::Truncate { object, .. }
            | Operation::Write { object, .. }
            | Operation::Append { object, .. }
            | Operation::Replace { object, .. }
            | Operation::Allocate { object, .. }
            | Operation::Defragment { object, .. }
            | Operation::Sync { object } => self
                .on_file(object, |file| data::change(file, operation))
                .map_err(|errno| if self.is_read_only(object) { Errno::ROFS } else { errno }),
            Operation::SetXattr { object, name, value, kind } => {
                let inode = self.inode(object)?;
                check_xattr(&inode, name.as_slice(), value.as_slice().len())?;
                outcome(inode.set_xattr(name.as_slice(), value.as_slice(), xattr_mode(*kind)))
            }
            Operation::RemoveXattr { object, name } => {
                let inode = self.inode(object)?;
                check_xattr(&inode, name.as_slice(), 0)?;
                outcome(inode.remove_xattr(name.as_slice()))
            }
            other => unreachable!("{other} is of a name"),
        }
    }

    /// fsync(2), or fdatasync(2), of a file or directory.
    pub fn sync(&self, object: &Object, data_only: bool) -> Outcome {
        let inode = self.inode(object)?;
        match kind(&inode)? {
            FileKind::Regular if data_only => {
                self.on_file(object, |file| outcome(file.sync_data()))
            }
            _ => outcome(inode.sync_all()),
        }
    }

    fn link(&self, from: &Object, to: &[u8]) -> Outcome {
        let Object::Path(path) = from else {
            let (dir, name) = self.parent(to)?;
            return outcome(dir.link(name, &self.inode(from)?));
        };
        let parent = split(path.as_slice()).map(|(dir, _)| self.dir(dir)).transpose()?;
        let (dir, name) = self.parent(to)?;
        let inode = match (parent, split(path.as_slice())) {
            (Some(parent), Some((_, from))) => outcome(parent.lookup(from))?,
            _ => self.filesystem.root().inode().clone(),
        };
        outcome(dir.link(name, &inode))
    }

    /// Returns the directory at a path.
    fn dir(&self, path: &[u8]) -> Outcome<Dir> {
        let mut dir = self.filesystem.root();
        for name in names(path) {
            dir = outcome(dir.lookup(name).and_then(|inode| inode.open_dir()))?;
        }
        Ok(dir)
    }

    /// Returns the parent directory of a path, and the last name.
    fn parent<'a>(&self, path: &'a [u8]) -> Outcome<(Dir, &'a [u8])> {
        let (dir, name) = split(path).ok_or(Errno::INVAL)?;
        Ok((self.dir(dir)?, name))
    }

    fn inode(&self, object: &Object) -> Outcome<Inode> {
        match object {
            Object::Handle(number) => Ok(self.handle(*number)?.inode.clone()),
            Object::Path(path) => match split(path.as_slice()) {
                None => Ok(self.filesystem.root().inode().clone()),
                Some((dir, name)) => outcome(self.dir(dir)?.lookup(name)),
            },
        }
    }

    fn handle(&self, number: u8) -> Outcome<&Handle> {
        self.handles.get(&number).ok_or(Errno::BADF)
    }

    /// Stores a handle; closes the one that had this number.
    fn hold(&mut self, number: u8, handle: Handle) {
        if let Some(before) = self.handles.insert(number, handle) {
            self.note(before.close());
        }
    }

    fn note(&self, closed: Outcome) {
        self.late_errors.set(self.late_errors.get() + u64::from(closed.is_err()));
    }

    /// Calls `act` on a file: on its handle, or on the file opened for this call.
    fn on_file<T>(&self, object: &Object, act: impl FnOnce(&File) -> Outcome<T>) -> Outcome<T> {
        if let Object::Handle(number) = object
            && let Some(file) = &self.handle(*number)?.file
        {
            return act(file);
        }
        let inode = self.inode(object)?;
        let file = match kind(&inode)? {
            FileKind::Regular => outcome(inode.open())?,
            FileKind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        };
        let done = act(&file);
        self.note(outcome(file.close()));
        done
    }
}

fn kind(inode: &Inode) -> Outcome<FileKind> {
    Ok(outcome(inode.metadata())?.kind)
}

/// Fails unless the inode may be opened and have its flags set.
fn check_openable(inode: &Inode) -> Outcome {
    match kind(inode)? {
        FileKind::Regular | FileKind::Directory => Ok(()),
        FileKind::Symlink => Err(Errno::LOOP),
        _ => Err(Errno::INVAL),
    }
}

fn make_node(dir: &Dir, name: &[u8], kind: Kind, mode: Mode, rdev: (u32, u32)) -> Outcome {
    let (kind, device) = match kind {
        Kind::File => return outcome(dir.create(name, mode.bits()).map(drop)),
        Kind::Block => (FileKind::BlockDevice, rdev),
        Kind::Char => (FileKind::CharDevice, rdev),
        Kind::Fifo => (FileKind::Fifo, (0, 0)),
        Kind::Socket => (FileKind::Socket, (0, 0)),
        Kind::Dir => return Err(Errno::PERM),
        Kind::Symlink => return Err(Errno::INVAL),
    };
    outcome(dir.make_node(name, kind.to_mode() | mode.bits(), device).map(drop))
}

fn set_flags(inode: &Inode, flags: u32) -> Outcome {
    check_openable(inode)?;
    if FLAGS.iter().fold(flags, |rest, (_, bit)| rest & !bit) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let metadata = outcome(inode.metadata())?;
    let mut new = metadata.flags;
    for (flag, bit) in FLAGS {
        // A file with content keeps its data checksummed or not, so the flag does not change.
        let stays = *flag == InodeFlags::NODATACOW && metadata.size > 0;
        if metadata.kind == FileKind::Directory || !stays {
            new.set(*flag, flags & bit != 0);
        }
    }
    outcome(inode.set_flags(new))
}

/// Applies the checks that Linux makes before it calls the filesystem.
fn check_target(target: &[u8]) -> Outcome {
    match target.len() {
        0 => Err(Errno::NOENT),
        1..PATH_MAX => Ok(()),
        _ => Err(Errno::NAMETOOLONG),
    }
}

/// Applies these checks to the name of an xattr and the length of its value.
fn check_xattr(inode: &Inode, name: &[u8], length: usize) -> Outcome {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::RANGE);
    }
    if length > XATTR_VALUE_MAX {
        return Err(Errno::TOOBIG);
    }
    let kind = kind(inode)?;
    let takes_user = matches!(kind, FileKind::Regular | FileKind::Directory);
    if name.starts_with(b"user.") && !takes_user {
        return Err(Errno::PERM);
    }
    Ok(())
}

fn new_attributes(attributes: &Attributes) -> NewAttributes {
    NewAttributes {
        mode: attributes.mode.map(Mode::bits),
        uid: attributes.uid,
        gid: attributes.gid,
        accessed: attributes.atime.map(timestamp),
        modified: attributes.mtime.map(timestamp),
        ..NewAttributes::default()
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { sec: time.seconds, nsec: time.nanoseconds }
}

fn rename_mode(kind: RenameKind) -> RenameMode {
    match kind {
        RenameKind::Plain => RenameMode::Replace,
        RenameKind::NoReplace => RenameMode::NoReplace,
        RenameKind::Exchange => RenameMode::Exchange,
        RenameKind::Whiteout => RenameMode::Whiteout,
        RenameKind::WhiteoutNoReplace => RenameMode::WhiteoutNoReplace,
    }
}

fn xattr_mode(kind: XattrKind) -> XattrMode {
    match kind {
        XattrKind::Any => XattrMode::Either,
        XattrKind::Create => XattrMode::Create,
        XattrKind::Replace => XattrMode::Replace,
    }
}

/// The location of the filesystem.
enum Place {
    Device(Arc<dyn Device>),
    Image(PathBuf),
}

/// A filesystem that userbtrfs has open for writing; closed cleanly on drop. It commits only for
/// [`Operation::Commit`] and when the filesystem has to.
pub struct EngineTarget {
    place: Place,
    options: OpenOptions,
    /// `None` only during a reopen and after closing.
    actor: Option<Actor>,
}

impl EngineTarget {
    /// Opens the top-level subvolume on a device.
    pub fn on_device(device: Arc<dyn Device>) -> anyhow::Result<Self> {
        Self::with_options(device, &OpenOptions::new())
    }

    /// Opens it with options, except those for the subvolume and the commit interval.
    pub fn with_options(device: Arc<dyn Device>, options: &OpenOptions) -> anyhow::Result<Self> {
        Self::open(Place::Device(device), options.clone().subvolume_id(TreeId::FS))
    }

    /// Opens the top-level subvolume of an image file.
    pub fn on_image(image: &Path) -> anyhow::Result<Self> {
        Self::on_subvolume(image, TreeId::FS, &OpenOptions::new())
    }

    /// Opens a subvolume of an image file, with options except the commit interval.
    pub fn on_subvolume(
        image: &Path,
        subvolume: TreeId,
        options: &OpenOptions,
    ) -> anyhow::Result<Self> {
        Self::open(Place::Image(image.to_owned()), options.clone().subvolume_id(subvolume))
    }

    fn open(place: Place, options: &mut OpenOptions) -> anyhow::Result<Self> {
        let options = options.write(true).commit_seconds(0).clone();
        let mut target = Self { place, options, actor: None };
        target.actor = Some(Actor::new(&target.open_again()?));
        Ok(target)
    }

    fn open_again(&self) -> anyhow::Result<Filesystem> {
        let opened = match &self.place {
            Place::Device(device) => self.options.open_devices(vec![Arc::clone(device)]),
            Place::Image(image) => self.options.open(image).map_err(Into::into),
        };
        opened.context("opening for writing")
    }

    /// Returns the filesystem.
    pub fn filesystem(&self) -> &Filesystem {
        &self.actor.as_ref().expect("it is open").filesystem
    }

    /// Calls fsync(2), or fdatasync(2), on a file or directory.
    pub fn sync(&self, object: &Object, data_only: bool) -> Outcome {
        self.actor.as_ref().expect("it is open").sync(object, data_only)
    }

    /// Deletes the file that takes the space at the start of the device.
    pub fn delete_ballast(&mut self) -> Outcome {
        self.actor.as_mut().expect("it is open").ballast.delete()
    }

    /// Closes the filesystem cleanly.
    pub fn close(mut self) -> anyhow::Result<()> {
        self.end()
    }

    /// Drops everything that is not durable, as in a crash of the process.
    pub fn abandon(mut self) {
        if let Some(Actor { filesystem, handles, ballast, .. }) = self.actor.take() {
            filesystem.abandon();
            drop((handles, ballast));
        }
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let Some(Actor { filesystem, handles, ballast, .. }) = self.actor.take() else {
            return Ok(());
        };
        drop((handles, ballast));
        filesystem.close().context("closing")
    }
}

impl Drop for EngineTarget {
    fn drop(&mut self) {
        match self.end() {
            Err(error) if std::thread::panicking() => eprintln!("while panicking: {error:#}"),
            ended => ended.expect("it can be closed"),
        }
    }
}

impl Target for EngineTarget {
    fn answers_as_linux(&self, model: &Model, operation: &Operation) -> bool {
        !is_answered_unlike_linux(model, operation)
    }

    fn apply(&mut self, operation: &Operation) -> End {
        let actor = self.actor.as_mut().expect("it is open");
        let end = actor.apply(operation);
        assert_eq!(actor.late_errors(), 0, "data is lost");
        end
    }

    fn manifest(&mut self) -> Manifest {
        walk_ours::walk(self.filesystem()).expect("it can be walked")
    }

    fn commit(&mut self) {
        self.filesystem().commit().expect("it can be committed");
    }

    fn reopen(&mut self) {
        self.end().expect("it can be closed");
        self.actor = Some(Actor::new(&self.open_again().expect("it can be opened again")));
    }
}
