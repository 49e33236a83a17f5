//! The entries of subvolumes in directories.
//!
//! 1. The entry and the references in the root tree change in one transaction. The entry is
//!    delayed; the references are not, so that a lookup that finds the entry finds them.
//! 2. A log could not be replayed into a subvolume, or a directory with a name of one, that the
//!    last commit does not have: the transaction is committed instead of logged. It is marked
//!    before anything changes, so that no log commit in progress has a part of the change.
//! 3. Nothing is entered into a subvolume once it is deleted: inodes that are open stay until they
//!    are closed.

use std::collections::BTreeMap;

use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{DirEntry, DirEntryKind, InodeItem, InodeName, ItemKind, Key, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_transaction::subvolume::{self, AddEntry, NewSnapshot, NewSubvolume, SubvolumeName};
use userbtrfs_transaction::{FullCommitReason, Handle, Reservation};
use uuid::Uuid;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::entry::subvolume_name;
use crate::inode::dir::lookup::{check_new_name, find_name, list_some};
use crate::inode::flush::item_limits::check_room_for_entry;
use crate::inode::ids::{EMPTY_DIR, ROOT_DIR};
use crate::inode::ops::create::{NewInode, check_absent, next_index, take_index};
use crate::inode::ops::inherit::DefaultAcl;
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::{Operation, TxnHandle, lock_entries};
use crate::inode::ops::targets::{check_mutable, clean, directory_to_change};
use crate::inode::ops::unlink::check_empty;
use crate::inode::ops::xattr::check_new_xattrs;
use crate::inode::{Entry, EntryTarget, Inode, Inodes};

/// Items that change when a subvolume is added: entry by name and by place, the directory's inode;
/// root item, references both ways, two of the UUID tree; the items of its own tree.
pub(in crate::inode::ops) const ADD_ITEMS: u64 = 16;

/// Items that change when a subvolume is removed: those of its entry, of the root tree and of the
/// UUID tree.
const REMOVE_ITEMS: u64 = 12;

/// A subvolume that is found by its name, or the name of one that is not there.
struct NamedSubvolume {
    entry: Arc<Entry>,
    /// `None` for a name that a snapshot copied, without the subvolume.
    root: Option<Arc<Inode>>,
}

/// Makes the snapshot that `new` describes, with a name in a directory, and returns its id when it
/// is durable. `new` takes the id, the name, and what adds the entry. The snapshot also copied the
/// inodes that have no name, but nobody has them open there: they are deleted at once, as in Linux.
///
/// The entries of the directory are locked until the commit has made the snapshot and added its
/// entry, but not while it writes.
pub(crate) fn add_snapshot(
    namespace: &Namespace,
    dir: InodeId,
    name: &[u8],
    new: impl FnOnce(TreeId, SubvolumeName, AddEntry) -> NewSnapshot,
) -> Result<TreeId> {
    check_new_name(name)?;
    let transactions = namespace.inodes.transactions()?;
    let dir = directory_to_change(namespace, dir)?;
    let reservation = namespace.inodes.reserve_for_name(ADD_ITEMS)?;
    let locked = dir.lock_entries();
    let index = index_for_subvolume(namespace, &dir, name)?;
    let reservation = reservation.ok_or(Error::NoSpace)?;
    let operation = Operation::begin(&namespace.inodes)?;
    let id = subvolume::take_id(&operation.handle)?;
    let entry = SnapshotEntry { dir: Arc::clone(&dir), index, name: name.to_vec(), id };
    let inodes = Arc::downgrade(&namespace.inodes);
    let is_made = Arc::new(AtomicBool::new(false));
    let made = Arc::clone(&is_made);
    let add_entry = move |handle: &Handle<'_>| {
        made.store(true, Ordering::Relaxed);
        // The caller waits for the commit, unless that has failed.
        if let Some(inodes) = inodes.upgrade() {
            entry.add(&inodes, handle, reservation);
        }
    };
    let snapshot = new(id, name_in(&dir, index, name), Box::new(add_entry));
    operation.require_commit(FullCommitReason::Subvolume);
    transactions.snapshot_at_commit(&operation.handle, snapshot);
    let generation = operation.generation();
    drop(operation);
    transactions.commit_transaction_with(generation, || drop(locked))?;
    // It is durable: nothing that could fail now is an error.
    if !is_made.load(Ordering::Relaxed) {
        // The subvolume of its name was deleted.
        return Err(Error::NotFound);
    }
    // If that fails, a later mount deletes them.
    let _left = clean(namespace, id);
    Ok(id)
}

/// The entry of a snapshot that is not made yet.
struct SnapshotEntry {
    dir: Arc<Inode>,
    index: u64,
    name: Vec<u8>,
    id: TreeId,
}

impl SnapshotEntry {
    /// Adds the entry in the commit, which has made the snapshot.
    fn add(self, inodes: &Inodes, handle: &Handle<'_>, reservation: Reservation) {
        let operation = Operation::begin_in(inodes, TxnHandle::Before(handle));
        let entry = subvolume_entry(&operation, self.index, &self.name, self.id);
        operation.add_entry(&self.dir, &entry);
        operation.hold(&self.dir, Some(reservation));
    }
}

/// Returns the index for the name of a new subvolume in a directory, whose entries are locked.
fn index_for_subvolume(namespace: &Namespace, dir: &Inode, name: &[u8]) -> Result<u64> {
    check_absent(&namespace.inodes, dir, name)?;
    check_room_for_entry(&namespace.inodes, dir, name)?;
    take_index(&namespace.inodes, dir)
}

/// Creates an empty subvolume, and returns its id. As in Linux, its root directory inherits only
/// properties, those of the subvolume that contains it: no group, no default ACL, and no flags of
/// the directory of its name.
pub(crate) fn create_subvolume(
    namespace: &Namespace,
    dir: InodeId,
    name: &[u8],
    new: &NewInode<'_>,
) -> Result<TreeId> {
    check_new_name(name)?;
    let parent = directory_to_change(namespace, dir)?;
    check_new_xattrs(&namespace.inodes, new.xattrs)?;
    let mode = match new.default_acl {
        DefaultAcl::Inherited { umask } => new.mode & !umask,
        DefaultAcl::Ignored => new.mode,
    };
    let new = &NewInode { mode, default_acl: DefaultAcl::Ignored, ..*new };
    let above = InodeId { subvolume: parent.id().subvolume, number: ROOT_DIR };
    let above = namespace.inodes.inode(above)?;
    let inherited = new.inherited_from(&namespace.inodes, &above)?;
    let reservation = namespace.inodes.reserve_for_name(ADD_ITEMS)?;
    let _locked = parent.lock_entries();
    let index = index_for_subvolume(namespace, &parent, name)?;
    let reservation = reservation.ok_or(Error::NoSpace)?;
    let operation = Operation::begin(&namespace.inodes)?;
    let created = operation.now;
    let mut item = new.item_alone(operation.generation(), created);
    item.nlink = 1;
    let property = inherited.props.give(&mut item).into_iter();
    let xattrs = property.chain(inherited.xattrs()).chain(new.xattrs_given());
    let items = root_dir_items(&item, xattrs);
    operation.require_commit(FullCommitReason::Subvolume);
    let id = subvolume::take_id(&operation.handle)?;
    let place = name_in(&parent, index, name);
    let new = NewSubvolume { id, name: place, uuid: Uuid::new_v4(), created, items };
    subvolume::create(&operation.handle, &new)?;
    operation.add_entry(&parent, &subvolume_entry(&operation, index, name, id));
    operation.hold(&parent, Some(reservation));
    Ok(id)
}

/// Removes a subvolume and its name; returns its id, or `None` if the name was that of a
/// subvolume which a snapshot did not copy. A subvolume that is not `empty` is refused if only
/// empty ones may be removed.
pub(crate) fn remove_subvolume(
    namespace: &Namespace,
    dir: InodeId,
    name: &[u8],
    only_empty: bool,
) -> Result<Option<(TreeId, u64)>> {
    namespace.inodes.log_tracker.wait_for_pause();
    let dir = directory_to_change(namespace, dir)?;
    let reservation = namespace.inodes.reserve_for_removal(REMOVE_ITEMS)?;
    loop {
        let (id, root) = subvolume_at(namespace, &dir, name)?;
        let _locked = lock_entries([Some(&dir), root.as_ref()]);
        let Some(named) = named_subvolume(namespace, &dir, name, id, root.as_ref())? else {
            continue;
        };
        check_mutable(&dir)?;
        if let Some(root) = named.root.as_ref().filter(|_| only_empty) {
            check_empty(root)?;
        }
        next_index(&namespace.inodes, &dir)?;
        let operation = Operation::begin(&namespace.inodes)?;
        operation.require_commit(FullCommitReason::Subvolume);
        let id = named.root.as_ref().map(|root| root.id().subvolume);
        if let Some(id) = id {
            let name = name_in(&dir, named.entry.index, name);
            subvolume::delete(&operation.handle, id, &name)?;
            namespace.inodes.deleted.add(id);
        }
        operation.remove_entry(&dir, &named.entry);
        operation.hold(&dir, Some(reservation));
        return Ok(id.map(|id| (id, operation.generation())));
    }
}

/// Records that a subvolume may, or may not, be changed from now on.
pub(crate) fn set_read_only(namespace: &Namespace, id: TreeId, read_only: bool) {
    namespace.subvolumes.set_read_only(id, read_only);
}

/// Keeps a reservation for items that were changed at once until the next flush.
pub(crate) fn keep_reserved(namespace: &Namespace, handle: &Handle<'_>, reservation: Reservation) {
    namespace.inodes.hold(handle, Some(reservation));
}

/// Drops the inodes of a deleted subvolume that nothing uses; returns true if none is left.
pub(crate) fn evict_subvolume(namespace: &Namespace, id: TreeId) -> bool {
    namespace.undeleted.lock().retain(|(_, inode)| inode.id().subvolume != id);
    namespace.inodes.table.evict(id)
}

/// Drops what is known of a subvolume whose tree is dropped.
pub(crate) fn forget_subvolume(namespace: &Namespace, id: TreeId) {
    namespace.subvolumes.forget(id);
}

/// Returns the id of the subvolume with this name, and its root directory; that is `None` if a
/// snapshot copied the name, but not the subvolume.
fn subvolume_at(
    namespace: &Namespace,
    dir: &Inode,
    name: &[u8],
) -> Result<(TreeId, Option<Arc<Inode>>)> {
    let found = find_name(&namespace.inodes, dir, name)?.ok_or(Error::NotFound)?;
    let EntryTarget::Subvolume(id) = found.target else { return Err(Error::NoSubvolume) };
    let root = match found.target.resolve(&namespace.inodes.tree_roots, dir.id(), name)? {
        InodeId { number: EMPTY_DIR, .. } => None,
        root => Some(namespace.inodes.inode(root)?),
    };
    Ok((id, root))
}

/// Returns the subvolume `id` and its entry, if the name still leads to it. The entries of the
/// directory are locked.
fn named_subvolume(
    namespace: &Namespace,
    dir: &Inode,
    name: &[u8],
    id: TreeId,
    root: Option<&Arc<Inode>>,
) -> Result<Option<NamedSubvolume>> {
    let found = find_name(&namespace.inodes, dir, name)?.ok_or(Error::NotFound)?;
    if found.target != EntryTarget::Subvolume(id) {
        return Ok(None);
    }
    let entry = entry_of_subvolume(namespace, dir, name, id, root)?;
    Ok(Some(NamedSubvolume { entry, root: root.cloned() }))
}

/// Returns the entry of the subvolume `id` in a directory, whose entries are locked; `root` is
/// `None` if a snapshot copied the name, but not the subvolume.
pub(in crate::inode::ops) fn entry_of_subvolume(
    namespace: &Namespace,
    dir: &Inode,
    name: &[u8],
    id: TreeId,
    root: Option<&Arc<Inode>>,
) -> Result<Arc<Entry>> {
    let index = match root {
        Some(root) => index_of_subvolume(namespace, dir, name, root)?,
        None => index_by_listing(namespace, dir, name)?,
    };
    let (there, _) = list_some(&namespace.inodes, dir, index, 1)?;
    let is_it = |it: &&Arc<Entry>| {
        (it.index, &*it.name, it.target) == (index, name, EntryTarget::Subvolume(id))
    };
    let child = InodeId { subvolume: id, number: ROOT_DIR };
    let stray = || Error::Stray { dir: dir.id(), name: name.to_vec(), child };
    there.iter().find(is_it).cloned().ok_or_else(stray)
}

fn index_of_subvolume(
    namespace: &Namespace,
    dir: &Inode,
    name: &[u8],
    root: &Inode,
) -> Result<u64> {
    let known = subvolume_name(&namespace.inodes.tree_roots, root.id().subvolume)?;
    let is_it = |(parent, link): &(TreeId, crate::inode::Link)| {
        (*parent, link.dir) == (dir.id().subvolume, dir.number()) && link.name == name
    };
    let stray = || Error::Stray { dir: dir.id(), name: name.to_vec(), child: root.id() };
    known.filter(is_it).map(|(_, link)| link.index).ok_or_else(stray)
}

/// Returns the index of a name that no item but the entry itself has.
fn index_by_listing(namespace: &Namespace, dir: &Inode, name: &[u8]) -> Result<u64> {
    let mut position = Some(0);
    while let Some(from) = position {
        let (entries, next) = list_some(&namespace.inodes, dir, from, LISTED_AT_ONCE)?;
        if let Some(entry) = entries.iter().find(|entry| *entry.name == *name) {
            return Ok(entry.index);
        }
        position = next;
    }
    Err(Error::NotFound)
}

/// The number of entries that are listed at once to find a name.
const LISTED_AT_ONCE: usize = 4096;

/// Returns the items of the root directory of a new subvolume, in key order.
fn root_dir_items<'a>(
    item: &InodeItem,
    xattrs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Vec<(Key, Vec<u8>)> {
    let mut name = Vec::new();
    InodeName { parent: ROOT_DIR, index: 0, name: b".." }.encode_ref_into(&mut name);
    let mut items = BTreeMap::from([
        (Key::new(ROOT_DIR, ItemKind::INODE_ITEM, 0), item.encode().to_vec()),
        (Key::new(ROOT_DIR, ItemKind::INODE_REF, ROOT_DIR), name),
    ]);
    for (name, value) in xattrs {
        let key = Key::new(ROOT_DIR, ItemKind::XATTR_ITEM, u64::from(name_hash(name)));
        let target = Key::MIN;
        let entry = DirEntry {
            target,
            transid: item.transid,
            kind: DirEntryKind::Xattr,
            name,
            data: value,
        };
        entry.encode_into(items.entry(key).or_default());
    }
    items.into_iter().collect()
}

/// Returns the name of a subvolume in a directory.
pub(in crate::inode::ops) fn name_in(dir: &Inode, index: u64, name: &[u8]) -> SubvolumeName {
    SubvolumeName { parent: dir.id().subvolume, dir: dir.number(), index, name: name.to_vec() }
}

/// Returns the entry for a new name of a subvolume.
pub(in crate::inode::ops) fn subvolume_entry(
    operation: &Operation<'_>,
    index: u64,
    name: &[u8],
    id: TreeId,
) -> Arc<Entry> {
    let kind = DirEntryKind::Directory;
    let target = EntryTarget::Subvolume(id);
    Arc::new(Entry { index, name: name.into(), kind, target, transid: operation.generation() })
}
