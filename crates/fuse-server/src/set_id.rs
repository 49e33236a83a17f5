//! Clears set-id bits for a caller that changes a file.

use userbtrfs_engine::api::{Inode, InodeFlags, Membership, Metadata};
use userbtrfs_fuse::{Caller, Errno};

use crate::errno;
use crate::rights;

const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o0010;

/// Clears the set-id bits of a file, unless it is immutable. Returns whether there were any.
pub(crate) fn drop_set_id(inode: &Inode, caller: &Caller) -> Result<bool, Errno> {
    let metadata = inode.metadata().map_err(errno)?;
    if metadata.flags.contains(InodeFlags::IMMUTABLE) {
        Err(Errno::PERM)
    } else {
        inode.drop_set_id(membership(caller, &metadata)).map_err(errno)
    }
}

/// Returns whether a caller belongs to the group of an inode, as far as its set-id bits depend on
/// that.
pub(crate) fn membership(caller: &Caller, metadata: &Metadata) -> Membership {
    let depends = metadata.mode & (SET_GROUP_ID | GROUP_EXECUTES) == SET_GROUP_ID;
    if depends && !rights::keeps_set_group_id(caller, metadata.gid) {
        Membership::Stranger
    } else {
        Membership::Member
    }
}
