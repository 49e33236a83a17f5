//! Changes of inodes by the replay of a log.
//!
//! 1. No other operation runs meanwhile. Changes become delayed items, as for other operations.
//! 2. Checks that were made when the log was written are not repeated: flags, permissions,
//!    read-only subvolumes. Space is taken from what is kept for the commit, except the minimum
//!    that a commit needs.
//! 3. No times change: the log has the times, so that a replay that is started again has the same
//!    result.
//! 4. Link counts do not follow names: [`replay_links`] sets them at the end. Sizes of
//!    directories do.
//! 5. An index that was freed is reused only after the tree has the removal.

use userbtrfs_btree::ReadAhead;
use userbtrfs_format::{
    DirEntryKind, FileExtent, FileExtentKind, FileKind, InodeItem, InodeName, ItemKind, Key,
    inode_extrefs, inode_refs,
};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::HandleKind;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::dcache::DentryCache;
use crate::inode::dir::lookup::{Found, find_name, full_entry, list_some, target_inode};
use crate::inode::flush::item_limits::{check_room_for_entry, place_of_ref};
use crate::inode::incore::inode::State;
use crate::inode::ops::file_extents::change_file;
use crate::inode::ops::operation::{Operation, size_of_entry};
use crate::inode::ops::property;
use crate::inode::pending::delayed_items::{DelayedItems, RefIndex};
use crate::inode::{Entry, EntryTarget, ExtentMapKind, FileChange, Inode, Inodes, Link};
use crate::units::SECTOR;

/// The most items that change with one step: two inodes, a ref, an entry by name and by index, and
/// the item that the step replays.
const STEP_ITEMS: u64 = 7;

/// The most entries that are listed at a time.
const LIST_MAX: usize = 1024;

/// The item that stores names of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamesItem {
    /// INODE_REF: those in this directory.
    Ref(u64),
    /// INODE_EXTREF: those of this hash.
    Extref(u64),
}

impl NamesItem {
    /// Returns the key of the item of an inode.
    pub(crate) fn key(self, inode: u64) -> Key {
        match self {
            Self::Ref(dir) => Key::new(inode, ItemKind::INODE_REF, dir),
            Self::Extref(hash) => Key::new(inode, ItemKind::INODE_EXTREF, hash),
        }
    }

    /// Returns the names in the content of the item, which is valid.
    pub(crate) fn names(self, data: &[u8]) -> Vec<Link> {
        let link = |name: Result<InodeName<'_>, _>| {
            let InodeName { parent, index, name } = name.expect("verified with its block");
            Link { dir: parent, index, name: name.to_vec() }
        };
        match self {
            Self::Ref(dir) => inode_refs(dir, data).map(link).collect(),
            Self::Extref(_) => inode_extrefs(data).map(link).collect(),
        }
    }
}

/// Returns an inode by number, if it exists.
pub(crate) fn replay_find(inodes: &Inodes, id: InodeId) -> Result<Option<Arc<Inode>>> {
    match inodes.inode(id) {
        Ok(inode) => Ok(Some(inode)),
        Err(Error::NoInode(missing)) if missing == id => {
            // It may be created later; then the inode that could not be loaded must not be
            // cached.
            inodes.table.remove(id);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sets an inode to its logged state, and creates it if it does not exist. Contents, names and
/// entries stay, and the attributes that depend on them: size of a directory, bytes, link
/// count.
pub(crate) fn replay_inode(inodes: &Inodes, id: InodeId, logged: &InodeItem) -> Result<Arc<Inode>> {
    match replay_find(inodes, id)? {
        None => replay_new_inode(inodes, id, logged),
        Some(inode) => {
            replay_change(inodes, &inode, |_, state| overwrite(state, logged))?;
            Ok(inode)
        }
    }
}

fn replay_new_inode(inodes: &Inodes, id: InodeId, logged: &InodeItem) -> Result<Arc<Inode>> {
    let tree = inodes.tree_roots.tree(id.subvolume)?;
    let reservation = inodes.reserve_for_replay(STEP_ITEMS)?;
    let operation = Operation::begin(inodes)?;
    let transid = operation.generation();
    let generation = if logged.generation == 0 { transid } else { logged.generation };
    let size = if logged.kind == FileKind::Directory { 0 } else { logged.size };
    let item = InodeItem { generation, transid, size, nbytes: 0, ..logged.clone() };
    let pending = DelayedItems::of_new();
    let bytes = pending.bytes;
    let running = Some(Arc::new(pending));
    let is_dir = item.kind == FileKind::Directory;
    let dentry_cache = is_dir.then(|| DentryCache::unknown(&inodes.budget));
    let state = State { running, ..State::new(item, dentry_cache) };
    let inode = operation.enter_new(id, tree, state, bytes);
    operation.hold(&inode, Some(reservation));
    Ok(inode)
}

fn replay_change<T>(
    inodes: &Inodes,
    inode: &Arc<Inode>,
    change: impl FnOnce(&Operation<'_>, &mut State) -> T,
) -> Result<T> {
    let reservation = inodes.reserve_for_replay(STEP_ITEMS)?;
    let operation = Operation::begin(inodes)?;
    let done = {
        let mut state = inode.state();
        operation.change_state(inode, &mut state, |state| change(&operation, state))
    };
    operation.hold(inode, Some(reservation));
    Ok(done)
}

/// Sets an attribute, or removes it.
pub(crate) fn replay_xattr(
    inodes: &Inodes,
    inode: &Arc<Inode>,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    replay_change(inodes, inode, |_, state| {
        state.item.flags = property::replayed(&state.item, name, value);
        state.set_xattr(name, value);
    })
}

/// Changes the extents of a file.
pub(crate) fn replay_file(
    inodes: &Inodes,
    inode: &Arc<Inode>,
    change: impl FnOnce(&mut FileChange<'_>),
) -> Result<()> {
    let reservation = inodes.reserve_for_replay(STEP_ITEMS)?;
    change_file(inodes, inode, HandleKind::Operation, Some(reservation), change)
}

/// Removes all extents of a file beyond its size.
pub(crate) fn replay_cut(inodes: &Inodes, inode: &Arc<Inode>) -> Result<()> {
    let end = inode.item().size.checked_next_multiple_of(SECTOR);
    match end {
        Some(end) => {
            replay_file(inodes, inode, |file| file.put(end, u64::MAX, ExtentMapKind::Hole, false))
        }
        None => Ok(()),
    }
}

/// Returns entries of a directory from an index on, and the position after them.
pub(crate) fn replay_list(
    inodes: &Inodes,
    dir: &Inode,
    position: u64,
) -> Result<(Vec<Arc<Entry>>, Option<u64>)> {
    list_some(inodes, dir, position, LIST_MAX)
}

/// Returns the entry at an index of a directory.
pub(crate) fn replay_entry_at(
    inodes: &Inodes,
    dir: &Inode,
    index: u64,
) -> Result<Option<Arc<Entry>>> {
    let (entries, _) = list_some(inodes, dir, index, 1)?;
    Ok(entries.into_iter().next().filter(|entry| entry.index == index))
}

/// Returns the entry of a name, or [`Error::Unsupported`] if it is that of a subvolume.
pub(crate) fn replay_entry(
    inodes: &Inodes,
    dir: &Inode,
    name: &[u8],
) -> Result<Option<Arc<Entry>>> {
    let found = find_name(inodes, dir, name)?;
    let entry = |found: Found| {
        let inode = target_inode(inodes, dir, found.target)?;
        full_entry(inodes, dir, name, found, &inode)
    };
    found.map(entry).transpose()
}

/// Returns the names that an inode has in an item.
pub(crate) fn replay_names(inodes: &Inodes, inode: &Inode, item: NamesItem) -> Result<Vec<Link>> {
    let position = inode.tree().search(inodes.tree_roots.store(), &item.key(inode.number()))?;
    let stored = position.exact.then(|| position.leaf.item(position.slot).data);
    let mut names = stored.map_or_else(Vec::new, |data| item.names(data));
    let state = inode.state();
    let oldest_first: Vec<_> = state.sets().collect();
    for change in oldest_first.into_iter().rev().flat_map(|set| set.refs.iter()) {
        let Entry { index, name, .. } = &*change.entry;
        names.retain(|link| (link.dir, link.index) != (change.dir, *index));
        if change.place.is_some_and(|place| item_of(place, change.dir, name) == item) {
            names.push(Link { dir: change.dir, index: *index, name: name.to_vec() });
        }
    }
    Ok(names)
}

/// Removes an entry from a directory, and the name from its inode, which is returned. Returns
/// [`Error::Unsupported`] if the entry is that of a subvolume.
pub(crate) fn replay_unname(
    inodes: &Inodes,
    dir: &Arc<Inode>,
    entry: &Arc<Entry>,
) -> Result<Arc<Inode>> {
    let inode = target_inode(inodes, dir, entry.target)?;
    let reservation = inodes.reserve_for_replay(STEP_ITEMS)?;
    let operation = Operation::begin(inodes)?;
    alter(&operation, dir, |state| {
        state.item.size = state.item.size.saturating_sub(size_of_entry(entry));
        state.pending().remove_entry(entry);
        state.dentry_cache().leave(entry);
    });
    alter(&operation, &inode, |state| state.remove_ref(dir.number(), entry));
    operation.hold(dir, Some(reservation));
    Ok(inode)
}

/// Adds a name to an inode at an index of a directory. Neither the name nor the index is in
/// use.
pub(crate) fn replay_name(
    inodes: &Inodes,
    dir: &Arc<Inode>,
    inode: &Arc<Inode>,
    index: u64,
    name: &[u8],
) -> Result<()> {
    if was_given_up(dir, inode, index) {
        inodes.transactions()?.merge_pending()?;
    }
    check_room_for_entry(inodes, dir, name)?;
    let place = place_of_ref(inodes, inode, dir.number(), name)?;
    let reservation = inodes.reserve_for_replay(STEP_ITEMS)?;
    let operation = Operation::begin(inodes)?;
    let kind = DirEntryKind::from(inode.kind());
    let target = EntryTarget::Inode(inode.number());
    let transid = operation.generation();
    let entry = Arc::new(Entry { index, name: name.into(), kind, target, transid });
    alter(&operation, inode, |state| state.add_ref(dir.number(), &entry, place));
    alter(&operation, dir, |state| {
        state.item.size += size_of_entry(&entry);
        state.pending().add_entry(&entry);
        state.dentry_cache().enter(&entry);
    });
    operation.hold(dir, Some(reservation));
    Ok(())
}

/// Sets the link count of an inode to the number of its names; without names, it gets an
/// ORPHAN_ITEM, so that it is deleted.
pub(crate) fn replay_links(inodes: &Inodes, inode: &Arc<Inode>, links: u32) -> Result<()> {
    if links > 0 && inode.item().nlink == links {
        return Ok(());
    }
    replay_change(inodes, inode, |_, state| {
        state.item.nlink = links;
        if links == 0 {
            state.set_listed(true);
        }
    })
}

/// Sets the bytes of a file from its extents in the tree. There are no pending ones.
pub(crate) fn replay_bytes(inodes: &Inodes, inode: &Arc<Inode>) -> Result<()> {
    let bytes = stored_bytes(inodes, inode)?;
    if inode.item().nbytes == bytes {
        Ok(())
    } else {
        replay_change(inodes, inode, |_, state| state.item.nbytes = bytes)
    }
}

fn stored_bytes(inodes: &Inodes, inode: &Inode) -> Result<u64> {
    let first = Key::new(inode.number(), ItemKind::EXTENT_DATA, 0);
    let mut cursor = inodes.tree_roots.cursor(inode.tree(), &first, ReadAhead::Forward)?;
    let is_one = |key: Key| (key.objectid, key.kind) == (first.objectid, first.kind);
    let mut bytes: u64 = 0;
    while let Some(item) = cursor.item().filter(|item| is_one(item.key)) {
        let extent = FileExtent::parse(item.key.offset, item.data);
        let extent = extent.expect("verified with its block");
        let is_hole = matches!(extent.kind, FileExtentKind::Hole(_));
        bytes = bytes.saturating_add(if is_hole { 0 } else { extent.file_bytes() });
        cursor.advance()?;
    }
    Ok(bytes)
}

/// Returns true if the tree has exactly this extent in a file, and nothing is pending there.
pub(crate) fn replay_has_extent(
    inodes: &Inodes,
    inode: &Inode,
    start: u64,
    end: u64,
    data: &[u8],
) -> Result<bool> {
    let (waits, until) = inode.pending_extents(start, end, 1);
    if !waits.is_empty() || until < end {
        return Ok(false);
    }
    let key = Key::new(inode.number(), ItemKind::EXTENT_DATA, start);
    let position = inode.tree().search(inodes.tree_roots.store(), &key)?;
    Ok(position.exact && position.leaf.item(position.slot).data == data)
}

/// Changes an inode, but not its times.
fn alter(operation: &Operation<'_>, inode: &Arc<Inode>, change: impl FnOnce(&mut State)) {
    operation.change_state(inode, &mut inode.state(), change);
}

/// Returns the item that will store a name.
fn item_of(place: RefIndex, dir: u64, name: &[u8]) -> NamesItem {
    match place {
        RefIndex::Ref => NamesItem::Ref(dir),
        RefIndex::Extref => NamesItem::Extref(userbtrfs_codec::hash::extref_hash(dir, name)),
    }
}

/// Returns true if an index of a directory, or a name of the inode there, was removed and the
/// removal is not in the tree.
fn was_given_up(dir: &Inode, inode: &Inode, index: u64) -> bool {
    let in_dir = dir.state().sets().any(|set| set.entries.by_index.contains_key(&index));
    let at = (dir.number(), index);
    let refs = || {
        let state = inode.state();
        state.sets().any(|set| set.refs.iter().any(|one| (one.dir, one.entry.index) == at))
    };
    in_dir || refs()
}

/// Sets an existing inode to its logged state. If only its existence was logged (generation 0), it
/// stays as it is, except the size of a file that was logged with one.
fn overwrite(state: &mut State, logged: &InodeItem) {
    let now = &state.item;
    if logged.generation == 0 {
        let sized = logged.kind == FileKind::Regular && logged.size > 0;
        let size = if sized { logged.size } else { now.size };
        (state.item.size, state.disk_size) = (size, None);
        return;
    }
    let size = if logged.kind == FileKind::Directory { now.size } else { logged.size };
    let transid = now.transid;
    let nbytes = now.nbytes;
    state.item = InodeItem { size, nbytes, transid, ..logged.clone() };
    state.disk_size = None;
}
