//! The inodes that an operation changes: found by number, and checked for what their kind and flags
//! allow.
//!
//! The first change in a subvolume deletes the orphans that an earlier mount left there.

use userbtrfs_format::{FileKind, InodeFlags, TreeId};
use userbtrfs_sync::Arc;

use crate::error::{Error, InodeId, Result};
use crate::inode::Inode;
use crate::inode::ids::EMPTY_DIR;
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::orphan::delete_left;
use crate::inode::tree::subvolume::Subvolume;

/// Deletes the orphans that an earlier mount left in a subvolume, or that a snapshot copied, unless
/// that was done; also in a read-only one. The caller holds no lock.
pub(crate) fn clean(namespace: &Namespace, id: TreeId) -> Result<()> {
    let subvolume = namespace.subvolumes.find(&namespace.inodes.tree_roots, id)?;
    delete_left(namespace, id, &subvolume);
    Ok(())
}

/// Returns the subvolume of inodes that are about to change, after deleting the orphans that an
/// earlier mount left in it. The caller holds no lock.
fn subvolume_to_change(namespace: &Namespace, id: InodeId) -> Result<Arc<Subvolume>> {
    let inodes = &namespace.inodes;
    inodes.transactions()?;
    let subvolume = namespace.subvolumes.get(&inodes.tree_roots, id.subvolume)?;
    delete_left(namespace, id.subvolume, &subvolume);
    Ok(subvolume)
}

/// Returns an inode that is to be changed. The caller holds no lock.
pub(in crate::inode) fn inode_to_change(namespace: &Namespace, id: InodeId) -> Result<Arc<Inode>> {
    if id.number == EMPTY_DIR {
        return Err(Error::NotPermitted);
    }
    subvolume_to_change(namespace, id)?;
    namespace.inodes.inode(id)
}

/// Returns a directory that is to be changed. The caller holds no lock.
pub(in crate::inode) fn directory_to_change(
    namespace: &Namespace,
    id: InodeId,
) -> Result<Arc<Inode>> {
    let inode = inode_to_change(namespace, id)?;
    let (kind, flags) = inode.kind_and_flags();
    match kind {
        FileKind::Directory if flags.contains(InodeFlags::IMMUTABLE) => Err(Error::NotPermitted),
        FileKind::Directory => Ok(inode),
        _ => Err(Error::NotADirectory),
    }
}

/// Returns a file whose content is to be stored elsewhere, unchanged: its flags do not forbid that.
/// The caller holds no lock.
pub(crate) fn file_to_rewrite(namespace: &Namespace, id: InodeId) -> Result<Arc<Inode>> {
    let inode = inode_to_change(namespace, id)?;
    match inode.kind_and_flags().0 {
        FileKind::Regular => Ok(inode),
        FileKind::Directory => Err(Error::IsADirectory),
        _ => Err(Error::NotAFile),
    }
}

/// Returns a file that is to be changed, or only to be appended to. The caller holds no lock.
pub(crate) fn file_to_change(
    namespace: &Namespace,
    id: InodeId,
    append: bool,
) -> Result<Arc<Inode>> {
    let inode = inode_to_change(namespace, id)?;
    let item = inode.item();
    match item.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::NotAFile),
    }
    // A file with fs-verity is never written again.
    let for_good = InodeFlags::IMMUTABLE | InodeFlags::VERITY;
    let refused = if append { for_good } else { for_good | InodeFlags::APPEND };
    if item.flags.intersects(refused) { Err(Error::NotPermitted) } else { Ok(inode) }
}

/// Checks that the flags of an inode allow it to be changed, linked or unlinked.
pub(in crate::inode) fn check_mutable(inode: &Inode) -> Result<()> {
    if inode.kind_and_flags().1.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}
