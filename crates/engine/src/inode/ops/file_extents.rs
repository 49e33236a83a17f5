//! Changes of files: their extents and sizes.
//!
//! 1. Extents and the attributes that depend on them, size and bytes, change together, so that what
//!    is flushed is consistent.
//! 2. A deleted file does not change any more: a later change fails with [`Error::NoInode`].

use std::sync::Weak;

use userbtrfs_format::{FileKind, InodeFlags};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{Handle, HandleKind, Reservation};

use crate::error::{Error, InodeId, Result};
use crate::inode::incore::extent_map::{ExtentMap, ExtentMapKind};
use crate::inode::incore::inode::State;
use crate::inode::ops::operation::{Operation, TxnHandle};
use crate::inode::pending::extents::reference;
use crate::inode::{Inode, Inodes};

/// Events of inodes, for the component that keeps the data of files in memory.
pub(crate) trait InodeEvents: Send + Sync {
    /// Called after a file was deleted: it cannot be changed any more. No lock is held.
    fn gone(&self, id: InodeId);
}

/// A change of a file in the running transaction. The state of the inode is locked: no waiting and
/// no I/O meanwhile.
pub(crate) struct FileChange<'a> {
    operation: &'a Operation<'a>,
    id: InodeId,
    state: &'a mut State,
}

impl Inodes {
    /// Sets, once, the receiver of inode events.
    pub(crate) fn watch(&self, watch: Weak<dyn InodeEvents>) {
        assert!(self.watch.set(watch).is_ok(), "named once");
    }

    /// Notifies the receiver that a file was deleted. No lock is held.
    pub(in crate::inode) fn tell_gone(&self, inode: &Inode) {
        let watch = self.watch.get().and_then(Weak::upgrade);
        if let Some(watch) = watch.filter(|_| inode.kind() == FileKind::Regular) {
            watch.gone(inode.id());
        }
    }

    /// Returns a file that is to be changed, or only to be appended to. The caller holds no lock.
    pub(crate) fn file_to_change(&self, id: InodeId, append: bool) -> Result<Arc<Inode>> {
        let inode = self.inode_to_change(id)?;
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

    /// Changes a file, or returns [`Error::NoInode`] if it is deleted. The reservation, of
    /// metadata, is kept until the change is flushed.
    pub(crate) fn change_file(
        &self,
        inode: &Arc<Inode>,
        kind: HandleKind,
        reservation: Option<Reservation>,
        change: impl FnOnce(&mut FileChange<'_>),
    ) -> Result<()> {
        self.begin_as(kind)?.change_file(inode, reservation, change)
    }

    /// Like [`Inodes::change_file`], with a transaction handle of the caller.
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
    /// Replaces the content between two offsets. `fresh` space was just allocated: this is the
    /// first reference to it.
    pub(crate) fn put(&mut self, start: u64, end: u64, kind: ExtentMapKind, fresh: bool) {
        self.operation.count(self.id, start, &kind, fresh);
        self.operation.put_extent(self.id, self.state, ExtentMap { start, end, kind });
    }

    /// Records that the data of an extent was overwritten in place: a later sync must flush the
    /// device, although there is nothing new to log.
    pub(crate) fn overwritten(&mut self) {
        self.state.extents_version += 1;
    }

    /// Changes the number of bytes in extents.
    pub(crate) fn add_bytes(&mut self, by: i64) {
        let bytes = self.state.item.nbytes.saturating_add_signed(by);
        self.state.item.nbytes = bytes;
    }

    /// Returns the size.
    pub(crate) fn size(&self) -> u64 {
        self.state.item.size
    }

    /// Sets the size; the size that may be written to the tree does not grow.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.state.set_size(size);
    }

    /// Truncates the file. The size that may be written to the tree stays until
    /// [`FileChange::set_disk_size`] reduces it, when the extents beyond the new end are removed.
    pub(crate) fn cut_size(&mut self, size: u64) {
        self.state.cut_size(size);
    }

    /// Sets the flag that the file has, or had, preallocated extents.
    pub(crate) fn set_preallocated(&mut self) {
        self.state.item.flags.insert(InodeFlags::PREALLOC);
    }

    /// Returns the size that may be written to the tree.
    pub(crate) fn disk_size(&self) -> u64 {
        self.state.disk_size()
    }

    /// Sets the size that may be written to the tree: at most the size, or less than before.
    pub(crate) fn set_disk_size(&mut self, size: u64) {
        if size != self.state.disk_size() {
            self.state.changed.turn_to(self.operation.generation());
        }
        self.state.set_disk_size(size);
    }

    /// Records a change of the content, with the current time.
    pub(crate) fn touch(&mut self) {
        self.state.touch(Some(self.operation.now));
    }

    /// Records a change of the content whose times the caller sets.
    pub(crate) fn touch_untimed(&mut self) {
        self.state.touch(None);
    }

    /// Returns the transaction handle.
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

    /// Counts the reference of a range that is put into a file.
    fn count(&self, inode: InodeId, start: u64, kind: &ExtentMapKind, fresh: bool) {
        let Some(extent) = kind.on_disk() else {
            assert!(!fresh, "only extents are allocated");
            return;
        };
        let count = if fresh { Handle::allocated_data } else { Handle::add_file_extent };
        count(&self.handle, &reference(inode, start, extent));
    }

    /// Puts a range into a file. Its own reference is already counted.
    pub(in crate::inode) fn put_extent(
        &self,
        inode: InodeId,
        state: &mut State,
        extent: ExtentMap,
    ) {
        state.extents_version += 1;
        state.changed.insert(self.generation(), extent.start..extent.end);
        let replaced = state.pending().put_extent(extent);
        for replaced in replaced {
            replaced.count(&self.handle, inode);
        }
    }

    /// Drops the pending extents of a file, with their references.
    pub(in crate::inode) fn drop_extents(&self, inode: InodeId, state: &mut State) {
        let replaced = state.pending().extents.drain();
        for replaced in replaced {
            replaced.count(&self.handle, inode);
        }
    }
}

#[cfg(test)]
mod tests;
