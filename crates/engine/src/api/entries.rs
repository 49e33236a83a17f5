//! Changes of a directory: names that come, go and move.

use userbtrfs_format::{FileKind, InodeItem};
use userbtrfs_sync::Arc;

use super::{Dir, DirEntries, DirEntry, Inode};
use crate::error::{Error, Result};
use crate::inode::{NewInode, NewKind, RenameKind};

/// How a name is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// What has the new name is replaced: a directory only by a directory, and if it is empty.
    Replace,
    /// Nothing may have the new name: [`Error::Exists`].
    NoReplace,
    /// Both names change places.
    Exchange,
    /// As `Replace`, and a whiteout takes the old name: a character device 0:0.
    Whiteout,
    /// As `NoReplace`, and a whiteout takes the old name.
    WhiteoutNoReplace,
}

/// A directory that is being emptied, and its name in the one above.
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

    /// Removes what an entry leads to; a directory is first to be emptied.
    fn remove(&self, entry: &DirEntry) -> Result<Option<Self>> {
        let is_of_this = || entry.target().subvolume == self.dir.inode().id().subvolume;
        match self.dir.remove_file(entry.name()) {
            Err(Error::IsADirectory) if is_of_this() => {
                Ok(Some(Self::new(self.dir.enter(entry)?, entry.name())))
            }
            // A subvolume is refused before anything in it is removed.
            Err(Error::IsADirectory) => self.dir.remove_dir(entry.name()).map(|()| None),
            removed => removed.map(|()| None),
        }
    }
}

/// What is made belongs to root, or to whom [`Dir::for_owner`] names, and to the group of the
/// directory where that has its set-group-id bit.
impl Dir {
    /// Makes an empty file.
    pub fn create(&self, name: &[u8], mode: u32) -> Result<Inode> {
        self.make(name, NewKind::File, mode)
    }

    /// Makes an empty directory.
    pub fn create_dir(&self, name: &[u8], mode: u32) -> Result<Dir> {
        self.make(name, NewKind::Directory, mode).map(Dir::new)
    }

    /// Makes a symbolic link to any path.
    pub fn symlink(&self, name: &[u8], target: &[u8]) -> Result<Inode> {
        self.make(name, NewKind::Symlink(target), 0o777)
    }

    /// Makes a device, pipe, socket or empty file, as the type in `mode` says; `device` is the
    /// major and minor number of a device, and counts for nothing else. [`Error::Invalid`] where
    /// the mode has another type.
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

    /// Makes a file without a name in the subvolume of this directory. It may be given one by
    /// [`Dir::link`], and is deleted where it has none when its last handle goes.
    pub fn create_unnamed(&self, mode: u32) -> Result<Inode> {
        let inode = self.inode();
        let new = self.new_inode(NewKind::File, mode);
        let opened = inode.nodes().create_unnamed(inode.id(), &new)?;
        Ok(Inode::of_opened(inode.filesystem().clone(), opened))
    }

    fn make(&self, name: &[u8], kind: NewKind<'_>, mode: u32) -> Result<Inode> {
        let inode = self.inode();
        let new = self.new_inode(kind, mode);
        let opened = inode.nodes().create_opened(inode.id(), name, &new)?;
        Ok(Inode::of_opened(inode.filesystem().clone(), opened))
    }

    fn new_inode<'a>(&'a self, kind: NewKind<'a>, mode: u32) -> NewInode<'a> {
        let (uid, gid) = self.owner;
        NewInode { kind, mode, uid, gid, xattrs: &self.xattrs }
    }

    /// Gives an inode of the same subvolume, which is no directory, one more name.
    pub fn link(&self, name: &[u8], inode: &Inode) -> Result<()> {
        self.check_same(inode)?;
        inode.nodes().link(inode.id(), self.inode().id(), name)
    }

    /// Removes a name of what is no directory.
    pub fn remove_file(&self, name: &[u8]) -> Result<()> {
        self.inode().nodes().unlink(self.inode().id(), name)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, name: &[u8]) -> Result<()> {
        self.inode().nodes().rmdir(self.inode().id(), name)
    }

    /// Removes what is in this directory, and in those below, but not itself. The first failure
    /// ends it.
    pub fn remove_content(&self) -> Result<()> {
        self.remove_content_with(|_, error| Err(error)).map(drop)
    }

    /// The same, but each failure is given to `failed`, with the path below this directory. Where
    /// that returns an error, it ends with that; otherwise the rest goes on, and what cannot be
    /// removed stays, with the directories that it is in. Tells whether nothing stays.
    pub fn remove_content_with(
        &self,
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
                    let removed = if stays { Ok(()) } else { last.dir.remove_dir(&name) };
                    (name, removed.map(|()| None))
                }
            };
            match done {
                Ok(None) => {}
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

    /// Moves a name of this directory to a name of a directory in the same subvolume. A whiteout
    /// belongs to whom what is made in this directory belongs to.
    pub fn rename(&self, name: &[u8], to: &Dir, new_name: &[u8], mode: RenameMode) -> Result<()> {
        self.check_same(to.inode())?;
        let kind = match mode {
            RenameMode::Replace => RenameKind::Replace,
            RenameMode::NoReplace => RenameKind::NoReplace,
            RenameMode::Exchange => RenameKind::Exchange,
            RenameMode::Whiteout => RenameKind::Whiteout(self.owner),
            RenameMode::WhiteoutNoReplace => RenameKind::WhiteoutNoReplace(self.owner),
        };
        let (from, to) = (self.inode().id(), to.inode().id());
        self.inode().nodes().rename((from, name), (to, new_name), kind)
    }

    /// Checks that an inode is in the same filesystem.
    fn check_same(&self, inode: &Inode) -> Result<()> {
        match Arc::ptr_eq(self.inode().inner(), inode.inner()) {
            true => Ok(()),
            false => Err(Error::CrossDevice),
        }
    }
}
