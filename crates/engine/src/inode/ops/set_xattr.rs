//! Setting and removing extended attributes, of all kinds.

use crate::error::{Error, InodeId, Result};
use crate::inode::XattrKind;
use crate::inode::flush::item_limits::check_room_for_xattr;
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::ATTRIBUTE_ITEMS;
use crate::inode::ops::property::set_property;
use crate::inode::ops::targets::{check_mutable, inode_to_change};
use crate::inode::ops::xattr::{
    PROPERTIES, check_length, check_name, check_value, find_xattr, put_one,
};

/// Sets an attribute.
pub(crate) fn set_xattr(
    namespace: &Namespace,
    id: InodeId,
    name: &[u8],
    value: &[u8],
    kind: XattrKind,
) -> Result<()> {
    check_name(name)?;
    check_value(name, value)?;
    if name.starts_with(PROPERTIES) {
        return set_property(namespace, id, name, Some(value), kind);
    }
    let inode = inode_to_change(namespace, id)?;
    check_mutable(&inode)?;
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
    let inode = inode_to_change(namespace, id)?;
    check_mutable(&inode)?;
    let reservation = namespace.inodes.reserve_for_removal(ATTRIBUTE_ITEMS)?;
    let _locked = inode.lock_operation();
    find_xattr(&namespace.inodes, &inode, name)?.0.ok_or(Error::NoAttribute)?;
    put_one(&namespace.inodes, &inode, name, None, reservation)
}
