//! Attributes and xattrs.

use rustix::io::Errno;

use crate::manifest::{Bytes, Kind, Mode};
use crate::operation::{Attributes, Object, Operation, XattrKind};

use super::inode::{GROUP_EXECUTES, Inode, NOCOW, Node, SET_GROUP_ID, SET_USER_ID};
use super::{Model, Outcome};

/// Inode flags that can be set (`linux/fs.h`): sync, nodump, noatime, dirsync, nocow.
const FLAGS: u32 = 0x8 | 0x40 | 0x80 | FS_DIRSYNC_FL | NOCOW;
/// For directories only.
const FS_DIRSYNC_FL: u32 = 0x1_0000;

/// The longest name of an xattr, in bytes.
const XATTR_NAME_MAX: usize = 255;
/// The maximum length of the value of an xattr on any filesystem, in bytes.
const XATTR_VALUE_MAX: usize = 65536;
/// The namespaces of xattrs.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

impl Model {
    pub(super) fn apply_to_object(&mut self, object: &Object, operation: &Operation) -> Outcome {
        let id = self.object(object)?;
        let xattr_max = Self::xattr_max(self.node_size);
        let is_read_only = self.is_read_only(id);
        let inode = self.get(id);
        match operation {
            Operation::Setattr { attributes, .. } => {
                set_attributes(inode, attributes, is_read_only)
            }
            Operation::SetFlags { flags, .. } => set_flags(inode, *flags, is_read_only),
            Operation::SetXattr { name, value, kind, .. } => {
                let value = value.as_slice();
                check_xattr(inode, name, value.len(), is_read_only)?;
                set_xattr(inode, name, value, *kind, xattr_max)
            }
            Operation::RemoveXattr { name, .. } => {
                check_xattr(inode, name, 0, is_read_only)?;
                inode.xattrs.remove(name).map(drop).ok_or(Errno::NODATA)
            }
            _ => unreachable!("an operation on an object"),
        }
    }
}

fn set_xattr(
    inode: &mut Inode,
    name: &Bytes,
    value: &[u8],
    kind: XattrKind,
    max: usize,
) -> Outcome {
    if name.as_slice().len() + value.len() > max {
        return Err(Errno::NOSPC);
    }
    match (kind, inode.xattrs.contains_key(name)) {
        (XattrKind::Create, true) => return Err(Errno::EXIST),
        (XattrKind::Replace, false) => return Err(Errno::NODATA),
        _ => {}
    }
    inode.xattrs.insert(name.clone(), value.into());
    Ok(())
}

/// Fails if such an inode cannot have an xattr with this name and a value of this length.
fn check_xattr(inode: &Inode, name: &Bytes, length: usize, is_read_only: bool) -> Outcome {
    let name = name.as_slice();
    if !(1..=XATTR_NAME_MAX).contains(&name.len()) {
        return Err(Errno::RANGE);
    }
    if length > XATTR_VALUE_MAX {
        return Err(Errno::TOOBIG);
    }
    let has_user = matches!(inode.node.kind(), Kind::File | Kind::Dir);
    if name.starts_with(b"user.") && !has_user {
        return Err(Errno::PERM);
    }
    if name.starts_with(b"user.") && is_read_only {
        return Err(Errno::ROFS);
    }
    // Linux checks permissions before it looks for the namespace, unless it is one of its own.
    let is_checked = has_user || inode.node.kind() == Kind::Symlink;
    let is_foreign = !name.starts_with(b"system.");
    match NAMESPACES.iter().find_map(|space| name.strip_prefix(*space)) {
        None if is_read_only && is_checked && is_foreign => Err(Errno::ROFS),
        None => Err(Errno::OPNOTSUPP),
        Some(b"") => Err(Errno::INVAL),
        Some(_) if is_read_only => Err(Errno::ROFS),
        Some(_) => Ok(()),
    }
}

fn set_attributes(inode: &mut Inode, attributes: &Attributes, is_read_only: bool) -> Outcome {
    let Attributes { mode, uid, gid, atime, mtime } = attributes;
    if mode.is_some() && inode.node.kind() == Kind::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    if is_read_only && *attributes != Attributes::default() {
        return Err(Errno::ROFS);
    }
    if (uid.is_some() || gid.is_some()) && !inode.is_dir() {
        inode.mode = without_set_id(inode.mode);
    }
    inode.uid = uid.unwrap_or(inode.uid);
    inode.gid = gid.unwrap_or(inode.gid);
    inode.mode = mode.unwrap_or(inode.mode);
    inode.atime = atime.or(inode.atime);
    inode.mtime = mtime.or(inode.mtime);
    Ok(())
}

/// Returns the mode after a change of owner. Set-group-id without group execute permission once
/// meant mandatory locking, and is kept.
fn without_set_id(mode: Mode) -> Mode {
    let group = if mode.bits() & GROUP_EXECUTES != 0 { SET_GROUP_ID } else { 0 };
    Mode::new(mode.bits() & !(SET_USER_ID | group))
}

fn set_flags(inode: &mut Inode, flags: u32, is_read_only: bool) -> Outcome {
    inode.node.check_opening()?;
    if is_read_only {
        return Err(Errno::ROFS);
    }
    if flags & !FLAGS != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    inode.flags = match &inode.node {
        // A file with content keeps its data checksummed or not, so the flag does not change.
        Node::File(content) if content.size() > 0 => {
            flags & !FS_DIRSYNC_FL & !NOCOW | inode.flags & NOCOW
        }
        Node::File(_) => flags & !FS_DIRSYNC_FL,
        _ => flags,
    };
    Ok(())
}
