//! Hard links.

use userbtrfs_format::FileKind;
use userbtrfs_sync::Arc;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::lookup::check_new_name;
use crate::inode::{Inode, Inodes, check_mutable};

/// Items that change: inode, ref, entry by name and by place, the directory's inode, the list of
/// inodes without a name.
const LINK_ITEMS: u64 = 6;

/// The most names that an inode may have.
const LINKS_MAX: u32 = 65535;

impl Inodes {
    /// Adds a name to an inode that is not a directory, in a directory of the same subvolume.
    pub(crate) fn link(&self, inode: InodeId, dir: InodeId, name: &[u8]) -> Result<()> {
        check_new_name(name)?;
        if inode.subvolume != dir.subvolume {
            return Err(Error::CrossDevice);
        }
        self.log_tracker.wait_for_pause();
        let dir = self.directory_to_change(dir)?;
        let inode = self.inode_to_change(inode)?;
        let reservation = self.reserve_for_name(LINK_ITEMS)?;
        let _entries = dir.lock_entries();
        let _operation = inode.lock_operation();
        self.check_absent(&dir, name)?;
        check_mutable(&inode)?;
        check_linkable(&inode)?;
        self.check_room_for_entry(&dir, name)?;
        let reservation = reservation.ok_or(Error::NoSpace)?;
        let place = self.place_of_ref(&inode, dir.number(), name)?;
        let index = self.take_index(&dir)?;
        let operation = self.begin()?;
        let entry = operation.entry(index, name, &inode);
        operation.add_name(&inode, &dir, &entry, place);
        operation.add_entry(&dir, &entry);
        operation.hold(&dir, Some(reservation));
        Ok(())
    }
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
