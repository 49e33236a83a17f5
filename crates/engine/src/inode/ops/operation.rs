//! A change of inodes, from the reservation to the end.
//!
//! Every operation has these steps:
//!
//! 1. reserve: the only step that may wait for space;
//! 2. lock: directories first, sorted, then the inodes named in them, sorted;
//! 3. check: every error is detected here;
//! 4. begin: join the transaction;
//! 5. change one inode after the other, each under its own state lock, which cannot fail.

use std::cell::Cell;
use std::ops::Deref;

use userbtrfs_btree::Tree;
use userbtrfs_format::{InodeFlags, Timestamp};
use userbtrfs_sync::{Arc, MutexGuard};
use userbtrfs_transaction::{FullCommitReason, Handle, HandleKind, Reservation};

use crate::clock;
use crate::error::{InodeId, Result};
use crate::inode::dir::dcache::DentryBudget;
use crate::inode::incore::inode::State;
use crate::inode::log_state::tracker::{LogTracker, NameRemoval, RemovedName};
use crate::inode::pending::delayed_items::{DelayedItems, RefIndex, SET_BYTES};
use crate::inode::{Entry, Inode, Inodes};

/// Items that change with the attributes of an inode: the inode.
pub(in crate::inode) const ATTRIBUTE_ITEMS: u64 = 1;

/// An operation in progress.
pub(in crate::inode) struct Operation<'a> {
    inodes: &'a Inodes,
    pub(in crate::inode) handle: TxnHandle<'a>,
    /// The time for all inodes that it changes.
    pub(in crate::inode) now: Timestamp,
    /// Reserved for references that are dropped when its changes are flushed.
    expecting: Cell<Option<Reservation>>,
}

/// The transaction handle of an operation.
pub(in crate::inode) enum TxnHandle<'a> {
    /// A handle that the operation started.
    Anew(Handle<'a>),
    /// A handle of the caller.
    Before(&'a Handle<'a>),
}

impl<'a> Deref for TxnHandle<'a> {
    type Target = Handle<'a>;

    fn deref(&self) -> &Handle<'a> {
        match self {
            Self::Anew(handle) => handle,
            Self::Before(handle) => handle,
        }
    }
}

impl<'a> Operation<'a> {
    /// Joins the transaction for an operation.
    pub(in crate::inode) fn begin(inodes: &'a Inodes) -> Result<Self> {
        Self::begin_as(inodes, HandleKind::Operation)
    }

    /// Joins the transaction with a handle of this kind.
    pub(in crate::inode) fn begin_as(inodes: &'a Inodes, kind: HandleKind) -> Result<Self> {
        Ok(Self::begin_in(inodes, TxnHandle::Anew(inodes.transactions()?.start(kind)?)))
    }

    /// Uses a handle on the transaction.
    pub(in crate::inode) fn begin_in(inodes: &'a Inodes, handle: TxnHandle<'a>) -> Self {
        Self { inodes, handle, now: clock::now(), expecting: Cell::default() }
    }
}

impl Operation<'_> {
    pub(in crate::inode) fn generation(&self) -> u64 {
        self.handle.generation()
    }

    /// Has each sync of this transaction commit it, for this reason.
    pub(in crate::inode) fn require_commit(&self, reason: FullCommitReason) {
        if let Some(transactions) = &self.inodes.transactions {
            transactions.require_commit(&self.handle, reason);
        }
    }

    /// Returns the flags of each new file.
    pub(in crate::inode) fn file_flags(&self) -> InodeFlags {
        self.inodes.options.file_flags
    }

    pub(in crate::inode) fn budget(&self) -> &Arc<DentryBudget> {
        &self.inodes.budget
    }

    /// Changes an inode.
    pub(in crate::inode) fn change<T>(
        &self,
        inode: &Arc<Inode>,
        change: impl FnOnce(&mut State) -> T,
    ) -> T {
        let mut state = inode.state();
        state.item.sequence = state.item.sequence.wrapping_add(1);
        self.change_state(inode, &mut state, change)
    }

    /// Changes an inode, unless it is deleted. For callers whose locks do not prevent its deletion.
    pub(in crate::inode) fn change_living(
        &self,
        inode: &Arc<Inode>,
        change: impl FnOnce(&mut State),
    ) -> Result<()> {
        let mut state = inode.living()?;
        state.item.sequence = state.item.sequence.wrapping_add(1);
        self.change_state(inode, &mut state, change);
        Ok(())
    }

    /// Changes an inode whose state is locked.
    pub(in crate::inode) fn change_state<T>(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        change: impl FnOnce(&mut State) -> T,
    ) -> T {
        let waiting = &self.inodes.waiting;
        self.begin_set(inode, state);
        let before = state.pending().bytes;
        state.item.transid = self.generation();
        let done = change(state);
        match &state.running {
            Some(pending) => waiting.grow(pending.bytes - before),
            None => waiting.shrink(before),
        }
        done
    }

    /// Creates the running set if there is none.
    fn begin_set(&self, inode: &Arc<Inode>, state: &mut State) {
        if state.running.is_none() {
            state.running = Some(Arc::new(DelayedItems::of_old()));
            self.inodes.waiting.add(inode, SET_BYTES);
        }
    }

    /// Keeps the reservation of the operation until its changes are in trees. `inode`, one of those
    /// changed, is among the delayed inodes from now on.
    pub(in crate::inode) fn hold(&self, inode: &Arc<Inode>, reservation: Option<Reservation>) {
        {
            let mut state = inode.state();
            if !state.dead {
                self.begin_set(inode, &mut state);
            }
        }
        self.keep_promised(reservation);
    }

    pub(in crate::inode) fn keep_promised(&self, reservation: Option<Reservation>) {
        self.inodes.hold(&self.handle, self.expecting.take());
        self.inodes.hold(&self.handle, reservation);
    }

    /// Tries to reserve space for references that are dropped when the change is flushed; returns
    /// true if the commit has that space.
    pub(in crate::inode) fn expects(&self, references: u64) -> bool {
        let transactions = self.inodes.transactions.as_ref();
        let expecting = transactions.and_then(|it| it.try_reserve_for_extents(0, references));
        let found = expecting.is_some();
        self.expecting.set(expecting);
        found
    }

    /// Adds a new inode with delayed items of `bytes` bytes. A caller that looked for its number
    /// earlier found nothing, and may still hold the unloaded inode.
    pub(in crate::inode) fn enter_new(
        &self,
        id: InodeId,
        tree: Arc<Tree>,
        state: State,
        bytes: usize,
    ) -> Arc<Inode> {
        let inode = Arc::new(Inode::unknown(id, tree));
        let inode = self.inodes.table.insert(inode, self.generation());
        inode.become_new(state);
        self.inodes.waiting.add(&inode, bytes);
        inode
    }

    /// Adds an entry to a directory, whose entries are locked.
    pub(in crate::inode) fn add_entry(&self, dir: &Arc<Inode>, entry: &Arc<Entry>) {
        self.change_entries(dir, [], [entry]);
    }

    /// Removes an entry from a directory, whose entries are locked.
    pub(in crate::inode) fn remove_entry(&self, dir: &Arc<Inode>, entry: &Arc<Entry>) {
        self.change_entries(dir, [entry], []);
    }

    /// Removes entries from a directory, whose entries are locked, and adds others, atomically: a
    /// lookup finds either the old or the new target of a name.
    pub(in crate::inode) fn change_entries<'e>(
        &self,
        dir: &Arc<Inode>,
        gone: impl IntoIterator<Item = &'e Arc<Entry>>,
        come: impl IntoIterator<Item = &'e Arc<Entry>>,
    ) {
        self.change(dir, |state| {
            for entry in gone {
                state.item.size = state.item.size.saturating_sub(size_of_entry(entry));
                state.pending().remove_entry(entry);
                state.dentry_cache().leave(entry);
            }
            for entry in come {
                state.item.size += size_of_entry(entry);
                if state.first_added.is_none_or(|(of, _)| of < self.generation()) {
                    state.first_added = Some((self.generation(), entry.index));
                }
                state.pending().add_entry(entry);
                state.dentry_cache().enter(entry);
            }
            (state.item.mtime, state.item.ctime) = (self.now, self.now);
        });
    }

    /// Returns the removal of the name that an entry of `dir`, whose entries are locked, gives an
    /// inode.
    pub(in crate::inode) fn name_removal(
        &self,
        dir: &Inode,
        entry: &Entry,
        inode: &Inode,
    ) -> NameRemoval {
        let first = dir.first_added(self.generation());
        let committed = first.is_none_or(|first| entry.index < first);
        let lost =
            RemovedName { dir: dir.number(), index: entry.index, hash: entry.hash(), committed };
        let survives = inode.state().outlives_a_name();
        NameRemoval {
            inode: inode.id(),
            lost,
            survives,
            follower: None,
            is_new: inode.item().generation == self.generation(),
            moved_away: None,
        }
    }

    /// Returns the log tracker.
    pub(in crate::inode) fn log_tracker(&self) -> &LogTracker {
        &self.inodes.log_tracker
    }

    /// Adds a name to an inode. Its link count is at any time the number of its names.
    pub(in crate::inode) fn add_name(
        &self,
        inode: &Arc<Inode>,
        dir: &Inode,
        entry: &Arc<Entry>,
        place: RefIndex,
    ) {
        self.change(inode, |state| {
            if state.item.nlink == 0 {
                state.set_listed(false);
            }
            state.add_ref(dir.number(), entry, place);
            state.item.nlink += 1;
            state.linkable = false;
            state.item.ctime = self.now;
        });
        self.log_tracker().named(self.generation(), inode.id());
    }
}

/// Returns what an entry adds to the size of its directory: both of its items count.
pub(in crate::inode) fn size_of_entry(entry: &Entry) -> u64 {
    2 * entry.name.len() as u64
}

/// Guards of up to `N` inodes.
type Locked<'a, const N: usize> = [Option<MutexGuard<'a, ()>>; N];

/// Locks the entries of directories, each once, in lock order.
pub(in crate::inode) fn lock_entries<const N: usize>(
    dirs: [Option<&Arc<Inode>>; N],
) -> Locked<'_, N> {
    sorted(dirs).map(|dir| dir.map(|dir| dir.lock_entries()))
}

/// Takes the operation locks of inodes, each once, in lock order.
pub(in crate::inode) fn lock_operations<const N: usize>(
    inodes: [Option<&Arc<Inode>>; N],
) -> Locked<'_, N> {
    sorted(inodes).map(|inode| inode.map(|inode| inode.lock_operation()))
}

/// Sorts inodes and drops duplicates.
fn sorted<const N: usize>(mut inodes: [Option<&Arc<Inode>>; N]) -> [Option<&Arc<Inode>>; N] {
    let id = |inode: Option<&Arc<Inode>>| inode.map(|inode| inode.id());
    inodes.sort_by_key(|inode| id(*inode));
    for at in 1..N {
        if id(inodes[at - 1]) == id(inodes[at]) {
            inodes[at - 1] = None;
        }
    }
    inodes
}
