//! Operations on subvolumes.

use rustix::io::Errno;
use userbtrfs::{Dir, Error, FileKind, Inode, TreeId};

use crate::model::Outcome;
use crate::operation::{Object, Operation};

use super::outcome::outcome;
use super::{Actor, kind};

/// The inode number of a subvolume's root directory.
const ROOT: u64 = 256;

/// The mode of a subvolume that the ioctl creates.
const MODE: u32 = 0o777;

impl Actor {
    pub(super) fn apply_to_subvolumes(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Subvolume { path } => {
                let (dir, name) = self.parent(path.as_slice())?;
                outcome(dir.create_subvolume(name, MODE).map(drop))
            }
            Operation::Snapshot { source, path, read_only } => {
                let source = self.inode(&Object::Path(source.clone()))?;
                let (dir, name) = self.parent(path.as_slice())?;
                let source = subvolume_at(&source)?;
                self.ballast.delete_before_snapshot(source)?;
                outcome(dir.snapshot(name, source, *read_only).map(drop))
            }
            Operation::SetReadOnly { path, read_only } => {
                let subvolume = self.inode(&Object::Path(path.clone()))?;
                let subvolume = subvolume_at(&subvolume)?;
                outcome(self.filesystem.set_subvolume_read_only(subvolume, *read_only))?;
                self.open_again(subvolume)
            }
            Operation::DeleteSubvolume { path } => self.delete(path.as_slice(), delete_subvolume),
            other => unreachable!("{other} is of no subvolume"),
        }
    }

    /// Returns whether an object is a file in a read-only subvolume: Linux does not open it for
    /// writing.
    pub(super) fn is_read_only(&self, object: &Object) -> bool {
        let Ok(inode) = self.inode(object) else { return false };
        let subvolume = || self.filesystem.subvolume(inode.id().subvolume);
        kind(&inode) == Ok(FileKind::Regular) && subvolume().is_ok_and(|it| it.is_read_only())
    }

    /// Opens the files of a subvolume again: one that was written to can still be written to if the
    /// subvolume is read-only, as one that Linux has open for writing.
    fn open_again(&mut self, subvolume: TreeId) -> Outcome {
        for handle in self.handles.values_mut() {
            if handle.inode.id().subvolume == subvolume && handle.file.is_some() {
                let file = outcome(handle.inode.open())?;
                let before = handle.file.replace(file);
                outcome(before.map_or(Ok(()), userbtrfs::File::close))?;
            }
        }
        Ok(())
    }

    /// Deletes a directory or a subvolume; closes the handles in a subvolume.
    pub(super) fn delete(
        &mut self,
        path: &[u8],
        act: impl FnOnce(&Dir, &[u8]) -> Outcome,
    ) -> Outcome {
        let (dir, name) = self.parent(path)?;
        let deleted = match subvolume_at(&outcome(dir.lookup(name))?) {
            Err(Errno::INVAL) => None,
            deleted => Some(deleted?),
        };
        act(&dir, name)?;
        self.handles.retain(|_, handle| Some(handle.inode.id().subvolume) != deleted);
        Ok(())
    }
}

/// Returns the subvolume whose root directory this is.
fn subvolume_at(inode: &Inode) -> Outcome<TreeId> {
    let is_root = kind(inode)? == FileKind::Directory && inode.id().number == ROOT;
    if is_root { Ok(inode.id().subvolume) } else { Err(Errno::INVAL) }
}

fn delete_subvolume(dir: &Dir, name: &[u8]) -> Outcome {
    match dir.delete_subvolume(name) {
        Err(Error::NoSubvolume) => match kind(&outcome(dir.lookup(name))?)? {
            FileKind::Directory => Err(Errno::INVAL),
            _ => Err(Errno::NOTDIR),
        },
        deleted => outcome(deleted.map(drop)),
    }
}
