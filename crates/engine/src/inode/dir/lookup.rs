//! Looks names up, lists them, and finds the names of an inode.

use std::collections::BTreeMap;

use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{DirEntryKind, FileKind, NAME_LEN_MAX};
use userbtrfs_sync::Arc;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::dcache::CachedName;
use crate::inode::incore::inode::State;
use crate::inode::log_state::tracker::RemovedName;
use crate::inode::pending::delayed_items::{Delayed, RefIndex};
use crate::inode::tree::ondisk;
use crate::inode::{
    EMPTY_DIR, Entry, EntryTarget, IndexedLink, Inode, Inodes, Link, subvolume_name,
};

/// A position in a directory: the index of the next entry.
pub(crate) type DirPosition = u64;

/// About the most entries that one call of [`list`] returns.
const LIST_MAX: usize = 4096;

/// The number of entries to read ahead when names are looked up sequentially.
const AHEAD: usize = 128;

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) target: EntryTarget,
    pub(crate) kind: DirEntryKind,
    /// The whole entry, if it is in memory.
    entry: Option<Arc<Entry>>,
    /// The version of the dentry cache when the name was looked up in the tree.
    version: u64,
}

impl Found {
    fn of(entry: Arc<Entry>) -> Self {
        Self { target: entry.target, kind: entry.kind, entry: Some(entry), version: 0 }
    }
}

/// Fails if a name is longer than any entry's, as Linux does also where there are no entries.
fn check_length(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN_MAX { Err(Error::NameTooLong) } else { Ok(()) }
}

/// Checks that a name is valid for a new entry.
pub(in crate::inode) fn check_new_name(name: &[u8]) -> Result<()> {
    check_length(name)?;
    let impossible = name.is_empty() || name.contains(&b'/') || name.contains(&0);
    if impossible || name == b"." || name == b".." {
        Err(Error::BadName(name.to_vec()))
    } else {
        Ok(())
    }
}

/// The names of an inode, as the tree log needs them.
pub(crate) struct NamesToLog {
    /// Its names, and the item that stores each.
    pub(crate) names: Vec<IndexedLink>,
    /// The names that it lost.
    pub(crate) lost: Vec<RemovedName>,
    /// Those of `lost` that are not committed, and whose entries are removed: they can be forgotten
    /// once they are logged.
    pub(crate) over: Vec<RemovedName>,
    /// Its link count when the names were read.
    pub(crate) count: u32,
    /// Whether a rename of it, or with it, is in progress.
    pub(crate) is_moving: bool,
    /// Whether it had no name yet then, and could be given its first.
    pub(crate) is_linkable: bool,
    /// Its sequence number then, which changes with each change.
    pub(crate) sequence: u64,
}

/// Looks a name up in a directory; `None` if it does not exist.
pub(crate) fn lookup(inodes: &Inodes, dir: InodeId, name: &[u8]) -> Result<Option<Found>> {
    check_length(name)?;
    if dir.number == EMPTY_DIR {
        return Ok(None);
    }
    let dir = inodes.inode(dir)?;
    match dir.kind() {
        FileKind::Directory => find_name(inodes, &dir, name),
        _ => Err(Error::NotADirectory),
    }
}

/// Looks a name up in a directory; `None` if it does not exist. A deleted directory has no
/// names, although its tree may still have items.
pub(in crate::inode) fn find_name(
    inodes: &Inodes,
    dir: &Inode,
    name: &[u8],
) -> Result<Option<Found>> {
    check_length(name)?;
    let hash = name_hash(name);
    let version = {
        let mut state = dir.state();
        if state.dead {
            return Ok(None);
        }
        match state.dentry_cache().find(hash, name) {
            CachedName::There(entry) => return Ok(Some(Found::of(entry))),
            CachedName::Absent => return Ok(None),
            CachedName::Nothing(version) => match state.pending_entry(hash, name) {
                Delayed::There(entry) => return Ok(Some(Found::of(entry))),
                Delayed::Gone => return Ok(None),
                Delayed::Nothing => version,
            },
        }
    };
    let found = match dir.late_name(hash, name) {
        Delayed::There(found) => Some(found),
        Delayed::Gone => return Ok(None),
        Delayed::Nothing => {
            let (found, _) = ondisk::lookup(&inodes.tree_roots, dir.tree(), dir.number(), name)?;
            match &found {
                None => dir.state().dentry_cache().learn_absent(version, hash, name),
                Some(found) if found.is_doubled => dir.state().dentry_cache().learn_doubled(hash),
                Some(_) => {}
            }
            found.map(|found| (found.target, found.kind))
        }
    };
    Ok(found.map(|(target, kind)| Found { target, kind, entry: None, version }))
}

/// Makes the other entry of a name visible that a damaged directory stores twice, after one of the
/// two was removed: the removal hides the name until it is in the tree, so the transaction is
/// committed. Does nothing for any other name. The caller holds no lock.
pub(in crate::inode) fn show_other_entry(inodes: &Inodes, dir: &Inode, name: &[u8]) -> Result<()> {
    if dir.state().dentry_cache().take_doubled(name_hash(name)) {
        inodes.transactions()?.commit()?;
    }
    Ok(())
}

/// Looks a name up again; `before` is the previous result, which is reused if nothing changed.
pub(in crate::inode) fn find_name_again(
    inodes: &Inodes,
    dir: &Inode,
    name: &[u8],
    before: Option<&Found>,
) -> Result<Option<Found>> {
    let is_same = |found: &&Found| {
        found.entry.is_none() && dir.state().dentry_cache().is_version(found.version)
    };
    match before.filter(is_same) {
        Some(found) => Ok(Some(found.clone())),
        None => find_name(inodes, dir, name),
    }
}

/// Returns the whole entry of a name that was found to lead to `inode`. The entries of the
/// directory are locked.
pub(in crate::inode) fn full_entry(
    inodes: &Inodes,
    dir: &Inode,
    name: &[u8],
    found: Found,
    inode: &Inode,
) -> Result<Arc<Entry>> {
    let Found { target, kind, entry, version } = found;
    if let Some(entry) = entry {
        return Ok(entry);
    }
    let Some(index) = index_of(inodes, inode, dir.number(), name)? else {
        return Err(Error::Stray { dir: dir.id(), name: name.to_vec(), child: inode.id() });
    };
    // The index comes from another item than the entry, so check that they agree.
    let (there, _) = list_some(inodes, dir, index, 1)?;
    let is_it = |it: &Arc<Entry>| (it.index, &*it.name, it.target) == (index, name, target);
    if !there.first().is_some_and(is_it) {
        return Err(Error::Stray { dir: dir.id(), name: name.to_vec(), child: inode.id() });
    }
    let entry = Arc::new(Entry { index, name: name.into(), kind, target, transid: 0 });
    dir.state().dentry_cache().learn(version, &entry);
    look_ahead(inodes, dir, index);
    Ok(entry)
}

/// If names are looked up in the order of their indexes, caches those that follow. If that
/// fails, they are looked up when they are needed.
fn look_ahead(inodes: &Inodes, dir: &Inode, index: u64) {
    let Some(version) = dir.state().dentry_cache().follows(index) else { return };
    let Ok((mut entries, _)) = list_some(inodes, dir, index.saturating_add(1), AHEAD) else {
        return;
    };
    let mut near = ondisk::LocalityCursor::new(&inodes.tree_roots, dir.tree());
    entries.retain(|entry| is_agreed(&mut near, dir, entry));
    dir.state().dentry_cache().learn_ahead(version, &entries);
}

/// Returns the inode of an entry; [`Error::IsSubvolume`] for a subvolume.
pub(in crate::inode) fn target_inode(
    inodes: &Inodes,
    dir: &Inode,
    target: EntryTarget,
) -> Result<Arc<Inode>> {
    match target {
        EntryTarget::Inode(number) => inodes.inode(InodeId { number, ..dir.id() }),
        EntryTarget::Subvolume(_) => Err(Error::IsSubvolume),
    }
}

/// Like `target`, but needs no lock, and returns `None` if the name no longer leads there: an
/// unlink removes the last name before the inode.
pub(in crate::inode) fn target_if_named(
    inodes: &Inodes,
    dir: &Inode,
    name: &[u8],
    target: EntryTarget,
) -> Result<Option<Arc<Inode>>> {
    match target_inode(inodes, dir, target) {
        Err(Error::NoInode(_))
            if find_name(inodes, dir, name)?.is_none_or(|found| found.target != target) =>
        {
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// Returns the index of the name that an inode has in a directory.
fn index_of(inodes: &Inodes, inode: &Inode, dir: u64, name: &[u8]) -> Result<Option<u64>> {
    let is_it = |(entry, _): &(&Arc<Entry>, _)| *entry.name == *name;
    let pending = {
        let state = inode.state();
        let found = state.sets().find_map(|set| set.refs_added(dir).find(is_it));
        found.map(|(entry, _)| entry.index)
    };
    match pending {
        Some(index) => Ok(Some(index)),
        None => ondisk::LocalityCursor::new(&inodes.tree_roots, inode.tree()).index_of(
            inode.number(),
            dir,
            name,
        ),
    }
}

/// Returns all names of an inode.
pub(crate) fn names(inodes: &Inodes, id: InodeId) -> Result<Vec<Link>> {
    if id.number == EMPTY_DIR {
        return Ok(Vec::new());
    }
    let inode = inodes.inode(id)?;
    let changes = NameChanges::of(&*inode.living()?);
    let names = names_with(inodes, &inode, changes)?;
    Ok(names.into_iter().map(|(link, _)| link).collect())
}

/// Returns the parent of a directory; for the root of a subvolume, the root itself. `None` if
/// its names are damaged.
pub(crate) fn parent(inodes: &Inodes, dir: InodeId) -> Result<Option<InodeId>> {
    if dir.number == EMPTY_DIR {
        return Ok(None);
    }
    let known = inodes.inode(dir)?.living()?.parent;
    let parent = match known {
        Some(parent) => Some(parent),
        None => names(inodes, dir)?.first().map(|name| name.dir),
    };
    Ok(parent.map(|number| InodeId { number, ..dir }))
}

/// Increments the link count of an inode but adds no name, as on a damaged filesystem.
#[cfg(test)]
pub(crate) fn miscount(inodes: &Inodes, id: InodeId) {
    inodes.inode(id).unwrap().state().item.nlink += 1;
}

/// Like [`names`], but without names that are noted as lost in transaction `running`,
/// and with the item that stores each; also returns the lost names that the log may need.
pub(crate) fn names_to_log(inodes: &Inodes, inode: &Inode, running: u64) -> Result<NamesToLog> {
    let (changes, is_linkable, (count, sequence), (lost, is_moving)) = {
        let state = inode.state();
        let counts = (state.item.nlink, state.item.sequence);
        let lost = inodes.log_tracker.lost(running, inode.id());
        (NameChanges::of(&state), state.is_linkable(), counts, lost)
    };
    let mut names = names_with(inodes, inode, changes)?;
    let is_at = |lost: &RemovedName, link: &Link| (lost.dir, lost.index) == (link.dir, link.index);
    let is_over =
        |it: &&RemovedName| !it.committed && !names.iter().any(|(link, _)| is_at(it, link));
    let over = lost.iter().filter(is_over).copied().collect();
    names.retain(|(link, _)| !lost.iter().any(|it| is_at(it, link)));
    Ok(NamesToLog { names, lost, over, count, is_moving, is_linkable, sequence })
}

/// Returns the names of an inode with these delayed changes, and the item that stores each.
fn names_with(inodes: &Inodes, inode: &Inode, changes: NameChanges) -> Result<Vec<IndexedLink>> {
    let NameChanges { by_place, is_all } = changes;
    let mut names = if is_all {
        Vec::new()
    } else {
        ondisk::names(&inodes.tree_roots, inode.tree(), inode.number())?
    };
    names.retain(|(link, _)| !by_place.contains_key(&(link.dir, link.index)));
    let added = by_place.into_iter().filter_map(|((dir, index), there)| {
        there.map(|(entry, place)| (Link { dir, index, name: entry.name.to_vec() }, place))
    });
    names.extend(added);
    Ok(names)
}

/// Returns entries from `position` on, and the position after them, or `None` if no more
/// follow. The list may be empty although more follow. Entries before damage are listed; the
/// next call returns the error.
pub(crate) fn list(
    inodes: &Inodes,
    dir: InodeId,
    position: DirPosition,
) -> Result<(Vec<Arc<Entry>>, Option<DirPosition>)> {
    list_some_of(inodes, dir, position, LIST_MAX)
}

/// Returns the position after damage that ends a listing at `position`, or `None` if no entries
/// can be read after it.
pub(crate) fn behind_damage(
    inodes: &Inodes,
    dir: InodeId,
    position: DirPosition,
) -> Option<DirPosition> {
    let dir = inodes.inode(dir).ok()?;
    ondisk::behind_damage(&inodes.tree_roots, dir.tree(), dir.number(), position)
}

/// Like [`list`], with at most about `max` entries.
pub(crate) fn list_some_of(
    inodes: &Inodes,
    dir: InodeId,
    position: DirPosition,
    max: usize,
) -> Result<(Vec<Arc<Entry>>, Option<DirPosition>)> {
    if dir.number == EMPTY_DIR {
        return Ok((Vec::new(), None));
    }
    list_some(inodes, &*inodes.inode(dir)?, position, max)
}

/// Like [`list_some_of`], for an inode that is loaded.
pub(in crate::inode) fn list_some(
    inodes: &Inodes,
    dir: &Inode,
    position: DirPosition,
    max: usize,
) -> Result<(Vec<Arc<Entry>>, Option<DirPosition>)> {
    let state = dir.living()?;
    // A caller that lists all entries calls once more after the last one.
    if state.next_index.is_some_and(|next| position >= next) {
        return Ok((Vec::new(), None));
    }
    if let Some(listed) = state.dentry_cache.as_deref().and_then(|known| known.list(position)) {
        return Ok((listed, None));
    }
    // Read the delayed items first: they are dropped only after they are in the tree.
    let (changes, end) = pending_entries(&state, position, max);
    drop(state);
    let (stored, next) = ondisk::list(&inodes.tree_roots, dir.tree(), dir.number(), position, max)?;
    let end = end.into_iter().chain(next).min();
    let listed = stored.into_iter().map(|entry| (entry.index, Arc::new(entry)));
    let before = |index: &u64| end.is_none_or(|end| *index < end);
    if !changes.keys().next().is_some_and(before) {
        let before = |(index, _): &(u64, _)| before(index);
        return Ok((listed.take_while(before).map(|(_, entry)| entry).collect(), end));
    }
    let mut listed: BTreeMap<u64, Arc<Entry>> = listed.collect();
    for (index, change) in changes {
        match change {
            Some(entry) => listed.insert(index, entry),
            None => listed.remove(&index),
        };
    }
    if let Some(end) = end {
        listed.split_off(&end);
    }
    Ok((listed.into_values().collect(), end))
}

/// Returns the position after all entries of a directory.
pub(crate) fn end_of(inodes: &Inodes, dir: InodeId) -> Result<DirPosition> {
    if dir.number == EMPTY_DIR {
        return Ok(0);
    }
    let dir = inodes.inode(dir)?;
    let known = || dir.state().next_index;
    if let Some(next) = known() {
        return Ok(next);
    }
    let stored = ondisk::next_index(&inodes.tree_roots, dir.tree(), dir.number())?;
    // An entry may have been added meanwhile.
    Ok(known().unwrap_or(stored))
}

/// Checks that the first name of a directory is the entry of `dir` that leads to it.
///
/// Since each directory has one first name, those that pass form a tree.
pub(crate) fn check_way_down(
    inodes: &Inodes,
    dir: InodeId,
    entry: &Entry,
    child: InodeId,
) -> Result<()> {
    if child.number == EMPTY_DIR {
        return Ok(());
    }
    let known = if child.subvolume == dir.subvolume {
        names(inodes, child)?.into_iter().next()
    } else {
        let known = subvolume_name(&inodes.tree_roots, child.subvolume)?;
        known.filter(|(parent, _)| *parent == dir.subvolume).map(|(_, name)| name)
    };
    let name = entry.name.to_vec();
    let wanted = Link { dir: dir.number, index: entry.index, name: name.clone() };
    if known == Some(wanted) { Ok(()) } else { Err(Error::Stray { dir, name, child }) }
}

/// An added name, and the item that will store it.
type NewName = (Arc<Entry>, RefIndex);

/// The delayed changes of the names of an inode.
struct NameChanges {
    /// By directory and index; `None` for a removed name.
    by_place: BTreeMap<(u64, u64), Option<NewName>>,
    /// Whether the tree has no items of the inode.
    is_all: bool,
}

impl NameChanges {
    fn of(state: &State) -> Self {
        let mut by_place = BTreeMap::new();
        for change in state.sets().flat_map(|set| set.refs.iter()) {
            let there = change.place.map(|place| (Arc::clone(&change.entry), place));
            by_place.entry((change.dir, change.entry.index)).or_insert(there);
        }
        Self { by_place, is_all: state.sets().any(|set| set.created) }
    }
}

/// Returns true if the inode of an entry has that name there in its tree, too: an index alone may
/// be damaged, and must not be relied on.
fn is_agreed(near: &mut ondisk::LocalityCursor<'_>, dir: &Inode, entry: &Entry) -> bool {
    let EntryTarget::Inode(number) = entry.target else { return false };
    let index = near.index_of(number, dir.number(), &entry.name);
    index.is_ok_and(|index| index == Some(entry.index))
}

/// Returns the delayed changes of a directory from an index on, the newest for each index, and the
/// index up to which they are complete.
fn pending_entries(
    state: &State,
    position: DirPosition,
    max: usize,
) -> (BTreeMap<u64, Option<Arc<Entry>>>, Option<DirPosition>) {
    let mut changes = BTreeMap::new();
    let mut end = None;
    for set in state.sets() {
        let mut places = set.entries.by_index.range(position..);
        for (index, entry) in places.by_ref().take(max) {
            changes.entry(*index).or_insert_with(|| entry.clone());
        }
        end = end.into_iter().chain(places.next().map(|(next, _)| *next)).min();
    }
    (changes, end)
}
