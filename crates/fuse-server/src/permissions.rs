//! Checks the permissions of an inode for a caller, as the kernel does for system calls on names.
//!
//! 1. Only ioctls need this: for everything else the kernel has checked already.
//! 2. A write is refused first for the filesystem (EROFS), then for the flags of the inode (EPERM),
//!    for its subvolume (EROFS), and last by its access list (EACCES).

use userbtrfs_engine::acl::{self, Accessor, Acl, Owner};
use userbtrfs_engine::api::{Error, Inode, InodeFlags, Metadata};
use userbtrfs_fuse::{Caller, Errno};

use crate::errno;
use crate::rights;

/// The permissions to read, to write, and to search a directory.
pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;
pub(crate) const SEARCH: u16 = 1;

/// The bit of a directory in which only owners may remove names.
const STICKY: u32 = 0o1000;

/// Fails unless the caller has all permissions in `wanted` on an inode.
pub(crate) fn check(caller: &Caller, inode: &Inode, wanted: u16) -> Result<(), Errno> {
    let metadata = inode.metadata().map_err(errno)?;
    if wanted & WRITE != 0 {
        check_writable(inode, &metadata)?;
    }
    if rights::overrides_permissions(caller) || grants(caller, inode, &metadata, wanted)? {
        Ok(())
    } else {
        Err(Errno::ACCESS)
    }
}

/// Fails unless the caller may remove the name of `child` from a directory.
pub(crate) fn check_removal(caller: &Caller, dir: &Inode, child: &Inode) -> Result<(), Errno> {
    check(caller, dir, WRITE | SEARCH)?;
    let within = dir.metadata().map_err(errno)?;
    let removed = child.metadata().map_err(errno)?;
    let is_owner = || rights::owns(caller, removed.uid) || caller.uid == within.uid;
    let is_sticky = within.mode & STICKY != 0;
    let fixed = InodeFlags::APPEND | InodeFlags::IMMUTABLE;
    let is_fixed = within.flags.contains(InodeFlags::APPEND) || removed.flags.intersects(fixed);
    if is_fixed || (is_sticky && !is_owner()) { Err(Errno::PERM) } else { Ok(()) }
}

fn check_writable(inode: &Inode, metadata: &Metadata) -> Result<(), Errno> {
    let filesystem = inode.filesystem();
    if !filesystem.is_writable() {
        return Err(Errno::ROFS);
    }
    if metadata.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Errno::PERM);
    }
    let subvolume = filesystem.subvolume(inode.id().subvolume).map_err(errno)?;
    if subvolume.is_read_only() { Err(Errno::ROFS) } else { Ok(()) }
}

fn grants(caller: &Caller, inode: &Inode, metadata: &Metadata, wanted: u16) -> Result<bool, Errno> {
    let stored = match inode.xattr(acl::ACCESS) {
        Err(Error::NoAttribute) => None,
        stored => Acl::parse(&stored.map_err(errno)?),
    };
    let acl = stored.unwrap_or_else(|| Acl::of_mode(metadata.mode));
    let accessor = Accessor { user: caller.uid, groups: rights::groups(caller) };
    let owner = Owner { user: metadata.uid, group: metadata.gid };
    Ok(acl.grants(&accessor, owner, wanted))
}
