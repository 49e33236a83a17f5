//! Changes of a directory: names that come, go and move.

use userbtrfs_format::{FileKind, InodeItem};
use userbtrfs_sync::Arc;

use super::{Dir, DirEntries, Inode};
use crate::error::{Error, Result};
use crate::node::{NewInode, NewKind, RenameKind};

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
}

impl Level {
    fn new(dir: Dir, name: &[u8]) -> Self {
        Self { entries: dir.entries(), dir, name: name.to_vec() }
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

    /// Removes what is in this directory, and in those below, but not itself.
    pub fn remove_content(&self) -> Result<()> {
        let mut levels = vec![Level::new(self.clone(), b"")];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.next().transpose()? else {
                let Some(Level { name, .. }) = levels.pop() else { break };
                levels.last().map_or(Ok(()), |parent| parent.dir.remove_dir(&name))?;
                continue;
            };
            match level.dir.remove_file(entry.name()) {
                Err(Error::IsADirectory) => {
                    let below = Level::new(level.dir.enter(&entry)?, entry.name());
                    levels.push(below);
                }
                removed => removed?,
            }
        }
        Ok(())
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
