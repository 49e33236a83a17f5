//! Setting and removing extended attributes, of all kinds.

use userbtrfs_format::{FileKind, NAME_LEN_MAX};
use userbtrfs_sync::Arc;

use crate::error::{Error, InodeId, Result};
use crate::inode::flush::item_limits::check_room_for_xattr;
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::ATTRIBUTE_ITEMS;
use crate::inode::ops::property::set_property;
use crate::inode::ops::targets::{check_mutable, inode_to_change};
use crate::inode::ops::xattr::{
    PROPERTIES, check_length, check_name, check_value, find_xattr, put_one,
};
use crate::inode::{Inode, XattrKind};

/// The namespaces that Linux handles itself, without a check of permissions.
const NAMESPACES_OF_LINUX: [&[u8]; 3] = [b"system.", b"trusted.", b"security."];

/// Sets an attribute.
pub(crate) fn set_xattr(
    namespace: &Namespace,
    id: InodeId,
    name: &[u8],
    value: &[u8],
    kind: XattrKind,
) -> Result<()> {
    check_value(name, value)?;
    if name.starts_with(PROPERTIES) {
        check_name(name)?;
        return set_property(namespace, id, name, Some(value), kind);
    }
    let inode = inode_to_change_xattr(namespace, id, name)?;
    check_length(&namespace.inodes, name, value)?;
    let reservation = namespace.inodes.reserve(ATTRIBUTE_ITEMS)?;
    let _locked = inode.lock_operation();
    let (found, others) = find_xattr(&namespace.inodes, &inode, name)?;
    kind.check(found.is_some())?;
    check_room_for_xattr(&namespace.inodes, name, value, others)?;
    put_one(&namespace.inodes, &inode, name, Some(value), reservation)
}

/// Removes an attribute. Returns [`Error::NoAttribute`] if there is none.
pub(crate) fn remove_xattr(namespace: &Namespace, id: InodeId, name: &[u8]) -> Result<()> {
    if name.starts_with(PROPERTIES) {
        return set_property(namespace, id, name, None, XattrKind::Replace);
    }
    let inode = inode_to_change_xattr(namespace, id, name)?;
    let reservation = namespace.inodes.reserve_for_removal(ATTRIBUTE_ITEMS)?;
    let _locked = inode.lock_operation();
    find_xattr(&namespace.inodes, &inode, name)?.0.ok_or(Error::NoAttribute)?;
    put_one(&namespace.inodes, &inode, name, None, reservation)
}

/// Returns the inode whose attribute of this name is to be changed. Like Linux, checks that the
/// inode may be changed before it looks for the namespace, unless Linux handles that itself.
fn inode_to_change_xattr(namespace: &Namespace, id: InodeId, name: &[u8]) -> Result<Arc<Inode>> {
    let found = inode_to_change(namespace, id);
    let named = check_name(name);
    if let Err(error) = named {
        if is_name_first(name) || !has_permissions(namespace, id, &found) {
            return Err(error);
        }
        return found.and_then(|inode| check_mutable(&inode)).and(Err(error));
    }
    let inode = found?;
    check_mutable(&inode)?;
    Ok(inode)
}

/// Returns whether a bad name is reported before missing permissions.
fn is_name_first(name: &[u8]) -> bool {
    name.is_empty()
        || name.len() > NAME_LEN_MAX
        || NAMESPACES_OF_LINUX.iter().any(|own| name.starts_with(own))
}

/// Returns whether an inode is of a kind that has permissions. `found` is the inode, unless it may
/// not be changed.
fn has_permissions(namespace: &Namespace, id: InodeId, found: &Result<Arc<Inode>>) -> bool {
    let kind = match found {
        Ok(inode) => inode.kind(),
        // In the place of a subvolume that a snapshot did not copy there is only a directory.
        Err(_) => namespace.inodes.inode(id).map_or(FileKind::Directory, |inode| inode.kind()),
    };
    matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}
