//! Changes of files: their extents and sizes.
//!
//! 1. Extents and the attributes that depend on them, size and bytes, change together, so that what
//!    is flushed is consistent.
//! 2. A deleted file does not change any more: a later change fails with
//!    [`crate::error::Error::NoInode`].

use userbtrfs_format::InodeFlags;
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{Handle, HandleKind, Reservation};

use crate::error::{InodeId, Result};
use crate::inode::incore::extent_map::{ExtentMap, ExtentMapKind};
use crate::inode::incore::inode::State;
use crate::inode::ops::operation::{Operation, TxnHandle};
use crate::inode::pending::extents::reference;
use crate::inode::{Inode, Inodes};

/// A change of a file in the running transaction. The state of the inode is locked: no waiting and
/// no I/O meanwhile.
pub(crate) struct FileChange<'a> {
    operation: &'a Operation<'a>,
    id: InodeId,
    state: &'a mut State,
}

/// Changes a file; returns [`crate::error::Error::NoInode`] if it is deleted. The reservation, of
/// metadata, is kept until the change is flushed.
pub(crate) fn change_file(
    inodes: &Inodes,
    inode: &Arc<Inode>,
    kind: HandleKind,
    reservation: Option<Reservation>,
    change: impl FnOnce(&mut FileChange<'_>),
) -> Result<()> {
    change_file_by(&Operation::begin_as(inodes, kind)?, inode, reservation, change)
}

/// Like [`change_file`], with a transaction handle of the caller.
pub(crate) fn change_file_in(
    inodes: &Inodes,
    handle: &Handle<'_>,
    inode: &Arc<Inode>,
    reservation: Option<Reservation>,
    change: impl FnOnce(&mut FileChange<'_>),
) -> Result<()> {
    let operation = Operation::begin_in(inodes, TxnHandle::Before(handle));
    change_file_by(&operation, inode, reservation, change)
}

impl FileChange<'_> {
    /// Replaces the content between two offsets. `fresh` space was just allocated: this is the
    /// first reference to it.
    pub(crate) fn put(&mut self, start: u64, end: u64, kind: ExtentMapKind, fresh: bool) {
        count_reference(self.operation, self.id, start, &kind, fresh);
        put_extent(self.operation, self.id, self.state, ExtentMap { start, end, kind });
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

    /// Sets the flag that the data does not become smaller when it is compressed, unless the flag
    /// that asks for compression is set.
    pub(crate) fn set_incompressible(&mut self) {
        let flags = &mut self.state.item.flags;
        flags.set(
            InodeFlags::NOCOMPRESS,
            flags.contains(InodeFlags::NOCOMPRESS) || !flags.contains(InodeFlags::COMPRESS),
        );
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

fn change_file_by(
    operation: &Operation<'_>,
    inode: &Arc<Inode>,
    reservation: Option<Reservation>,
    change: impl FnOnce(&mut FileChange<'_>),
) -> Result<()> {
    let mut state = inode.living()?;
    let id = inode.id();
    operation.change_state(inode, &mut state, |state| {
        change(&mut FileChange { operation, id, state });
    });
    drop(state);
    operation.keep_promised(reservation);
    Ok(())
}

/// Counts the reference of a range that is put into a file.
fn count_reference(
    operation: &Operation<'_>,
    inode: InodeId,
    start: u64,
    kind: &ExtentMapKind,
    fresh: bool,
) {
    let Some(extent) = kind.on_disk() else {
        assert!(!fresh, "only extents are allocated");
        return;
    };
    let count = if fresh { Handle::allocated_data } else { Handle::add_file_extent };
    count(&operation.handle, &reference(inode, start, extent));
}

/// Puts a range into a file. Its own reference is already counted.
pub(in crate::inode) fn put_extent(
    operation: &Operation<'_>,
    inode: InodeId,
    state: &mut State,
    extent: ExtentMap,
) {
    state.extents_version += 1;
    state.changed.insert(operation.generation(), extent.start..extent.end);
    let replaced = state.pending().put_extent(extent);
    for replaced in replaced {
        replaced.count(&operation.handle, inode);
    }
}

/// Drops the pending extents of a file, with their references.
pub(in crate::inode) fn drop_delayed_extents(
    operation: &Operation<'_>,
    inode: InodeId,
    state: &mut State,
) {
    let replaced = state.pending().extents.drain();
    for replaced in replaced {
        replaced.count(&operation.handle, inode);
    }
}

#[cfg(test)]
mod tests;
