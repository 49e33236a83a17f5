//! Changes of files: which extents hold them, and their sizes.
//!
//! 1. Extents and the attributes that speak of them, size and bytes, change together, so that
//!    what is merged agrees.
//! 2. A file that is deleted does not change any more: whoever comes late is told.

use std::sync::Weak;

use userbtrfs_format::{FileKind, InodeFlags};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{Handle, HandleKind, Reservation};

use crate::error::{Error, InodeId, Result};
use crate::inode::incore::inode::State;
use crate::inode::ops::operation::{Operation, TxnHandle};
use crate::inode::pending::extents::{PendingExtent, PendingExtentKind, reference};
use crate::inode::{Inode, Inodes};

/// Who keeps data of files in memory.
pub(crate) trait InodeEvents: Send + Sync {
    /// A file was deleted: it takes no change any more. No lock is held.
    fn gone(&self, id: InodeId);
}

/// A change of a file in the running transaction. The state of the inode is locked: nothing is
/// awaited, read or written meanwhile.
pub(crate) struct FileChange<'a> {
    operation: &'a Operation<'a>,
    id: InodeId,
    state: &'a mut State,
}

impl Inodes {
    /// Names, once, who keeps data of files in memory.
    pub(crate) fn watch(&self, watch: Weak<dyn InodeEvents>) {
        assert!(self.watch.set(watch).is_ok(), "named once");
    }

    /// Tells of a file that was deleted. No lock is held.
    pub(in crate::inode) fn tell_gone(&self, inode: &Inode) {
        let watch = self.watch.get().and_then(Weak::upgrade);
        if let Some(watch) = watch.filter(|_| inode.kind() == FileKind::Regular) {
            watch.gone(inode.id());
        }
    }

    /// The file of a number, to be changed; or only to be added to. No lock is held.
    pub(crate) fn file_to_change(&self, id: InodeId, append: bool) -> Result<Arc<Inode>> {
        let inode = self.inode_to_change(id)?;
        let item = inode.item();
        match item.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        // What fs-verity vouches for is never written again.
        let for_good = InodeFlags::IMMUTABLE | InodeFlags::VERITY;
        let refused = if append { for_good } else { for_good | InodeFlags::APPEND };
        match item.flags.intersects(refused) {
            true => Err(Error::NotPermitted),
            false => Ok(inode),
        }
    }

    /// Changes a file. [`Error::NoInode`], and nothing done, where it is deleted. What was
    /// reserved, metadata, is held until the change is merged.
    pub(crate) fn change_file(
        &self,
        inode: &Arc<Inode>,
        kind: HandleKind,
        reservation: Option<Reservation>,
        change: impl FnOnce(&mut FileChange<'_>),
    ) -> Result<()> {
        self.begin_as(kind)?.change_file(inode, reservation, change)
    }

    /// The same, in a transaction that the caller is in.
    pub(crate) fn change_file_in(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        reservation: Option<Reservation>,
        change: impl FnOnce(&mut FileChange<'_>),
    ) -> Result<()> {
        self.begin_in(TxnHandle::Before(handle)).change_file(inode, reservation, change)
    }
}

impl FileChange<'_> {
    /// Puts something over what is there between two offsets. `fresh` space was just allocated:
    /// this is the first reference to it.
    pub(crate) fn put(&mut self, start: u64, end: u64, kind: PendingExtentKind, fresh: bool) {
        self.operation.count(self.id, start, &kind, fresh);
        self.operation.put_extent(self.id, self.state, PendingExtent { start, end, kind });
    }

    /// What an extent holds was overwritten where it is: a sync that comes after it must have it
    /// flushed, though the log has nothing new to say.
    pub(crate) fn overwritten(&mut self) {
        self.state.extents_version += 1;
    }

    /// So many bytes come to what the extents hold, or go.
    pub(crate) fn add_bytes(&mut self, by: i64) {
        let bytes = self.state.item.nbytes.saturating_add_signed(by);
        self.state.item.nbytes = bytes;
    }

    /// The size.
    pub(crate) fn size(&self) -> u64 {
        self.state.item.size
    }

    /// Sets the size; the tree may know no more of it than before.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.state.set_size(size);
    }

    /// Makes the file shorter. The tree goes on to know of what it knew, until
    /// [`FileChange::set_disk_size`] takes that back, as the extents behind the new end go.
    pub(crate) fn cut_size(&mut self, size: u64) {
        self.state.cut_size(size);
    }

    /// The file has, or had, space that was allocated before it was written.
    pub(crate) fn set_preallocated(&mut self) {
        self.state.item.flags.insert(InodeFlags::PREALLOC);
    }

    /// The size that the tree may know.
    pub(crate) fn disk_size(&self) -> u64 {
        self.state.disk_size()
    }

    /// Sets the size that the tree may know: at most the size, or less than before.
    pub(crate) fn set_disk_size(&mut self, size: u64) {
        if size != self.state.disk_size() {
            self.state.changed.turn_to(self.operation.generation());
        }
        self.state.set_disk_size(size);
    }

    /// The content changed, now; not only where it is.
    pub(crate) fn touch(&mut self) {
        self.state.touch(Some(self.operation.now));
    }

    /// The content changed, at a time that somebody else says.
    pub(crate) fn touch_untimed(&mut self) {
        self.state.touch(None);
    }

    /// The transaction.
    pub(crate) fn handle(&self) -> &Handle<'_> {
        &self.operation.handle
    }
}

impl Operation<'_> {
    fn change_file(
        &self,
        inode: &Arc<Inode>,
        reservation: Option<Reservation>,
        change: impl FnOnce(&mut FileChange<'_>),
    ) -> Result<()> {
        let (mut state, id) = (inode.living()?, inode.id());
        self.change_state(inode, &mut state, |state| {
            change(&mut FileChange { operation: self, id, state });
        });
        drop(state);
        self.keep_promised(reservation);
        Ok(())
    }

    /// Counts a reference that comes with a range put into a file.
    fn count(&self, inode: InodeId, start: u64, kind: &PendingExtentKind, fresh: bool) {
        let Some(extent) = kind.on_disk() else {
            assert!(!fresh, "only extents are allocated");
            return;
        };
        let count = if fresh { Handle::allocated_data } else { Handle::add_file_extent };
        count(&self.handle, &reference(inode, start, extent));
    }

    /// Puts a range into a file, whose own reference is counted.
    pub(in crate::inode) fn put_extent(
        &self,
        inode: InodeId,
        state: &mut State,
        extent: PendingExtent,
    ) {
        state.extents_version += 1;
        state.changed.insert(self.generation(), extent.start..extent.end);
        let replaced = state.pending().put_extent(extent);
        for replaced in replaced {
            replaced.count(&self.handle, inode);
        }
    }

    /// What waited to come into a file goes, with its references.
    pub(in crate::inode) fn drop_extents(&self, inode: InodeId, state: &mut State) {
        let replaced = state.pending().extents.drain();
        for replaced in replaced {
            replaced.count(&self.handle, inode);
        }
    }
}

#[cfg(test)]
mod tests;
