//! Changes of a directory: names that are added, removed and renamed.

use std::sync::atomic::{AtomicU64, Ordering};

use userbtrfs_format::{FileKind, InodeItem};
use userbtrfs_sync::Arc;

use super::{Dir, DirEntries, DirEntry, Inode};
use crate::error::{Error, Result};
use crate::inode::ops;
use crate::inode::{NewInode, NewKind, RenameKind};

/// The mode of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// An inode with the new name is replaced: a directory only by a directory, and if it is empty.
    Replace,
    /// The new name must not exist: [`Error::Exists`].
    NoReplace,
    /// The two names are exchanged.
    Exchange,
    /// Like `Replace`, and a whiteout takes the old name: a character device 0:0.
    Whiteout,
    /// Like `NoReplace`, and a whiteout takes the old name.
    WhiteoutNoReplace,
}

/// A directory that is being emptied, and its name in its parent.
struct Level {
    dir: Dir,
    entries: DirEntries,
    name: Vec<u8>,
    /// Whether something in it could not be removed.
    stays: bool,
}

impl Level {
    fn new(dir: Dir, name: &[u8]) -> Self {
        Self { entries: dir.entries(), dir, name: name.to_vec(), stays: false }
    }

    /// Removes an entry. Returns the level of a directory that must be emptied first.
    fn remove(&self, entry: &DirEntry) -> Result<Option<Self>> {
        match self.dir.remove_file(entry.name()) {
            Err(Error::IsADirectory) => Ok(Some(Self::new(self.dir.enter(entry)?, entry.name()))),
            removed => removed.map(|()| None),
        }
    }
}

/// New inodes belong to root, or to the owner set by [`Dir::for_owner`], and to the group of the
/// directory if that has its set-group-id bit.
///
/// If the directory has a default ACL, new inodes other than symbolic links inherit it as on Linux:
/// their permissions are those of `mode` that the ACL permits, too.
impl Dir {
    /// Creates an empty file.
    pub fn create(&self, name: &[u8], mode: u32) -> Result<Inode> {
        self.make(name, NewKind::File, mode)
    }

    /// Creates an empty directory.
    pub fn create_dir(&self, name: &[u8], mode: u32) -> Result<Dir> {
        self.make(name, NewKind::Directory, mode).map(Dir::new)
    }

    /// Creates a symbolic link to any path.
    pub fn symlink(&self, name: &[u8], target: &[u8]) -> Result<Inode> {
        self.make(name, NewKind::Symlink(target), 0o777)
    }

    /// Creates a device, pipe, socket or empty file, according to the type in `mode`; `device` is
    /// the major and minor number of a device, and is ignored otherwise. Returns [`Error::Invalid`]
    /// if the mode has another type.
    pub fn make_node(&self, name: &[u8], mode: u32, device: (u32, u32)) -> Result<Inode> {
        let number = InodeItem::device_number(device.0, device.1);
        let kind = match FileKind::from_mode(mode) {
            Some(FileKind::Regular) => NewKind::File,
            Some(kind @ (FileKind::CharDevice | FileKind::BlockDevice)) => {
                NewKind::Special(kind, number)
            }
            Some(kind @ (FileKind::Fifo | FileKind::Socket)) => NewKind::Special(kind, 0),
            _ => return Err(Error::Invalid("a type that is made otherwise")),
        };
        self.make(name, kind, mode)
    }

    /// Creates a file without a name in the subvolume of this directory (`O_TMPFILE`).
    /// [`Dir::link`] can give it a name; if it has none when its last handle is dropped, it is
    /// deleted.
    pub fn create_unnamed(&self, mode: u32) -> Result<Inode> {
        let inode = self.inode();
        let new = self.new_inode(NewKind::File, mode);
        let opened = ops::create_unnamed(inode.namespace(), inode.id(), &new)?;
        Ok(Inode::of_opened(inode.filesystem().clone(), opened))
    }

    fn make(&self, name: &[u8], kind: NewKind<'_>, mode: u32) -> Result<Inode> {
        let inode = self.inode();
        let new = self.new_inode(kind, mode);
        let opened = ops::create_opened(inode.namespace(), inode.id(), name, &new)?;
        Ok(Inode::of_opened(inode.filesystem().clone(), opened))
    }

    pub(super) fn new_inode<'a>(&'a self, kind: NewKind<'a>, mode: u32) -> NewInode<'a> {
        let (uid, gid) = self.owner;
        NewInode { kind, mode, default_acl: self.default_acl, uid, gid, xattrs: &self.xattrs }
    }

    /// Adds a name for an inode of the same subvolume, which is no directory.
    pub fn link(&self, name: &[u8], inode: &Inode) -> Result<()> {
        self.check_same(inode)?;
        ops::link(inode.namespace(), inode.id(), self.inode().id(), name)?;
        #[cfg(feature = "experiments")]
        super::experiments::linked(self, name)?;
        Ok(())
    }

    /// Removes a name of an inode other than a directory.
    pub fn remove_file(&self, name: &[u8]) -> Result<()> {
        ops::unlink(self.inode().namespace(), self.inode().id(), name)
    }

    /// Removes an empty directory, or an empty subvolume.
    pub fn remove_dir(&self, name: &[u8]) -> Result<()> {
        match ops::rmdir(self.inode().namespace(), self.inode().id(), name) {
            Err(Error::IsSubvolume) => self.remove_subvolume(name, true).map(drop),
            removed => removed,
        }
    }

    /// Removes the content of this directory recursively, subvolumes with all of theirs, but not
    /// the directory itself. The first failure ends it.
    pub fn remove_content(&self) -> Result<()> {
        self.remove_content_with(|_, error| Err(error)).map(drop)
    }

    /// Like [`Dir::remove_content`], but passes each failure to `failed`, with the path below this
    /// directory. If that returns an error, returns that; otherwise continues, and leaves what
    /// cannot be removed, with the directories that contain it. Returns true if the directory is
    /// empty.
    pub fn remove_content_with(
        &self,
        failed: impl FnMut(&[u8], Error) -> Result<()>,
    ) -> Result<bool> {
        self.remove_content_counted(&AtomicU64::new(0), failed)
    }

    /// Like [`Dir::remove_content_with`], and counts the removed names in `removed`.
    pub fn remove_content_counted(
        &self,
        removed: &AtomicU64,
        mut failed: impl FnMut(&[u8], Error) -> Result<()>,
    ) -> Result<bool> {
        let mut last = Level::new(self.clone(), b"");
        let mut above: Vec<Level> = Vec::new();
        loop {
            let (name, done) = match last.entries.next() {
                Some(Ok(entry)) => (entry.name().to_vec(), last.remove(&entry)),
                Some(Err(error)) => (Vec::new(), Err(error)),
                None => {
                    let Some(parent) = above.pop() else { return Ok(!last.stays) };
                    let Level { name, stays, .. } = std::mem::replace(&mut last, parent);
                    last.stays |= stays;
                    if stays {
                        continue;
                    }
                    let done = last.dir.remove_dir(&name);
                    (name, done.map(|()| None))
                }
            };
            match done {
                Ok(None) => {
                    removed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Some(below)) => above.push(std::mem::replace(&mut last, below)),
                Err(error) => {
                    last.stays = true;
                    let levels = above.iter().chain([&last]).map(|level| &level.name[..]);
                    let path = levels.chain([&name[..]]).filter(|name| !name.is_empty());
                    failed(&path.collect::<Vec<_>>().join(&b'/'), error)?;
                }
            }
        }
    }

    /// Renames a name of this directory to a name of a directory in the same subvolume; the name of
    /// a subvolume also to one in another. A subvolume replaces an empty directory only. Names in
    /// different subvolumes are exchanged if both are those of subvolumes. A whiteout gets the
    /// owner of new inodes in this directory.
    pub fn rename(&self, name: &[u8], to: &Dir, new_name: &[u8], mode: RenameMode) -> Result<()> {
        #[cfg(feature = "experiments")]
        let to_dir = to;
        self.check_same(to.inode())?;
        let kind = match mode {
            RenameMode::Replace => RenameKind::Replace,
            RenameMode::NoReplace => RenameKind::NoReplace,
            RenameMode::Exchange => RenameKind::Exchange,
            RenameMode::Whiteout => RenameKind::Whiteout(self.owner),
            RenameMode::WhiteoutNoReplace => RenameKind::WhiteoutNoReplace(self.owner),
        };
        let from = self.inode().id();
        let to = to.inode().id();
        let namespace = self.inode().namespace();
        let renamed = ops::rename(namespace, (from, name), (to, new_name), kind);
        #[cfg(feature = "experiments")]
        if renamed.is_ok() {
            let exchanges = mode == RenameMode::Exchange;
            return super::experiments::renamed((self, name), (to_dir, new_name), exchanges);
        }
        match renamed {
            // One of the names is that of a subvolume, or the directories are in different ones.
            Err(Error::IsSubvolume | Error::CrossDevice) => {
                ops::rename_subvolume(namespace, (from, name), (to, new_name), kind)
            }
            renamed => renamed,
        }
    }

    /// Checks that an inode is in the same filesystem.
    fn check_same(&self, inode: &Inode) -> Result<()> {
        if Arc::ptr_eq(self.inode().inner(), inode.inner()) {
            Ok(())
        } else {
            Err(Error::CrossDevice)
        }
    }
}
