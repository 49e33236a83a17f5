//! Snapshots, and changes of subvolumes.

use userbtrfs_format::{RootFlags, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::subvolume::{self, NewSnapshot};
use userbtrfs_transaction::{
    Error as TransactionError, HandleKind, Reservation, TransactionManager,
};
use uuid::Uuid;

use crate::clock;
use crate::data::FileOps;
use crate::error::{Error, InodeId, Result};
use crate::inode::{Namespace, ops};

/// Items that the commit changes for a snapshot: two root items, references both ways, two of the
/// UUID tree.
const SNAPSHOT_ITEMS: u64 = 8;

/// How often space for a snapshot is looked for: a commit may free some.
const TRIES: usize = 3;

/// A filesystem that is open for writing.
#[derive(Clone, Copy)]
pub(crate) struct Writable<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) writer: &'a FileOps,
    pub(crate) transactions: &'a Arc<TransactionManager>,
}

impl Writable<'_> {
    /// Makes a snapshot, durable when this returns, of all that was written before the call.
    pub(crate) fn snapshot(
        self,
        source: TreeId,
        dir: InodeId,
        name: &[u8],
        read_only: bool,
    ) -> Result<TreeId> {
        let transactions = self.transactions;
        let root = transactions.tree_roots().root_item(source)?;
        root.filter(|_| source.is_subvolume()).ok_or(Error::NoSubvolume)?;
        // From here on data of the source is written to new extents only, none of which the
        // snapshot gets, if it is written after the commit.
        let _exclusion = transactions.space().exclude_nocow(source);
        self.writer.settle()?;
        let reservation = self.reserve_for_snapshot(source)?;
        // The directory is locked until the commit has made the snapshot, so not for longer than
        // it must be.
        transactions.wait_completed()?;
        ops::add_snapshot(self.namespace, dir, name, |id, name, add_entry| NewSnapshot {
            source,
            id,
            name,
            uuid: Uuid::new_v4(),
            created: clock::now(),
            read_only,
            reservation,
            add_entry,
        })
    }

    fn reserve_for_snapshot(self, source: TreeId) -> Result<Reservation> {
        let tree_roots = self.transactions.tree_roots();
        for _ in 0..TRIES {
            let shared = tree_roots.tree(source)?.root_len(tree_roots.store())?;
            let found = self.transactions.try_reserve_for_extents(SNAPSHOT_ITEMS, shared as u64);
            match found {
                Some(reservation) => return Ok(reservation),
                None => self.transactions.commit()?,
            }
        }
        Err(Error::NoSpace)
    }

    /// Sets whether a subvolume may be changed.
    pub(crate) fn set_read_only(self, id: TreeId, read_only: bool) -> Result<()> {
        if !read_only {
            self.write_read_only(id, false)?;
            ops::set_read_only(self.namespace, id, false);
            return Ok(());
        }
        // Changes from now on are refused, and those before are written.
        ops::set_read_only(self.namespace, id, true);
        let written = self.writer.settle().and_then(|()| self.write_read_only(id, true));
        written.inspect_err(|_| ops::set_read_only(self.namespace, id, false))
    }

    fn write_read_only(self, id: TreeId, read_only: bool) -> Result<()> {
        let set = |flags: &mut RootFlags| flags.set(RootFlags::READ_ONLY, read_only);
        self.change(|handle| subvolume::change_root_item(handle, id, |item| set(&mut item.flags)))
    }

    /// Sets the UUID that a subvolume was received with; nil if it was not received.
    pub(crate) fn set_received_uuid(self, id: TreeId, received: Uuid) -> Result<()> {
        self.change(|handle| subvolume::set_received_uuid(handle, id, received))
    }

    /// Sets the subvolume that is mounted when none is named.
    pub(crate) fn set_default(self, id: TreeId) -> Result<()> {
        self.change(|handle| subvolume::set_default(handle, id))
    }

    /// Changes a few items of the root tree and the UUID tree.
    fn change(
        self,
        change: impl FnOnce(&userbtrfs_transaction::Handle<'_>) -> Result<(), TransactionError>,
    ) -> Result<()> {
        let reservation = self.namespace.inodes().reserve(SNAPSHOT_ITEMS)?;
        let handle = self.transactions.start(HandleKind::Operation)?;
        change(&handle)?;
        ops::keep_reserved(self.namespace, &handle, reservation);
        Ok(())
    }
}
