//! Attributes of inodes.

use userbtrfs_format::{FileKind, InodeFlags, InodeItem, Timestamp};

use crate::error::{Error, InodeId, Result};
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::{ATTRIBUTE_ITEMS, Operation};
use crate::inode::ops::property;
use crate::inode::ops::targets::{check_mutable, inode_to_change};
use crate::inode::ops::xattr::{PutXattr, change_xattr, xattr_to_put};
use crate::inode::tree::ondisk;
use crate::inode::{Inode, Inodes};

/// Attributes to set; those that are `None` stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetAttributes {
    /// Permissions.
    pub(crate) mode: Option<u32>,
    /// The owner.
    pub(crate) uid: Option<u32>,
    /// The group.
    pub(crate) gid: Option<u32>,
    /// The time of the last read.
    pub(crate) atime: Option<Timestamp>,
    /// The time of the last change of the content.
    pub(crate) mtime: Option<Timestamp>,
    /// The time of the last change of the attributes; `None` means now.
    pub(crate) ctime: Option<Timestamp>,
    /// The time of creation.
    pub(crate) otime: Option<Timestamp>,
}

/// Whether the writer of a file belongs to the group of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The writer is in the group, or may keep set-id bits (CAP_FSETID).
    Member,
    /// The writer is not in the group.
    Stranger,
}

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o0010;
const PERMISSIONS: u32 = 0o7777;

/// The flags that users may set.
const SETTABLE: InodeFlags = InodeFlags::NODATASUM
    .union(InodeFlags::NODATACOW)
    .union(InodeFlags::NOCOMPRESS)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC);

/// Returns the size of an inode in its tree, in bytes; 0 if it is not in the tree.
pub(crate) fn stored_size(inodes: &Inodes, inode: &Inode) -> Result<u64> {
    Ok(ondisk::size(&inodes.tree_roots, inode.tree(), inode.number())?)
}

/// Sets attributes, and with them an extended attribute. A new owner or group removes the
/// set-id bits, except of a directory or if the mode is set, too. Without an extended
/// attribute, this needs no free space, since an existing item changes.
pub(crate) fn set_attributes(
    namespace: &Namespace,
    id: InodeId,
    set: &SetAttributes,
    xattr: Option<PutXattr<'_>>,
) -> Result<()> {
    let inode = inode_to_change(namespace, id)?;
    match xattr {
        Some(_) => check_mutable(&inode)?,
        None => check_settable(&inode, set)?,
    }
    if set.mode.is_some() && inode.kind() == FileKind::Symlink {
        return Err(Error::Unsupported("permissions of a symbolic link"));
    }
    let reservation = match xattr {
        Some(_) => namespace.inodes.reserve(2 * ATTRIBUTE_ITEMS)?,
        None => namespace.inodes.reserve_for_removal(ATTRIBUTE_ITEMS)?,
    };
    let _locked = inode.lock_operation();
    let xattr =
        xattr.map(|xattr| xattr_to_put(&namespace.inodes, &inode, xattr)).transpose()?.flatten();
    let operation = Operation::begin(&namespace.inodes)?;
    operation.change_living(&inode, |state| {
        if let Some((name, value)) = xattr {
            change_xattr(&operation, &inode, state, name, value);
        }
        state.item.ctime = operation.now;
        set.put_into(&mut state.item);
    })?;
    operation.hold(&inode, Some(reservation));
    Ok(())
}

/// Sets the times of access and modification; an append-only inode allows that.
pub(crate) fn touch(
    namespace: &Namespace,
    id: InodeId,
    atime: Timestamp,
    mtime: Timestamp,
) -> Result<()> {
    let inode = inode_to_change(namespace, id)?;
    if inode.kind_and_flags().1.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    let reservation = namespace.inodes.reserve_for_removal(ATTRIBUTE_ITEMS)?;
    let _locked = inode.lock_operation();
    let operation = Operation::begin(&namespace.inodes)?;
    operation.change_living(&inode, |state| {
        state.item.atime = atime;
        state.item.mtime = mtime;
        state.item.ctime = operation.now;
    })?;
    operation.hold(&inode, Some(reservation));
    Ok(())
}

/// Removes the set-id bits after a write, except of a directory; returns whether there were
/// any. It is part of a change that the flags of the inode were found to allow.
pub(crate) fn drop_set_id(namespace: &Namespace, id: InodeId, writer: Membership) -> Result<bool> {
    let inode = inode_to_change(namespace, id)?;
    let without = |item: &InodeItem| mode_after_write(item, writer);
    let has_any = |item: &InodeItem| without(item) != item.mode;
    // Most inodes have none: do not reserve space for them.
    if !has_any(&inode.item()) {
        return Ok(false);
    }
    let reservation = namespace.inodes.reserve_for_removal(ATTRIBUTE_ITEMS)?;
    let _locked = inode.lock_operation();
    if !has_any(&inode.item()) {
        return Ok(false);
    }
    let operation = Operation::begin(&namespace.inodes)?;
    operation.change_living(&inode, |state| {
        state.item.mode = without(&state.item);
        state.item.ctime = operation.now;
    })?;
    operation.hold(&inode, Some(reservation));
    Ok(true)
}

/// Sets those flags of an inode that users may set. The storage of a file that is not empty
/// cannot change: returns [`Error::Invalid`] if that would. Flags not in `which` stay; if
/// `which` has one of compression, the property follows.
pub(crate) fn set_flags(
    namespace: &Namespace,
    id: InodeId,
    which: InodeFlags,
    flags: InodeFlags,
) -> Result<()> {
    let inode = inode_to_change(namespace, id)?;
    let reservation = namespace.inodes.reserve(2 * ATTRIBUTE_ITEMS)?;
    let _locked = inode.lock_operation();
    let item = inode.item();
    let new = new_flags(&item, (item.flags - which) | (flags & which))?;
    let property = if which.intersects(property::FLAGS) {
        let value = property::by_flags(&item, new, namespace.inodes.options.compression);
        xattr_to_put(&namespace.inodes, &inode, (property::COMPRESSION, value))?
    } else {
        None
    };
    let operation = Operation::begin(&namespace.inodes)?;
    operation.change_living(&inode, |state| {
        if let Some((name, value)) = property {
            change_xattr(&operation, &inode, state, name, value);
        }
        (state.item.flags, state.item.ctime) = (new, operation.now);
    })?;
    operation.hold(&inode, Some(reservation));
    Ok(())
}

impl SetAttributes {
    fn put_into(&self, item: &mut InodeItem) {
        if self.uid.is_some() || self.gid.is_some() {
            item.mode = mode_without_set_id(item);
        }
        if let Some(mode) = self.mode {
            item.mode = item.mode & !PERMISSIONS | mode & PERMISSIONS;
        }
        item.uid = self.uid.unwrap_or(item.uid);
        item.gid = self.gid.unwrap_or(item.gid);
        item.atime = self.atime.unwrap_or(item.atime);
        item.mtime = self.mtime.unwrap_or(item.mtime);
        item.ctime = self.ctime.unwrap_or(item.ctime);
        item.otime = self.otime.unwrap_or(item.otime);
    }
}

/// Returns the mode without the set-id bits; a directory keeps them. Set-group-id is removed only
/// if the group may execute: otherwise it means something else.
fn mode_without_set_id(item: &InodeItem) -> u32 {
    let executes = item.mode & GROUP_EXECUTES != 0;
    match item.kind {
        FileKind::Directory => item.mode,
        _ => item.mode & !(SET_USER_ID | if executes { SET_GROUP_ID } else { 0 }),
    }
}

/// Returns the mode that an inode has after a write. A write by a stranger to the group removes
/// set-group-id also where the group may not execute.
fn mode_after_write(item: &InodeItem, writer: Membership) -> u32 {
    let is_directory = item.kind == FileKind::Directory;
    match writer {
        Membership::Stranger if !is_directory => item.mode & !(SET_USER_ID | SET_GROUP_ID),
        _ => mode_without_set_id(item),
    }
}

/// Checks that the flags of an inode allow attributes to be set. Setting nothing is always allowed.
/// Setting only mtime and ctime is allowed for a write-back cache that reports an earlier change:
/// data was appended, or the inode became immutable after the change.
fn check_settable(inode: &Inode, set: &SetAttributes) -> Result<()> {
    let item = inode.item();
    let was_let_in = |at: Timestamp| {
        let is_immutable = item.flags.contains(InodeFlags::IMMUTABLE);
        !is_immutable || at <= item.ctime
    };
    let others = SetAttributes { mtime: None, ctime: None, ..*set };
    match (set.mtime, set.ctime) {
        _ if others != SetAttributes::default() => check_mutable(inode),
        (None, _) => Ok(()),
        (Some(_), Some(at)) if was_let_in(at) => Ok(()),
        _ => check_mutable(inode),
    }
}

/// Returns the new flags of an inode.
fn new_flags(item: &InodeItem, flags: InodeFlags) -> Result<InodeFlags> {
    let mut flags = flags & SETTABLE;
    if item.kind != FileKind::Directory {
        flags.remove(InodeFlags::DIRSYNC);
    }
    if flags.contains(InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS) {
        return Err(Error::Invalid("both to be compressed and not"));
    }
    // As in Linux: not both at once, nor a change from one to the other.
    let in_place = InodeFlags::NODATACOW;
    if flags.contains(in_place | InodeFlags::COMPRESS)
        || item.flags.contains(in_place) && flags.intersects(property::FLAGS)
        || flags.contains(in_place) && item.flags.intersects(property::FLAGS)
    {
        return Err(Error::Invalid("to be compressed and overwritten in place"));
    }
    if item.kind == FileKind::Regular {
        let in_place = flags.contains(InodeFlags::NODATACOW);
        if item.size > 0 && in_place != item.flags.contains(InodeFlags::NODATACOW) {
            return Err(Error::Invalid("how a file that is not empty is overwritten"));
        }
        // A file that is overwritten in place has no checksums; others may lack them, too.
        let is_unsummed = match item.size {
            0 => in_place,
            _ => item.flags.contains(InodeFlags::NODATASUM),
        };
        flags.set(InodeFlags::NODATASUM, is_unsummed);
    }
    Ok((item.flags - SETTABLE) | flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::testing::item;

    #[test]
    fn set_group_id_is_removed_if_group_executes() {
        let left = |kind: FileKind, mode: u32| {
            let item = InodeItem { mode: kind.to_mode() | mode, ..item(kind) };
            mode_without_set_id(&item) & PERMISSIONS
        };
        for (before, after) in [
            (0o6755, 0o0755),
            (0o6745, 0o2745),
            (0o4644, 0o0644),
            (0o2711, 0o0711),
            (0o1777, 0o1777),
        ] {
            assert_eq!(left(FileKind::Regular, before), after);
            assert_eq!(left(FileKind::Directory, before), before);
        }
    }

    #[test]
    fn set_group_id_without_execute_is_removed_by_write_of_stranger() {
        let left = |kind: FileKind, mode: u32, writer| {
            let item = InodeItem { mode: kind.to_mode() | mode, ..item(kind) };
            mode_after_write(&item, writer) & PERMISSIONS
        };
        for (before, by_member, by_stranger) in
            [(0o6755, 0o0755, 0o0755), (0o6745, 0o2745, 0o0745), (0o1666, 0o1666, 0o1666)]
        {
            assert_eq!(left(FileKind::Regular, before, Membership::Member), by_member);
            assert_eq!(left(FileKind::Regular, before, Membership::Stranger), by_stranger);
            assert_eq!(left(FileKind::Directory, before, Membership::Stranger), before);
        }
    }
}
