//! Delayed items of an inode, by entry: a name, a ref, an extended attribute.
//!
//! 1. A set belongs to one transaction. An inode has at most two sets: the running one, and a
//!    frozen one that is being flushed.
//! 2. An entry that was added and removed within one set leaves nothing, if no older set and no
//!    tree has it; otherwise the removal is kept as a tombstone.
//! 3. A removed name may be added again at another place. A place, (directory, index), is never
//!    reused.

use std::collections::{BTreeMap, HashMap};

use userbtrfs_btree::ShortKeys;
use userbtrfs_codec::hash::name_hash;
use userbtrfs_sync::Arc;

use crate::inode::incore::extent_map::{ExtentMap, ExtentMapKind};
use crate::inode::log_state::few::Few;
use crate::inode::pending::extents::{ExtentChanges, Replaced};
use crate::inode::{Entry, Link};

/// The approximate overhead of an allocation.
const ALLOCATED: usize = 16;
/// The approximate memory for an entry beside its name, with its slots in maps that are half full.
const ENTRY_BYTES: usize =
    size_of::<Entry>() + 4 * ALLOCATED + 2 * size_of::<(u32, Few<NameChange>, u64, usize)>();
/// The approximate memory for an attribute beside its name and its value.
const XATTR_BYTES: usize = 4 * ALLOCATED + 2 * size_of::<(u32, Few<XattrChange>)>();
/// The approximate memory for a range of a file, before and during a flush.
const EXTENT_BYTES: usize = 4 * size_of::<ExtentMap>();
/// The approximate memory for a set, before and during a flush.
pub(in crate::inode) const SET_BYTES: usize =
    size_of::<DelayedItems>() + 3 * ALLOCATED + size_of::<usize>();

/// A set of delayed changes of one inode (Linux: btrfs_delayed_node).
#[derive(Default)]
pub(in crate::inode) struct DelayedItems {
    /// The inode is new: neither a tree nor an older set has it.
    pub(in crate::inode) created: bool,
    /// The inode is deleted, with all items that its tree has of it.
    pub(in crate::inode) gone: bool,
    /// Whether to add or to remove its ORPHAN_ITEM; `None` if that does not change.
    pub(in crate::inode) orphan: Option<bool>,
    /// Ranges of a file that changed.
    pub(in crate::inode) extents: ExtentChanges,
    /// Changed entries of a directory.
    pub(in crate::inode) entries: EntryChanges,
    /// Changed names of the inode, sorted by directory and place.
    pub(in crate::inode) refs: Few<RefChange>,
    /// Changed extended attributes, by hash; one for each name.
    pub(in crate::inode) xattrs: BTreeMap<u32, Few<XattrChange>>,
    /// The approximate memory in use.
    pub(in crate::inode) bytes: usize,
}

/// The kind of item that stores a name of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefIndex {
    /// INODE_REF.
    Ref,
    /// INODE_EXTREF, used if the INODE_REF is full.
    Extref,
}

/// A name of an inode, and the item that stores it.
pub(crate) type IndexedLink = (Link, RefIndex);

/// A name of an inode that is added or removed.
pub(in crate::inode) struct RefChange {
    pub(in crate::inode) dir: u64,
    pub(in crate::inode) entry: Arc<Entry>,
    /// The item that stores it; `None` if it is removed.
    pub(in crate::inode) place: Option<RefIndex>,
}

/// An extended attribute that is set or removed.
pub(in crate::inode) struct XattrChange {
    pub(in crate::inode) name: Box<[u8]>,
    /// `None` if it is removed.
    pub(in crate::inode) value: Option<Arc<[u8]>>,
}

/// The delayed change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::inode) enum Delayed<T> {
    /// It is added or changed.
    There(T),
    /// It is removed.
    Gone,
    /// No change: older sets or the tree have the answer.
    Nothing,
}

/// Entries of a directory that are added and removed.
#[derive(Default)]
pub(in crate::inode) struct EntryChanges {
    /// By hash; one for each name.
    pub(in crate::inode) by_name: HashMap<u32, Few<NameChange>, ShortKeys>,
    /// By place; `None` for a removed entry.
    pub(in crate::inode) by_index: BTreeMap<u64, Option<Arc<Entry>>>,
}

/// The change of one name.
pub(in crate::inode) struct NameChange {
    /// The entry that has it, or had it last.
    pub(in crate::inode) entry: Arc<Entry>,
    pub(in crate::inode) there: bool,
    /// Whether an older set or the tree has the name.
    pub(in crate::inode) below: bool,
}

impl EntryChanges {
    /// Returns the delayed change of a name.
    pub(in crate::inode) fn find(&self, hash: u32, name: &[u8]) -> Delayed<&Arc<Entry>> {
        let mut alike = self.by_name.get(&hash).into_iter().flat_map(|alike| alike.iter());
        match alike.find(|change| *change.entry.name == *name) {
            Some(change) if change.there => Delayed::There(&change.entry),
            Some(_) => Delayed::Gone,
            None => Delayed::Nothing,
        }
    }

    /// Returns the added entries whose names have this hash.
    pub(in crate::inode) fn added(&self, hash: u32) -> impl Iterator<Item = &Arc<Entry>> {
        let alike = self.by_name.get(&hash).into_iter().flat_map(|alike| alike.iter());
        alike.filter(|change| change.there).map(|change| &change.entry)
    }

    /// Adds an entry whose name did not exist.
    fn add(&mut self, entry: &Arc<Entry>) {
        let alike = self.by_name.entry(entry.hash()).or_default();
        match alike.iter_mut().find(|change| change.entry.name == entry.name) {
            Some(change) => {
                assert!(!change.there, "a name is given once");
                (change.entry, change.there) = (Arc::clone(entry), true);
            }
            None => alike.push(NameChange { entry: Arc::clone(entry), there: true, below: false }),
        }
        let before = self.by_index.insert(entry.index, Some(Arc::clone(entry)));
        assert!(before.is_none(), "a place is taken once");
    }

    /// Removes an entry that existed.
    fn remove(&mut self, entry: &Arc<Entry>) {
        let hash = entry.hash();
        let alike = self.by_name.entry(hash).or_default();
        match alike.iter().position(|change| change.entry.name == entry.name) {
            Some(at) if !alike[at].below => drop(alike.remove(at)),
            Some(at) => alike[at].there = false,
            None => alike.push(NameChange { entry: Arc::clone(entry), there: false, below: true }),
        }
        if alike.is_empty() {
            self.by_name.remove(&hash);
        }
        match self.by_index.remove(&entry.index) {
            Some(Some(_)) => {}
            Some(None) => unreachable!("a place is given up once"),
            None => drop(self.by_index.insert(entry.index, None)),
        }
    }
}

impl DelayedItems {
    /// Creates the set of an inode that is being created.
    pub(in crate::inode) fn of_new() -> Self {
        Self { created: true, bytes: SET_BYTES, ..Self::default() }
    }

    /// Creates a set of an inode that exists.
    pub(in crate::inode) fn of_old() -> Self {
        Self { bytes: SET_BYTES, ..Self::default() }
    }

    pub(in crate::inode) fn add_entry(&mut self, entry: &Arc<Entry>) {
        self.bytes += ENTRY_BYTES + entry.name.len();
        self.entries.add(entry);
    }

    pub(in crate::inode) fn remove_entry(&mut self, entry: &Arc<Entry>) {
        self.bytes += ENTRY_BYTES + entry.name.len();
        self.entries.remove(entry);
    }

    /// Adds a name in `dir`.
    pub(in crate::inode) fn add_ref(&mut self, dir: u64, entry: &Arc<Entry>, place: RefIndex) {
        self.bytes += size_of::<RefChange>();
        let at = self.ref_at(dir, entry.index).expect_err("a place is taken once");
        self.refs.insert(at, RefChange { dir, entry: Arc::clone(entry), place: Some(place) });
    }

    /// Removes a name in `dir`.
    pub(in crate::inode) fn remove_ref(&mut self, dir: u64, entry: &Arc<Entry>) {
        self.bytes += size_of::<RefChange>();
        match self.ref_at(dir, entry.index) {
            Ok(at) => {
                let came = self.refs.remove(at).place;
                assert!(came.is_some(), "a place is given up once");
            }
            Err(at) => {
                self.refs.insert(at, RefChange { dir, entry: Arc::clone(entry), place: None });
            }
        }
    }

    /// Returns the position of a name in the list, or where to insert it.
    fn ref_at(&self, dir: u64, index: u64) -> Result<usize, usize> {
        self.refs.binary_search_by_key(&(dir, index), |change| (change.dir, change.entry.index))
    }

    /// Returns the delayed change of an attribute.
    pub(in crate::inode) fn xattr(&self, name: &[u8]) -> Delayed<&Arc<[u8]>> {
        let alike = self.xattrs.get(&name_hash(name));
        let mut alike = alike.into_iter().flat_map(|alike| alike.iter());
        match alike.find(|change| *change.name == *name) {
            Some(change) => change.value.as_ref().map_or(Delayed::Gone, Delayed::There),
            None => Delayed::Nothing,
        }
    }

    pub(in crate::inode) fn set_xattr(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.bytes += XATTR_BYTES + name.len() + value.map_or(0, <[u8]>::len);
        let value = value.map(Arc::from);
        let alike = self.xattrs.entry(name_hash(name)).or_default();
        match alike.iter_mut().find(|change| *change.name == *name) {
            Some(change) => change.value = value,
            None => alike.push(XattrChange { name: name.into(), value }),
        }
    }

    /// Puts a range of a file over the pending ranges. In the set that created the inode a hole
    /// only clears them: nothing is on disk that it could replace.
    pub(in crate::inode) fn put_extent(&mut self, extent: ExtentMap) -> Vec<Replaced> {
        self.bytes += EXTENT_BYTES;
        match &extent.kind {
            ExtentMapKind::Hole if self.created => {
                return self.extents.clear(extent.start, extent.end);
            }
            ExtentMapKind::Inline(inline) => self.bytes += inline.stored().len(),
            _ => {}
        }
        self.extents.insert(extent)
    }

    /// Replaces all changes by the deletion of the inode, and of its ORPHAN_ITEM if it is `listed`.
    pub(in crate::inode) fn set_gone(&mut self, listed: bool) {
        let bytes = self.bytes;
        let orphan = listed.then_some(false);
        *self = Self { gone: true, orphan, bytes, ..Self::default() };
    }

    /// Returns the names that are added in `dir`.
    pub(in crate::inode) fn refs_added(
        &self,
        dir: u64,
    ) -> impl Iterator<Item = (&Arc<Entry>, RefIndex)> {
        let first = self.refs.partition_point(|change| change.dir < dir);
        let changes = self.refs[first..].iter().take_while(move |change| change.dir == dir);
        changes.filter_map(|change| change.place.map(|place| (&change.entry, place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::testing::{alike, entry};

    #[test]
    fn entry_added_and_removed_in_one_set_leaves_nothing() {
        let mut pending = DelayedItems::default();
        let a = entry(2, b"a", 300);
        pending.add_entry(&a);
        pending.add_ref(256, &a, RefIndex::Ref);
        assert_eq!(pending.entries.find(a.hash(), b"a"), Delayed::There(&a));
        pending.remove_entry(&a);
        pending.remove_ref(256, &a);
        assert_eq!(pending.entries.find(a.hash(), b"a"), Delayed::Nothing);
        assert!(pending.entries.by_index.is_empty() && pending.entries.by_name.is_empty());
        assert!(pending.refs.is_empty());
    }

    #[test]
    fn stored_name_leaves_tombstone_however_often_readded() {
        let mut pending = DelayedItems::default();
        let old = entry(2, b"a", 300);
        let new = entry(9, b"a", 301);
        pending.remove_entry(&old);
        assert_eq!(pending.entries.find(old.hash(), b"a"), Delayed::Gone);
        pending.add_entry(&new);
        assert_eq!(pending.entries.find(old.hash(), b"a"), Delayed::There(&new));
        pending.remove_entry(&new);
        assert_eq!(pending.entries.find(old.hash(), b"a"), Delayed::Gone);
        let places: Vec<_> = pending.entries.by_index.iter().collect();
        assert_eq!(places, [(&2, &None)]);
    }

    #[test]
    fn names_of_one_hash_are_distinguished() {
        let mut pending = DelayedItems::default();
        let [one, two] = alike();
        let a = entry(2, &one, 300);
        let b = entry(3, &two, 301);
        assert_eq!(a.hash(), b.hash());
        pending.add_entry(&a);
        pending.add_entry(&b);
        assert_eq!(pending.entries.by_name.len(), 1);
        pending.remove_entry(&a);
        assert_eq!(pending.entries.find(a.hash(), &one), Delayed::Nothing);
        assert_eq!(pending.entries.find(a.hash(), &two), Delayed::There(&b));
        assert_eq!(pending.entries.added(a.hash()).collect::<Vec<_>>(), [&b]);
    }
}
