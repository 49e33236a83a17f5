//! Hard links.

use userbtrfs_format::FileKind;
use userbtrfs_sync::Arc;

use crate::error::{Error, InodeId, Result};
use crate::inode::Inode;
use crate::inode::dir::lookup::{check_new_name, lookup};
use crate::inode::flush::item_limits::{check_room_for_entry, place_of_ref};
use crate::inode::ids::EMPTY_DIR;
use crate::inode::ops::create::{check_absent, check_alive, new_entry, take_index};
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::Operation;
use crate::inode::ops::targets::{check_mutable, directory_to_change, inode_to_change};

/// Items that change: inode, ref, entry by name and by place, the directory's inode, the list of
/// inodes without a name.
const LINK_ITEMS: u64 = 6;

/// The most names that an inode may have.
const LINKS_MAX: u32 = 65535;

/// Adds a name to an inode that is not a directory, in a directory of the same subvolume.
pub(crate) fn link(namespace: &Namespace, inode: InodeId, dir: InodeId, name: &[u8]) -> Result<()> {
    check_new_name(name)?;
    if inode.subvolume != dir.subvolume || inode.number == EMPTY_DIR {
        return Err(refuse_link(namespace, inode, dir, name)?);
    }
    namespace.inodes.log_tracker.wait_for_pause();
    let dir = directory_to_change(namespace, dir)?;
    let inode = inode_to_change(namespace, inode)?;
    let reservation = namespace.inodes.reserve_for_name(LINK_ITEMS)?;
    let _entries = dir.lock_entries();
    let _operation = inode.lock_operation();
    check_absent(&namespace.inodes, &dir, name)?;
    check_mutable(&inode)?;
    check_linkable(&inode)?;
    check_room_for_entry(&namespace.inodes, &dir, name)?;
    let reservation = reservation.ok_or(Error::NoSpace)?;
    let place = place_of_ref(&namespace.inodes, &inode, dir.number(), name)?;
    let index = take_index(&namespace.inodes, &dir)?;
    let operation = Operation::begin(&namespace.inodes)?;
    let entry = new_entry(&operation, index, name, &inode);
    operation.add_name(&inode, &dir, &entry, place);
    operation.add_entry(&dir, &entry);
    operation.hold(&dir, Some(reservation));
    Ok(())
}

/// Returns why an inode of another subvolume, or the empty directory in place of one, gets no name
/// in a directory.
fn refuse_link(namespace: &Namespace, inode: InodeId, dir: InodeId, name: &[u8]) -> Result<Error> {
    if lookup(&namespace.inodes, dir, name)?.is_some() {
        return Ok(Error::Exists);
    }
    let dir = directory_to_change(namespace, dir)?;
    check_alive(&dir)?;
    if inode.number == EMPTY_DIR {
        return Ok(Error::NotPermitted);
    }
    let inode = namespace.inodes.inode(inode)?;
    check_mutable(&inode)?;
    let is_dir = inode.kind() == FileKind::Directory;
    Ok(if is_dir { Error::NotPermitted } else { Error::CrossDevice })
}

/// Checks that an inode may get one more name. The caller holds the operation lock.
fn check_linkable(inode: &Arc<Inode>) -> Result<()> {
    let state = inode.state();
    match state.item.nlink {
        _ if state.item.kind == FileKind::Directory => Err(Error::NotPermitted),
        _ if state.dead => Err(Error::NotFound),
        0 if !state.linkable => Err(Error::NotFound),
        LINKS_MAX.. => Err(Error::TooManyLinks),
        _ => Ok(()),
    }
}
