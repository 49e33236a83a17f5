//! Handles: the right to change trees in the running transaction.

use userbtrfs_btree::{Edit, Extent, RefChange, Tree, User};
use userbtrfs_format::{Logical, TreeId};

use super::gate::{Kind, Ticket};
use crate::error::Result;
use crate::ledger::Ledger;

/// As what a transaction is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// A change on behalf of a caller.
    Operation,
    /// The completion of written data, for which operations may wait.
    Finish,
}

impl From<HandleKind> for Kind {
    fn from(kind: HandleKind) -> Self {
        match kind {
            HandleKind::Operation => Self::Operation,
            HandleKind::Finish => Self::Finish,
        }
    }
}

/// Membership in a transaction. While it lives the transaction cannot be handed over to its
/// writing; a thread has one at most.
pub struct Handle<'a> {
    ledger: &'a Ledger,
    ticket: Ticket<'a>,
}

impl<'a> Handle<'a> {
    pub(crate) fn new(ledger: &'a Ledger, ticket: Ticket<'a>) -> Self {
        Self { ledger, ticket }
    }

    /// The number of the transaction.
    pub fn generation(&self) -> u64 {
        self.ticket.generation()
    }

    /// Changes items of a tree; the keys of `edits` ascend strictly.
    ///
    /// Where it fails, part of the changes may be made: unless the caller can live with that, it
    /// must fail the filesystem ([`Ledger::fail`]).
    pub fn apply<E: Edit>(&self, tree: &Tree, edits: &mut [E]) -> Result<()> {
        Ok(tree.apply(self.ledger.forest().store(), self.ledger, edits)?)
    }

    /// A file no longer refers to an extent of `len` bytes on disk; `offset` is where in the file
    /// the whole extent would start.
    pub fn drop_file_extent(
        &self,
        root: TreeId,
        inode: u64,
        offset: u64,
        logical: Logical,
        len: u64,
    ) {
        let (extent, user) = (Extent::Data { logical, len }, User::File { root, inode, offset });
        self.ledger.refs.change(&RefChange { add: false, extent, user });
    }

    /// Something in a subvolume changed: its root item will say when.
    pub fn subvolume_changed(&self, id: TreeId) {
        self.ledger.changed.lock().touch(id);
    }
}
