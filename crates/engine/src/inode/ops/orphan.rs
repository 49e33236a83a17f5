//! Orphans, inodes without a name: kept while they are open, then deleted.
//!
//! 1. An inode that is open when its last name is removed gets an ORPHAN_ITEM, so that after a
//!    crash the next mount deletes it.
//! 2. A large file gets one, too, and is deleted in steps, each in a transaction of its own, so
//!    that none becomes too long. So is a file with more extents than the next commit has space
//!    for.
//! 3. An inode that is in no tree yet leaves nothing.
//! 4. Orphans of an earlier mount are deleted before the first change in their subvolume, if
//!    possible; in the top level and in the subvolume that was opened, before the filesystem is
//!    closed. Those that a snapshot copied are deleted once it is durable.
//! 5. A deletion that fails is tried again in a later transaction, and when the filesystem is
//!    closed. Until then the ORPHAN_ITEM stays.

use userbtrfs_btree::{Cursor, ItemEdit, ReadAhead};
use userbtrfs_device::CrashPoint;
use userbtrfs_format::{ItemKind, Key, ORPHAN_OBJECTID, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::Reservation;

use crate::error::{Error, InodeId, Result};
use crate::inode::incore::inode::State;
use crate::inode::log_state::tracker::NameRemoval;
use crate::inode::ops::file_extents::drop_delayed_extents;
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::Operation;
use crate::inode::pending::extents::Replaced;
use crate::inode::tree::ondisk;
use crate::inode::tree::subvolume::Subvolume;
use crate::inode::{Entry, Inode, Inodes};
use crate::units::SECTOR;

/// The most extents of a file that are removed in one step: in any filesystem, the reservation for
/// their items is less than half of the global reserve, so that files can be deleted when no other
/// space is left.
pub(crate) const EXTENTS_PER_STEP: usize = 600;

/// The number of extents that can be removed whenever anything can.
const EXTENTS_MIN: usize = 4;

/// The size of an EXTENT_DATA item in its leaf.
pub(in crate::inode) const EXTENT_ITEM_BYTES: u64 = 25 + 53;

/// The most bytes in extents of a file that is deleted in one step.
const AT_ONCE: u64 = EXTENTS_PER_STEP as u64 * SECTOR;

/// Items that change when an orphan is deleted.
const DELETE_ITEMS: u64 = 4;

/// Extents of a file, ascending: the start of each, and its reference.
type StoredExtents = Vec<(u64, Option<Replaced>)>;

/// The result of removing a name of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::inode) enum UnlinkOutcome {
    /// It has other names, or is open.
    Kept,
    /// It is deleted when its changes are flushed.
    Gone,
    /// It never was in a tree.
    Never,
    /// It is to be deleted in steps.
    InSteps,
}

/// An open handle of an inode, which keeps it even without names.
pub(crate) struct InodeRef {
    namespace: Arc<Namespace>,
    inode: Arc<Inode>,
}

impl InodeRef {
    pub(in crate::inode) fn new(namespace: &Arc<Namespace>, inode: Arc<Inode>) -> Self {
        Self { namespace: Arc::clone(namespace), inode }
    }

    /// Returns the inode.
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        let is_last = {
            let mut state = self.inode.state();
            state.opens -= 1;
            state.opens == 0 && state.item.nlink == 0 && !state.dead
        };
        if is_last && self.namespace.inodes.transactions.is_some() {
            delete_now_or_later(&self.namespace, &self.inode);
        }
    }
}

impl Inode {
    /// Returns true if the inode has open handles.
    pub(crate) fn is_open(&self) -> bool {
        self.state().opens > 0
    }
}

/// Opens an inode. The handle must be dropped while the caller holds no lock.
pub(crate) fn open(namespace: &Arc<Namespace>, id: InodeId) -> Result<InodeRef> {
    let inode = namespace.inodes.inode(id)?;
    inode.living()?.opens += 1;
    Ok(InodeRef::new(namespace, inode))
}

/// Deletes an inode that has no name and is not open.
pub(in crate::inode) fn delete_inode(namespace: &Namespace, inode: &Arc<Inode>) -> Result<()> {
    let reservation = namespace.inodes.reserve_for_removal(DELETE_ITEMS)?;
    let operation = Operation::begin(&namespace.inodes)?;
    let mut state = inode.state();
    // It may have been opened meanwhile, and closed and deleted.
    if state.opens > 0 || state.item.nlink > 0 || state.dead {
        return Ok(());
    }
    let fate = operation
        .change_state(inode, &mut state, |state| lose_last_name(&operation, inode.id(), state));
    drop(state);
    operation.hold(inode, Some(reservation));
    drop(operation);
    finish_unlink(namespace, inode, fate);
    Ok(())
}

/// Completes the removal of a name of an inode. The caller holds no lock.
pub(in crate::inode) fn finish_unlink(
    namespace: &Namespace,
    inode: &Arc<Inode>,
    fate: UnlinkOutcome,
) {
    match fate {
        UnlinkOutcome::Kept => return,
        UnlinkOutcome::Gone | UnlinkOutcome::InSteps => {}
        UnlinkOutcome::Never => namespace.inodes.table.remove(inode.id()),
    }
    namespace.tell_gone(inode);
    if fate == UnlinkOutcome::InSteps {
        delete_now_or_later(namespace, inode);
    }
}

/// Deletes an inode, or resumes its deletion; on failure queues it for later. The caller holds
/// no lock.
fn delete_now_or_later(namespace: &Namespace, inode: &Arc<Inode>) {
    let is_dead = inode.state().dead;
    let deleted = if is_dead {
        delete_in_steps(&namespace.inodes, inode)
    } else {
        delete_inode(namespace, inode)
    };
    if deleted.is_err() {
        namespace.undeleted.lock().push((namespace.inodes.running(), Arc::clone(inode)));
    }
}

/// Retries deletions that failed in an earlier transaction. The caller holds no lock.
pub(crate) fn delete_later(namespace: &Namespace) {
    delete_failed_before(namespace, namespace.inodes.running());
}

/// Retries all failed deletions. Inodes that still cannot be deleted are left to the next
/// mount. The caller holds no lock.
pub(crate) fn delete_at_last(namespace: &Namespace) {
    delete_failed_before(namespace, u64::MAX);
}

fn delete_failed_before(namespace: &Namespace, generation: u64) {
    let is_due = |(failed, _): &mut (u64, _)| *failed < generation;
    let due: Vec<_> = namespace.undeleted.lock().extract_if(.., is_due).collect();
    for (_, inode) in due {
        delete_now_or_later(namespace, &inode);
    }
}

/// Deletes a file in steps. It gets no more extents. Pending extents are dropped first, so that
/// the tree has all.
fn delete_in_steps(inodes: &Inodes, inode: &Arc<Inode>) -> Result<()> {
    let volume = inodes.tree_roots.store().volume();
    volume.crash_point(CrashPoint::OrphanListed);
    drop_waiting(inodes, inode)?;
    loop {
        let (reservation, most) = reserve_step(inodes, inode, 0)?;
        let extents = last_extents(inodes, inode, 0, most)?;
        let operation = Operation::begin(inodes)?;
        if extents.is_empty() {
            operation.change(inode, |state| delete_at_once(&operation, inode.id(), state));
            operation.hold(inode, Some(reservation));
            drop(operation);
            volume.crash_point(CrashPoint::OrphanDeleted);
            return Ok(());
        }
        if let Err(error) = remove_extents(&operation, inode, &extents) {
            inodes.transactions()?.fail(&error.to_string());
            return Err(error);
        }
        drop(operation);
        drop(reservation);
        volume.crash_point(CrashPoint::OrphanStep);
    }
}

/// Drops the pending extents of a file that is being deleted, so that its tree is current.
/// Waits only for a flush that is in progress.
fn drop_waiting(inodes: &Inodes, inode: &Arc<Inode>) -> Result<()> {
    loop {
        let waiting = inode.state().waiting_extents();
        let Some(is_merging) = waiting else { return Ok(()) };
        if is_merging {
            inodes.transactions()?.merge_pending()?;
            continue;
        }
        let (stored, _) = ondisk::inode_item(&inodes.tree_roots, inode.tree(), inode.number())?;
        let operation = Operation::begin(inodes)?;
        let mut state = inode.state();
        // Otherwise a flush took them meanwhile, and `stored` is out of date.
        if state.waiting_extents() == Some(false) {
            operation.change_state(inode, &mut state, |state| {
                drop_delayed_extents(&operation, inode.id(), state);
                (state.item.size, state.disk_size) = (stored.size, None);
                state.item.nbytes = stored.nbytes;
            });
        }
    }
}

/// Reserves space for a step that removes extents of a file, and perhaps the file. Returns how
/// many extents may be removed: fewer if there is less space for the changes of the extent,
/// free space and checksum trees. Their items are adjacent, so only their leaves count. The
/// space includes `more` items. The caller holds no locks except operation locks.
pub(crate) fn reserve_step(
    inodes: &Inodes,
    inode: &Inode,
    more: u64,
) -> Result<(Reservation, usize)> {
    let nodesize = u64::from(inodes.tree_roots.store().volume().geometry().nodesize);
    let leaves = |extents: usize| (extents as u64 * EXTENT_ITEM_BYTES).div_ceil(nodesize);
    let pieces = inode.item().nbytes / SECTOR;
    let all = usize::try_from(pieces).unwrap_or(EXTENTS_PER_STEP);
    let mut extents = all.clamp(EXTENTS_MIN, EXTENTS_PER_STEP);
    inodes.relieve()?;
    while extents > EXTENTS_MIN {
        let items = DELETE_ITEMS + leaves(extents) + more;
        if let Some(found) = inodes.transactions()?.try_reserve_for_extents(items, extents as u64) {
            return Ok((found, extents));
        }
        extents /= 2;
    }
    let items = DELETE_ITEMS + leaves(EXTENTS_MIN) + more;
    Ok((inodes.reserve_for_removal(items)?, EXTENTS_MIN))
}

/// Returns the start of the last `most` extents that the tree has of a file, or `keep` if fewer
/// start after it.
pub(crate) fn start_of_last(inodes: &Inodes, inode: &Inode, keep: u64, most: usize) -> Result<u64> {
    let Some(from) = keep.checked_add(1) else { return Ok(keep) };
    let extents = last_extents(inodes, inode, from, most)?;
    Ok(if extents.len() == most { extents[0].0 } else { keep })
}

/// Returns at most `most` of the last extents that the tree has of a file, none of which starts
/// before `from`.
fn last_extents(inodes: &Inodes, inode: &Inode, from: u64, most: usize) -> Result<StoredExtents> {
    let key = |offset| Key::new(inode.number(), ItemKind::EXTENT_DATA, offset);
    let mut found = Vec::new();
    let mut last = Some(u64::MAX);
    while let Some(offset) = last.filter(|_| found.len() < most) {
        let store = inodes.tree_roots.store();
        let tree = inode.tree();
        let cursor = Cursor::seek_back(store, tree, &key(offset), ReadAhead::Off)?;
        let item = cursor.item().filter(|item| {
            let key = item.key;
            key.objectid == inode.number() && key.kind == ItemKind::EXTENT_DATA
        });
        let is_wanted = |at: u64| (from..=offset).contains(&at);
        let Some(item) = item.filter(|item| is_wanted(item.key.offset)) else { break };
        found.push((item.key.offset, Replaced::stored(item.key.offset, item.data)));
        last = item.key.offset.checked_sub(1);
    }
    found.reverse();
    Ok(found)
}

/// Deletes the orphans that an earlier mount left in a subvolume, or that a snapshot copied. Those
/// that cannot be deleted stay for a later mount; that is no error.
pub(in crate::inode) fn delete_left(namespace: &Namespace, id: TreeId, subvolume: &Subvolume) {
    for number in subvolume.take_left() {
        let _stays = match namespace.inodes.inode(InodeId { subvolume: id, number }) {
            Ok(inode) => delete_or_unlist(namespace, &inode),
            Err(Error::NoInode(_)) => unlist(&namespace.inodes, subvolume, number),
            Err(error) => Err(error),
        };
    }
}

fn delete_or_unlist(namespace: &Namespace, inode: &Arc<Inode>) -> Result<()> {
    let named = {
        let mut state = inode.state();
        state.listed = true;
        state.item.nlink > 0
    };
    if !named {
        return delete_inode(namespace, inode);
    }
    let reservation = namespace.inodes.reserve_for_removal(DELETE_ITEMS)?;
    let operation = Operation::begin(&namespace.inodes)?;
    // It may have lost its name, and been deleted, meanwhile.
    match operation.change_living(inode, |state| state.set_listed(false)) {
        Ok(()) => operation.hold(inode, Some(reservation)),
        Err(Error::NoInode(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Removes an ORPHAN_ITEM that has no inode.
fn unlist(inodes: &Inodes, subvolume: &Subvolume, number: u64) -> Result<()> {
    let _reservation = inodes.reserve_for_removal(1)?;
    let operation = Operation::begin(inodes)?;
    let key = Key::new(ORPHAN_OBJECTID, ItemKind::ORPHAN_ITEM, number);
    Ok(operation.handle.apply(&subvolume.tree, &mut [ItemEdit::Remove(key)])?)
}

/// Removes an entry, and its name from the inode. The log tracker notes that under the state
/// lock of the inode, so that an inode that is logged just before is in the notes by then.
pub(in crate::inode) fn remove_name(
    operation: &Operation<'_>,
    dir: &Arc<Inode>,
    entry: &Arc<Entry>,
    inode: &Arc<Inode>,
) -> UnlinkOutcome {
    let name_removal = operation.name_removal(dir, entry, inode);
    operation.remove_entry(dir, entry);
    operation.change(inode, |state| {
        let name_removal = NameRemoval { survives: state.outlives_a_name(), ..name_removal };
        operation.log_tracker().note(operation.generation(), &name_removal);
        take_name(operation, inode, state, dir, entry)
    })
}

/// Removes a name from an inode, and deletes the inode with its last name. The caller holds the
/// operation lock.
pub(in crate::inode) fn drop_name(
    operation: &Operation<'_>,
    inode: &Arc<Inode>,
    dir: &Inode,
    entry: &Arc<Entry>,
) -> UnlinkOutcome {
    operation.change(inode, |state| take_name(operation, inode, state, dir, entry))
}

fn take_name(
    operation: &Operation<'_>,
    inode: &Inode,
    state: &mut State,
    dir: &Inode,
    entry: &Arc<Entry>,
) -> UnlinkOutcome {
    state.remove_ref(dir.number(), entry);
    state.item.ctime = operation.now;
    state.item.nlink = state.item.nlink.saturating_sub(1);
    match state.item.nlink {
        0 => lose_last_name(operation, inode.id(), state),
        _ => UnlinkOutcome::Kept,
    }
}

/// Removes extents of a file that is being deleted.
fn remove_extents(
    operation: &Operation<'_>,
    inode: &Arc<Inode>,
    extents: &[(u64, Option<Replaced>)],
) -> Result<()> {
    let id = inode.id();
    let key = |offset| Key::new(id.number, ItemKind::EXTENT_DATA, offset);
    let remove = |(offset, _): &(u64, _)| ItemEdit::Remove(key(*offset));
    let mut edits: Vec<ItemEdit> = extents.iter().map(remove).collect();
    operation.handle.apply(inode.tree(), &mut edits)?;
    let on_disk = || extents.iter().filter_map(|(_, replaced)| replaced.as_ref());
    on_disk().for_each(|replaced| replaced.count(&operation.handle, id));
    let bytes = on_disk().map(Replaced::bytes).sum();
    operation.change(inode, |state| {
        (state.item.size, state.disk_size) = (extents[0].0, None);
        state.item.nbytes = state.item.nbytes.saturating_sub(bytes);
    });
    Ok(())
}

/// Handles the loss of the last name of an inode.
fn lose_last_name(operation: &Operation<'_>, inode: InodeId, state: &mut State) -> UnlinkOutcome {
    if state.opens > 0 {
        state.set_listed(true);
        return UnlinkOutcome::Kept;
    }
    let bytes = state.item.nbytes;
    let extents = state.item.nbytes / SECTOR;
    let goes_at_once = || bytes <= AT_ONCE && (extents == 0 || operation.expects(extents));
    if !state.pending().created && !goes_at_once() {
        state.set_listed(true);
        state.dead = true;
        return UnlinkOutcome::InSteps;
    }
    delete_at_once(operation, inode, state)
}

/// Deletes an inode, with its delayed items; items of older sets and of the tree are removed
/// when it is flushed.
fn delete_at_once(operation: &Operation<'_>, inode: InodeId, state: &mut State) -> UnlinkOutcome {
    state.dead = true;
    drop_delayed_extents(operation, inode, state);
    if state.pending().created {
        state.running = None;
        return UnlinkOutcome::Never;
    }
    let listed = state.listed;
    state.pending().set_gone(listed);
    UnlinkOutcome::Gone
}
