//! Removal of names.

use userbtrfs_format::DirEntryKind;
use userbtrfs_sync::Arc;
use userbtrfs_transaction::Reservation;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::lookup::Found;
use crate::inode::ops::operation::lock_entries;
use crate::inode::ops::orphan::UnlinkOutcome;
use crate::inode::{EntryTarget, Inode, Inodes, check_mutable};

/// Items that change: inode, ref in either item, entry by name and by place, the directory's
/// inode, the list of inodes without a name.
pub(in crate::inode) const UNLINK_ITEMS: u64 = 7;

impl Inodes {
    /// Removes a name of an inode that is not a directory.
    pub(crate) fn unlink(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        self.log_tracker.wait_for_pause();
        let dir = self.directory_to_change(dir)?;
        let reservation = self.reserve_for_removal(UNLINK_ITEMS)?;
        let locked = dir.lock_entries();
        let found = self.find(&dir, name)?.ok_or(Error::NotFound)?;
        if found.kind == DirEntryKind::Directory {
            return Err(Error::IsADirectory);
        }
        let inode = self.target(&dir, found.target)?;
        let entry = self.entry(&dir, name, found, &inode)?;
        check_removable(&dir, &inode)?;
        self.next_index(&dir)?;
        let busy = inode.lock_operation();
        let operation = self.begin()?;
        let fate = operation.remove_name(&dir, &entry, &inode);
        operation.hold(&dir, Some(reservation));
        drop((operation, busy, locked));
        self.finish(&inode, fate);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// Two directories are locked in lock order, but the second one is certain only under the lock
    /// of the first. So the name is looked up before and after locking.
    pub(crate) fn rmdir(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        self.log_tracker.wait_for_pause();
        let dir = self.directory_to_change(dir)?;
        let mut reservation = Some(self.reserve_for_removal(UNLINK_ITEMS)?);
        loop {
            let found = self.find(&dir, name)?.ok_or(Error::NotFound)?;
            if found.kind != DirEntryKind::Directory {
                return Err(Error::NotADirectory);
            }
            let child = self.target_if_named(&dir, name, found.target)?;
            let Some(child) = child else { continue };
            if let Some(fate) = self.rmdir_of(&dir, name, &child, &mut reservation)? {
                self.finish(&child, fate);
                return Ok(());
            }
        }
    }

    /// Removes the directory `child`, if the name still leads to it; otherwise returns `None`.
    fn rmdir_of(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        child: &Arc<Inode>,
        reservation: &mut Option<Reservation>,
    ) -> Result<Option<UnlinkOutcome>> {
        let _locked = lock_entries([Some(dir), Some(child)]);
        let _busy = child.lock_operation();
        let found = self.find(dir, name)?;
        let same = |found: &Found| found.target == EntryTarget::Inode(child.number());
        let Some(found) = found.filter(same) else { return Ok(None) };
        let entry = self.entry(dir, name, found, child)?;
        check_removable(dir, child)?;
        check_empty(child)?;
        self.next_index(dir)?;
        let operation = self.begin()?;
        let fate = operation.remove_name(dir, &entry, child);
        operation.hold(dir, reservation.take());
        Ok(Some(fate))
    }
}

/// Checks that a directory, whose entries are locked, is empty. Its size counts the entries.
pub(in crate::inode) fn check_empty(dir: &Inode) -> Result<()> {
    match dir.state().item.size {
        0 => Ok(()),
        _ => Err(Error::NotEmpty),
    }
}

/// Checks that the flags of a directory and of an inode allow a name of the inode to be removed.
pub(in crate::inode) fn check_removable(dir: &Inode, inode: &Inode) -> Result<()> {
    check_mutable(dir)?;
    check_mutable(inode)
}
