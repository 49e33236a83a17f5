//! Handles: the right to change trees in the running transaction.

use std::cell::{Cell, RefCell};

use userbtrfs_btree::{Edit, RefChange, Tree};
use userbtrfs_format::TreeId;

use super::state::{JoinKind, TransactionGuard};
use super::writeout::BackgroundWriteout;
use crate::context::TransactionContext;
use crate::error::Result;
use crate::refs::FileExtentRef;
use crate::space;

/// The space that a byte of changes in memory can cost: see [`Handle::max_space_for`].
const COST_OF_BYTE: u64 = 8;
/// The space that a few changes can cost in any case, in items.
const COST_OF_FEW: u64 = 64;

/// The purpose of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// A thread that waits for the device meanwhile: for a log commit
    /// ([`sync_log`](crate::TransactionManager::sync_log)), for leaves that are written before the
    /// commit ([`Handle::start_writeout`]), or to repair mirrors.
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
    context: &'a TransactionContext,
    transaction_guard: TransactionGuard<'a>,
    /// The number of items that were changed under it.
    changed: Cell<u64>,
    /// Leaves that are being written before the commit.
    writeout: RefCell<BackgroundWriteout>,
}

impl<'a> Handle<'a> {
    /// Joins the running transaction; waits while it is being closed.
    #[track_caller]
    pub(crate) fn join(context: &'a TransactionContext, kind: HandleKind) -> Result<Self> {
        Ok(Self::new(context, context.state.join(kind.into())?))
    }

    /// Returns the handle of a thread that is in a transaction already.
    pub(crate) fn new(
        context: &'a TransactionContext,
        transaction_guard: TransactionGuard<'a>,
    ) -> Self {
        let writeout = RefCell::default();
        Self { context, transaction_guard, changed: Cell::new(0), writeout }
    }

    pub(crate) fn context(&self) -> &'a TransactionContext {
        self.context
    }

    /// The number of the transaction.
    pub fn generation(&self) -> u64 {
        self.transaction_guard.generation()
    }

    /// Changes items of a tree; the keys of `edits` ascend strictly.
    ///
    /// If it fails, part of the changes may be made: unless the caller can handle that, it must
    /// fail the filesystem ([`fail`](crate::TransactionManager::fail)).
    pub fn apply<E: Edit>(&self, tree: &Tree, edits: &mut [E]) -> Result<()> {
        self.changed.set(self.changed.get() + edits.len() as u64);
        Ok(tree.apply(self.context.tree_roots.store(), self.context, edits)?)
    }

    /// Adds the first reference of a file to a new extent: all of what
    /// [`allocate_data`](crate::TransactionManager::allocate_data) returned.
    ///
    /// From now on the references of the extent are counted: its space is freed when none is left,
    /// after the commit that records that. Its checksums are added under the same handle.
    pub fn allocated_data(&self, first: &FileExtentRef) {
        self.context.refs.allocated_data(first.logical, first.len, first.backref());
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
        let extent = reference.extent();
        let backref = reference.backref();
        self.context.refs.change(&RefChange { add, extent, backref });
    }

    /// Returns the most space that all changes together can cost that take `bytes` in memory, and
    /// so about half of that in leaves: each existing block is copied, and each new leaf is at
    /// least a quarter full; some blocks are added, since there is no part of one.
    pub fn max_space_for(&self, bytes: u64) -> u64 {
        let copied = self.context.space.usage(space::SpaceKind::Metadata).allocated;
        let some = space::bytes_for_items(COST_OF_FEW, self.context.nodesize());
        copied.saturating_add(some).saturating_add(bytes.saturating_mul(COST_OF_BYTE))
    }

    /// Records that a subvolume changed: the commit updates the times in its root item.
    pub fn subvolume_changed(&self, id: TreeId) {
        self.context.changed.lock().touch(id);
    }

    /// Starts to write leaves that were changed longest ago, if more are unwritten than the bound
    /// allows. They can be changed again, at the cost of a copy. To be called between the parts of
    /// a merge.
    pub fn start_writeout(&self) -> Result<()> {
        self.writeout.borrow_mut().start(self.context)
    }

    /// Waits for the leaves that are being written.
    pub(crate) fn finish_writeout(&self) -> Result<()> {
        self.writeout.borrow_mut().finish(self.context)
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.context.high_water.changed(self.changed.get());
    }
}
