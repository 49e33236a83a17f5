//! DIR_ITEMs of a directory whose changes are written to its tree later than all else.
//!
//! The DIR_ITEMs of a large directory are ordered by hash, so a few new names fall into nearly as
//! many leaves. Therefore their changes are kept here, packed, while all else that changed with
//! them is flushed, until they are many compared with the names of the directory, or memory
//! pressure or a commit requires it; then each leaf is visited once for all of them. Under memory
//! pressure one bucket of hashes is flushed at a time, so that no operation waits for long.
//!
//! 1. These changes are older than the sets of the directory, and newer than its tree.
//! 2. They change only during a flush, and are dropped once all of them are in the tree.
//! 3. For each hash there is one change for each name of this hash that changed. A name that was
//!    added and removed, and that the tree does not have, leaves nothing.

use std::collections::{BTreeMap, HashMap};

use bitflags::bitflags;
use userbtrfs_btree::ShortKeys;
use userbtrfs_format::{DirEntry, DirEntryKind, ItemKind, TreeId};

use crate::inode::EntryTarget;
use crate::inode::pending::delayed_items::{Delayed, NameChange};

/// The deferred changes of a directory's DIR_ITEMs, in buckets of hashes.
#[derive(Default)]
pub(in crate::inode) struct DeferredDirItems {
    /// No bucket is empty.
    parts: BTreeMap<HashBucket, BucketNames>,
}

/// One of 256 buckets of hashes, in hash order: the hashes that begin with the same byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::inode) struct HashBucket(u8);

impl HashBucket {
    fn of(hash: u32) -> Self {
        let [first, ..] = hash.to_be_bytes();
        Self(first)
    }
}

/// The changes of names whose hashes are in one bucket.
#[derive(Default)]
struct BucketNames {
    /// The offset in `packed` of the changes of each hash.
    by_hash: HashMap<u32, u32, ShortKeys>,
    /// Updated changes of a hash are appended; the previous ones stay as garbage.
    packed: Vec<u8>,
    /// The total length of the names.
    names_len: usize,
}

/// A deferred change of one name.
pub(in crate::inode) struct DeferredDirItem<'a> {
    pub(in crate::inode) name: &'a [u8],
    /// The entry that the DIR_ITEM is to hold; `None` to remove it.
    pub(in crate::inode) entry: Option<DirEntry<'a>>,
    /// Whether the tree has the name.
    pub(in crate::inode) below: bool,
}

bitflags! {
    /// The first byte of a packed change. The name follows, with its length, then the entry, if
    /// there is one: a kind and two numbers, each with its length in bytes.
    #[derive(Clone, Copy)]
    struct Head: u8 {
        /// It has an entry.
        const THERE = 1;
        /// The tree has the name.
        const BELOW = 1 << 1;
        /// The entry leads to a subvolume.
        const SUBVOLUME = 1 << 2;
        /// It is the last change of its hash.
        const LAST = 1 << 3;
    }
}

/// The approximate memory for a hash.
const HASH_BYTES: usize = 20;

const SOUND: &str = "packed here";

impl DeferredDirItems {
    /// Returns the approximate memory in use.
    pub(in crate::inode) fn bytes(&self) -> usize {
        self.parts.values().map(BucketNames::bytes).sum()
    }

    /// Adds changes of names of the same hash.
    pub(in crate::inode) fn take_in(&mut self, hash: u32, alike: &[NameChange]) {
        let part = HashBucket::of(hash);
        let names = self.parts.entry(part).or_default();
        names.take_in(hash, alike);
        if names.by_hash.is_empty() {
            self.parts.remove(&part);
        }
    }

    /// Returns the deferred change of a name.
    pub(in crate::inode) fn find(
        &self,
        hash: u32,
        name: &[u8],
    ) -> Delayed<(EntryTarget, DirEntryKind)> {
        let found = self.alike(hash).find(|change| change.name == name);
        match found.map(|change| change.entry) {
            Some(Some(entry)) => Delayed::There((EntryTarget::from_disk(&entry), entry.kind)),
            Some(None) => Delayed::Gone,
            None => Delayed::Nothing,
        }
    }

    /// Returns the names of this hash that are added.
    pub(in crate::inode) fn added(&self, hash: u32) -> impl Iterator<Item = &[u8]> {
        self.alike(hash).filter(|change| change.entry.is_some()).map(|change| change.name)
    }

    /// Returns the total length of the names.
    pub(in crate::inode) fn names_len(&self) -> usize {
        self.parts.values().map(|names| names.names_len).sum()
    }

    /// Returns the bucket that takes the most memory.
    pub(in crate::inode) fn largest(&self) -> HashBucket {
        let largest = self.parts.iter().max_by_key(|(_, names)| names.bytes());
        *largest.expect("what is empty is dropped").0
    }

    /// Returns the packed changes of each hash of one bucket, or of all, in hash order.
    pub(in crate::inode) fn iter(
        &self,
        part: Option<HashBucket>,
    ) -> impl Iterator<Item = (u32, &[u8])> {
        let is_wanted = move |of: &HashBucket| part.is_none_or(|part| part == *of);
        self.parts.iter().filter(move |(of, _)| is_wanted(of)).flat_map(|(_, names)| names.iter())
    }

    /// Drops the changes of one bucket, or of all.
    pub(in crate::inode) fn forget(&mut self, part: Option<HashBucket>) {
        match part {
            Some(part) => drop(self.parts.remove(&part)),
            None => self.parts.clear(),
        }
    }

    fn alike(&self, hash: u32) -> impl Iterator<Item = DeferredDirItem<'_>> {
        unpacked(self.parts.get(&HashBucket::of(hash)).map_or(&[], |names| names.alike(hash)))
    }
}

impl BucketNames {
    fn bytes(&self) -> usize {
        self.packed.len() + self.by_hash.len() * HASH_BYTES
    }

    fn take_in(&mut self, hash: u32, alike: &[NameChange]) {
        let old = self.alike(hash).to_vec();
        let is_same = |old: &DeferredDirItem<'_>, new: &NameChange| *old.name == *new.entry.name;
        let stay = unpacked(&old).filter(|old| !alike.iter().any(|new| is_same(old, new)));
        let come = alike.iter().filter_map(|new| {
            let below = unpacked(&old).find(|old| is_same(old, new)).map(|old| old.below);
            DeferredDirItem::of(new, below.unwrap_or(new.below))
        });
        self.names_len -= names_len(&old);
        self.put(hash, stay.chain(come));
    }

    /// Packs the changes of the names of a hash.
    fn put<'a>(&mut self, hash: u32, changes: impl Iterator<Item = DeferredDirItem<'a>>) {
        let at = u32::try_from(self.packed.len()).expect("merged before it is so much");
        let mut changes = changes.peekable();
        if changes.peek().is_none() {
            self.by_hash.remove(&hash);
        } else {
            self.by_hash.insert(hash, at);
        }
        while let Some(change) = changes.next() {
            self.names_len += change.name.len();
            change.pack(changes.peek().is_none(), &mut self.packed);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut places: Vec<_> = self.by_hash.iter().map(|(hash, at)| (*hash, *at)).collect();
        places.sort_unstable();
        places.into_iter().map(|(hash, at)| (hash, self.packed_at(at)))
    }

    fn alike(&self, hash: u32) -> &[u8] {
        self.by_hash.get(&hash).map_or(&[], |at| self.packed_at(*at))
    }

    /// Returns the packed changes of a hash.
    fn packed_at(&self, at: u32) -> &[u8] {
        let from = &self.packed[usize::try_from(at).expect(SOUND)..];
        let mut rest = from;
        while DeferredDirItem::unpack(&mut rest).is_some_and(|(_, is_last)| !is_last) {}
        &from[..from.len() - rest.len()]
    }
}

impl<'a> DeferredDirItem<'a> {
    /// Returns the change of a name, or `None` if there is nothing to change in the tree.
    fn of(change: &'a NameChange, below: bool) -> Option<Self> {
        let entry = change.there.then(|| change.entry.on_disk());
        (change.there || below).then_some(Self { name: &change.entry.name, entry, below })
    }

    fn pack(&self, is_last: bool, packed: &mut Vec<u8>) {
        let is_subvolume = |entry: &DirEntry<'_>| entry.target.kind == ItemKind::ROOT_ITEM;
        let mut head = Head::empty();
        head.set(Head::THERE, self.entry.is_some());
        head.set(Head::BELOW, self.below);
        head.set(Head::SUBVOLUME, self.entry.as_ref().is_some_and(is_subvolume));
        head.set(Head::LAST, is_last);
        let name_len = u8::try_from(self.name.len()).expect("a name has at most 255 bytes");
        packed.extend_from_slice(&[head.bits(), name_len]);
        packed.extend_from_slice(self.name);
        if let Some(entry) = &self.entry {
            packed.push(entry.kind.to_disk());
            pack_number(entry.target.objectid, packed);
            pack_number(entry.transid, packed);
        }
    }

    /// Unpacks the first change, and returns whether it is the last of its hash; `None` if nothing
    /// is left.
    fn unpack(packed: &mut &'a [u8]) -> Option<(Self, bool)> {
        let head = packed.split_off_first()?;
        let name_len = packed.split_off_first().expect(SOUND);
        let head = Head::from_bits(*head).expect(SOUND);
        let name = packed.split_off(..usize::from(*name_len)).expect(SOUND);
        let entry = head.contains(Head::THERE).then(|| {
            let kind = *packed.split_off_first().expect(SOUND);
            let number = unpack_number(packed);
            let transid = unpack_number(packed);
            let target = if head.contains(Head::SUBVOLUME) {
                EntryTarget::Subvolume(TreeId(number))
            } else {
                EntryTarget::Inode(number)
            };
            let kind = DirEntryKind::try_from(kind).expect(SOUND);
            DirEntry { target: target.to_disk(), transid, kind, name, data: &[] }
        });
        let below = head.contains(Head::BELOW);
        Some((Self { name, entry, below }, head.contains(Head::LAST)))
    }
}

/// Packs the length of a number in bytes, and the bytes.
fn pack_number(number: u64, packed: &mut Vec<u8>) {
    let bytes = number.to_le_bytes();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    packed.push(u8::try_from(len).expect("at most eight"));
    packed.extend_from_slice(&bytes[..len]);
}

fn unpack_number(packed: &mut &[u8]) -> u64 {
    let len = usize::from(*packed.split_off_first().expect(SOUND));
    let mut bytes = [0; size_of::<u64>()];
    bytes[..len].copy_from_slice(packed.split_off(..len).expect(SOUND));
    u64::from_le_bytes(bytes)
}

/// Returns the packed changes of names of one hash.
pub(in crate::inode) fn unpacked(mut packed: &[u8]) -> impl Iterator<Item = DeferredDirItem<'_>> {
    std::iter::from_fn(move || DeferredDirItem::unpack(&mut packed).map(|(change, _)| change))
}

/// Returns the total length of the names of packed changes.
fn names_len(packed: &[u8]) -> usize {
    unpacked(packed).map(|change| change.name.len()).sum()
}

#[cfg(test)]
mod tests {
    use userbtrfs_sync::Arc;

    use super::*;
    use crate::inode::Entry;
    use crate::inode::log_state::few::Few;
    use crate::inode::pending::delayed_items::DelayedItems;
    use crate::inode::testing::{alike, entry};

    fn take_in(late: &mut DeferredDirItems, change: impl FnOnce(&mut DelayedItems)) {
        let mut pending = DelayedItems::default();
        change(&mut pending);
        for (hash, alike) in &pending.entries.by_name {
            late.take_in(*hash, alike);
        }
    }

    #[test]
    fn added_and_removed_name_leaves_nothing_but_stored_name_leaves_tombstone() {
        let mut late = DeferredDirItems::default();
        let a = entry(2, b"a", 300);
        let again = entry(9, b"a", 301);
        let hash = a.hash();
        assert_eq!(late.find(hash, b"a"), Delayed::Nothing);
        take_in(&mut late, |pending| pending.add_entry(&a));
        assert_eq!(late.find(hash, b"a"), Delayed::There((a.target, a.kind)));
        assert_eq!(late.added(hash).collect::<Vec<_>>(), [b"a"]);
        take_in(&mut late, |pending| pending.remove_entry(&a));
        assert_eq!(late.find(hash, b"a"), Delayed::Nothing);
        assert_eq!(late.iter(None).count(), 0);

        take_in(&mut late, |pending| pending.remove_entry(&a));
        assert_eq!(late.find(hash, b"a"), Delayed::Gone);
        take_in(&mut late, |pending| pending.add_entry(&again));
        assert_eq!(late.find(hash, b"a"), Delayed::There((again.target, again.kind)));
        take_in(&mut late, |pending| pending.remove_entry(&again));
        assert_eq!(late.find(hash, b"a"), Delayed::Gone);
        assert_eq!((late.iter(None).count(), late.names_len()), (1, 1));
    }

    #[test]
    fn names_of_one_hash_are_distinguished() {
        let mut late = DeferredDirItems::default();
        let [one, two] = alike();
        let a = entry(2, &one, 300);
        let b = entry(3, &two, 301);
        let hash = a.hash();
        take_in(&mut late, |pending| pending.add_entry(&a));
        take_in(&mut late, |pending| pending.remove_entry(&b));
        assert_eq!(late.find(hash, &one), Delayed::There((a.target, a.kind)));
        assert_eq!(late.find(hash, &two), Delayed::Gone);
        let (found, packed) = late.iter(None).next().unwrap();
        let names: Vec<_> = unpacked(packed).map(|change| change.name.to_vec()).collect();
        assert_eq!(late.names_len(), one.len() + two.len());
        assert_eq!((found, names), (hash, vec![one, two]));
        assert!(late.bytes() > packed.len());
        late.take_in(hash, &Few::<NameChange>::default());
        assert_eq!(late.iter(None).count(), 1);
    }

    #[test]
    fn packed_entry_keeps_all_fields() {
        let mut late = DeferredDirItems::default();
        let name = [b'n'; 255];
        let target = EntryTarget::Subvolume(TreeId(u64::MAX - 300));
        let kind = DirEntryKind::Directory;
        let subvolume = Entry { index: 2, name: name[..].into(), kind, target, transid: 1 << 56 };
        let entry = Arc::new(subvolume);
        let hash = entry.hash();
        take_in(&mut late, |pending| pending.add_entry(&entry));
        assert_eq!(late.find(hash, &name), Delayed::There((target, kind)));
        let (_, packed) = late.iter(None).next().unwrap();
        let entries: Vec<_> = unpacked(packed).map(|change| change.entry).collect();
        assert_eq!(entries, [Some(entry.on_disk())]);
    }
}
