//! Handles: the right to change trees in the running transaction.

use std::cell::{Cell, RefCell};

use userbtrfs_btree::{Edit, RefChange, Tree};
use userbtrfs_format::TreeId;

use super::state::{JoinKind, TransactionGuard};
use super::writeout::BackgroundWriteout;
use crate::error::Result;
use crate::manager::TransactionManager;
use crate::space;
use crate::space::file_data::FileExtentRef;

/// The space that a byte of changes in memory can cost: see [`Handle::max_space_for`].
const COST_OF_BYTE: u64 = 8;
/// The space that a few changes can cost in any case, in items.
const COST_OF_FEW: u64 = 64;

/// The purpose of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// A thread that waits for the device meanwhile: for a log commit
    /// ([`TransactionManager::sync_log`]), for leaves that are written before the commit
    /// ([`Handle::start_writeout`]), or to repair mirrors.
    Writing,
    /// A change on behalf of a caller. It does not wait for the device, except to read.
    Operation,
    /// The completion of written data, for which operations may wait.
    Finish,
}

impl From<HandleKind> for JoinKind {
    fn from(kind: HandleKind) -> Self {
        match kind {
            HandleKind::Writing => Self::Writing,
            HandleKind::Operation => Self::Operation,
            HandleKind::Finish => Self::Finish,
        }
    }
}

/// Membership in a transaction, which cannot be handed over to be written while the handle exists;
/// a thread has at most one.
pub struct Handle<'a> {
    pub(super) transactions: &'a TransactionManager,
    transaction_guard: TransactionGuard<'a>,
    /// The number of items that were changed under it.
    changed: Cell<u64>,
    /// Leaves that are being written before the commit.
    pub(super) writeout: RefCell<Option<BackgroundWriteout>>,
}

impl<'a> Handle<'a> {
    pub(crate) fn new(
        transactions: &'a TransactionManager,
        transaction_guard: TransactionGuard<'a>,
    ) -> Self {
        Self {
            transactions,
            transaction_guard,
            changed: Cell::new(0),
            writeout: RefCell::new(None),
        }
    }

    /// The number of the transaction.
    pub fn generation(&self) -> u64 {
        self.transaction_guard.generation()
    }

    /// Changes items of a tree; the keys of `edits` ascend strictly.
    ///
    /// If it fails, part of the changes may be made: unless the caller can handle that, it must
    /// fail the filesystem ([`TransactionManager::fail`]).
    pub fn apply<E: Edit>(&self, tree: &Tree, edits: &mut [E]) -> Result<()> {
        self.changed.set(self.changed.get() + edits.len() as u64);
        Ok(tree.apply(self.transactions.tree_roots().store(), self.transactions, edits)?)
    }

    /// Adds the first reference of a file to a new extent: all of what
    /// [`TransactionManager::allocate_data`] returned.
    ///
    /// From now on the references of the extent are counted: its space is freed when none is left,
    /// after the commit that records that. Its checksums are added under the same handle.
    pub fn allocated_data(&self, first: &FileExtentRef) {
        self.transactions.refs.allocated_data(first.logical, first.len, first.backref());
    }

    /// Adds a reference of a file to a counted extent, for another item of the file.
    pub fn add_file_extent(&self, reference: &FileExtentRef) {
        self.change_file_extent(true, reference);
    }

    /// Drops a reference of a file to a counted extent.
    pub fn drop_file_extent(&self, reference: &FileExtentRef) {
        self.change_file_extent(false, reference);
    }

    fn change_file_extent(&self, add: bool, reference: &FileExtentRef) {
        let (extent, backref) = (reference.extent(), reference.backref());
        self.transactions.refs.change(&RefChange { add, extent, backref });
    }

    /// Returns the most space that all changes together can cost that take `bytes` in memory, and
    /// so about half of that in leaves: each existing block is copied, and each new leaf is at
    /// least a quarter full; some blocks are added, since there is no part of one.
    pub fn max_space_for(&self, bytes: u64) -> u64 {
        let copied = self.transactions.space.usage(space::SpaceKind::Metadata).allocated;
        let some =
            space::bytes_for_items(COST_OF_FEW, self.transactions.volume().geometry().nodesize);
        copied.saturating_add(some).saturating_add(bytes.saturating_mul(COST_OF_BYTE))
    }

    /// Records that a subvolume changed: the commit updates the times in its root item.
    pub fn subvolume_changed(&self, id: TreeId) {
        self.transactions.changed.lock().touch(id);
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.transactions.high_water.changed(self.changed.get());
    }
}
