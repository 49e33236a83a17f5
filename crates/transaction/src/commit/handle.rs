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

/// See [`Handle::most_for`].
const COST_OF_BYTE: u64 = 8;
/// Few changes cost less, as so many items.
const COST_OF_FEW: u64 = 64;

/// As what a transaction is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// Who waits for the device meanwhile: for a group of log changes
    /// ([`TransactionManager::sync_log`]), to write leaves early ([`Handle::write_early`]), or to
    /// repair copies.
    Writing,
    /// A change on behalf of a caller. It waits for no device, but for what must be read.
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

/// Membership in a transaction. While it lives the transaction cannot be handed over to its
/// writing; a thread has one at most.
pub struct Handle<'a> {
    pub(super) transactions: &'a TransactionManager,
    transaction_guard: TransactionGuard<'a>,
    /// How many items were changed under it.
    changed: Cell<u64>,
    /// Leaves that are being written early.
    pub(super) early: RefCell<Option<BackgroundWriteout>>,
}

impl<'a> Handle<'a> {
    pub(crate) fn new(
        transactions: &'a TransactionManager,
        transaction_guard: TransactionGuard<'a>,
    ) -> Self {
        Self { transactions, transaction_guard, changed: Cell::new(0), early: RefCell::new(None) }
    }

    /// The number of the transaction.
    pub fn generation(&self) -> u64 {
        self.transaction_guard.generation()
    }

    /// Changes items of a tree; the keys of `edits` ascend strictly.
    ///
    /// Where it fails, part of the changes may be made: unless the caller can live with that, it
    /// must fail the filesystem ([`TransactionManager::fail`]).
    pub fn apply<E: Edit>(&self, tree: &Tree, edits: &mut [E]) -> Result<()> {
        self.changed.set(self.changed.get() + edits.len() as u64);
        Ok(tree.apply(self.transactions.tree_roots().store(), self.transactions, edits)?)
    }

    /// A file refers to an extent that nobody referred to before: what
    /// [`TransactionManager::allocate_data`] gave, whole.
    ///
    /// From now on the extent is counted: its space comes back when nobody refers to it any more,
    /// after the commit that says so. Its checksums are added under the same handle.
    pub fn allocated_data(&self, first: &FileExtentRef) {
        self.transactions.refs.allocated_data(first.logical, first.len, first.backref());
    }

    /// A file refers to a counted extent once more: another item of its does.
    pub fn add_file_extent(&self, reference: &FileExtentRef) {
        self.change_file_extent(true, reference);
    }

    /// A file refers to a counted extent once less.
    pub fn drop_file_extent(&self, reference: &FileExtentRef) {
        self.change_file_extent(false, reference);
    }

    fn change_file_extent(&self, add: bool, reference: &FileExtentRef) {
        let (extent, backref) = (reference.extent(), reference.backref());
        self.transactions.refs.change(&RefChange { add, extent, backref });
    }

    /// The space that all changes together can cost at most that take so many bytes in memory,
    /// and so about half of that in leaves: each block there is is copied, and each new leaf is at
    /// least a quarter full; and some blocks, since there is no part of one.
    pub fn most_for(&self, bytes: u64) -> u64 {
        let copied = self.transactions.space.usage(space::SpaceKind::Metadata).allocated;
        let some =
            space::bytes_for_items(COST_OF_FEW, self.transactions.volume().geometry().nodesize);
        copied.saturating_add(some).saturating_add(bytes.saturating_mul(COST_OF_BYTE))
    }

    /// Something in a subvolume changed: its root item will say when.
    pub fn subvolume_changed(&self, id: TreeId) {
        self.transactions.changed.lock().touch(id);
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.transactions.high_water.changed(self.changed.get());
    }
}
