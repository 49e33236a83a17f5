//! Removal of names.

use userbtrfs_format::DirEntryKind;
use userbtrfs_sync::Arc;
use userbtrfs_transaction::Reservation;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::lookup::{
    Found, find_name, full_entry, show_other_entry, target_if_named, target_inode,
};
use crate::inode::ops::create::next_index;
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::{Operation, lock_entries};
use crate::inode::ops::orphan::{UnlinkOutcome, finish_unlink, remove_name};
use crate::inode::ops::targets::{check_mutable, directory_to_change};
use crate::inode::{EntryTarget, Inode, Inodes};

/// Items that change: inode, ref in either item, entry by name and by place, the directory's
/// inode, the list of inodes without a name.
pub(in crate::inode) const UNLINK_ITEMS: u64 = 7;

/// Removes a name of an inode that is not a directory.
pub(crate) fn unlink(namespace: &Namespace, dir: InodeId, name: &[u8]) -> Result<()> {
    namespace.inodes.log_tracker.wait_for_pause();
    let dir = directory_to_change(namespace, dir)?;
    let reservation = namespace.inodes.reserve_for_removal(UNLINK_ITEMS)?;
    let locked = dir.lock_entries();
    let found = find_name(&namespace.inodes, &dir, name)?.ok_or(Error::NotFound)?;
    if found.kind == DirEntryKind::Directory {
        return Err(Error::IsADirectory);
    }
    let inode = target_inode(&namespace.inodes, &dir, found.target)?;
    let entry = full_entry(&namespace.inodes, &dir, name, found, &inode)?;
    check_removable(&dir, &inode)?;
    next_index(&namespace.inodes, &dir)?;
    let busy = inode.lock_operation();
    let operation = Operation::begin(&namespace.inodes)?;
    let fate = remove_name(&operation, &dir, &entry, &inode);
    operation.hold(&dir, Some(reservation));
    drop((operation, busy, locked));
    finish_unlink(namespace, &inode, fate);
    show_other_entry(&namespace.inodes, &dir, name)
}

/// Removes an empty directory.
///
/// Two directories are locked in lock order, but the second one is certain only under the lock
/// of the first. So the name is looked up before and after locking.
pub(crate) fn rmdir(namespace: &Namespace, dir: InodeId, name: &[u8]) -> Result<()> {
    namespace.inodes.log_tracker.wait_for_pause();
    let dir = directory_to_change(namespace, dir)?;
    let mut reservation = Some(namespace.inodes.reserve_for_removal(UNLINK_ITEMS)?);
    loop {
        let found = find_name(&namespace.inodes, &dir, name)?.ok_or(Error::NotFound)?;
        if found.kind != DirEntryKind::Directory {
            return Err(Error::NotADirectory);
        }
        let child = target_if_named(&namespace.inodes, &dir, name, found.target)?;
        let Some(child) = child else { continue };
        if let Some(fate) = rmdir_of(&namespace.inodes, &dir, name, &child, &mut reservation)? {
            finish_unlink(namespace, &child, fate);
            return show_other_entry(&namespace.inodes, &dir, name);
        }
    }
}

/// Removes the directory `child`, if the name still leads to it; otherwise returns `None`.
fn rmdir_of(
    inodes: &Inodes,
    dir: &Arc<Inode>,
    name: &[u8],
    child: &Arc<Inode>,
    reservation: &mut Option<Reservation>,
) -> Result<Option<UnlinkOutcome>> {
    let _locked = lock_entries([Some(dir), Some(child)]);
    let _busy = child.lock_operation();
    let found = find_name(inodes, dir, name)?;
    let same = |found: &Found| found.target == EntryTarget::Inode(child.number());
    let Some(found) = found.filter(same) else { return Ok(None) };
    let entry = full_entry(inodes, dir, name, found, child)?;
    check_removable(dir, child)?;
    check_empty(child)?;
    next_index(inodes, dir)?;
    let operation = Operation::begin(inodes)?;
    let fate = remove_name(&operation, dir, &entry, child);
    operation.hold(dir, reservation.take());
    Ok(Some(fate))
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
