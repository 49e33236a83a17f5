//! Edits of items that delayed entries make.
//!
//! 1. An item that may hold several entries is read, changed entry by entry, and written back: its
//!    other entries stay as they are.
//! 2. The result of an edit depends only on the item, so the edit may be applied again.
//! 3. Edits are in key order.
//! 4. Changes borrow from their set. New entries are encoded once, for many edits into one buffer;
//!    only an edit that keeps existing entries has a buffer of its own.

use std::ops::Range;

use userbtrfs_btree::{Change, Edit};
use userbtrfs_codec::hash::extref_hash;
use userbtrfs_format::{
    DirEntry, DirEntryKind, InodeItem, ItemKind, Key, dir_entries, inode_extrefs, inode_refs,
};

use crate::inode::Entry;
use crate::inode::flush::drop_extents::{ExtentData, ExtentEdit};
use crate::inode::log_state::few::Few;
use crate::inode::pending::deferred_dir_items::unpacked;
use crate::inode::pending::delayed_items::{DelayedItems, RefChange, RefIndex, XattrChange};

/// The change of one item.
pub(in crate::inode) struct ItemChanges<'a> {
    key: Key,
    change: ItemChange<'a>,
}

/// The kind of change of an item.
enum ItemChange<'a> {
    /// The item is removed.
    Remove,
    /// The item exists, without content.
    Mark,
    Inode(&'a InodeItem),
    /// A DIR_INDEX.
    Place(&'a Entry),
    /// An EXTENT_DATA.
    Extent(&'a ExtentData),
    /// Packed changes of the entries of a DIR_ITEM, by name.
    Names(&'a [u8]),
    /// Changes of the entries of an XATTR_ITEM, by name.
    Xattrs(&'a [XattrChange]),
    /// Changes of the entries of an INODE_REF, by place.
    Refs(&'a [RefChange]),
    /// Changes of the entries of an INODE_EXTREF, by directory and place.
    Extrefs(Few<&'a RefChange>),
}

/// A change of one item, with its encoded entries.
pub(in crate::inode) struct EncodedChange<'a> {
    draft: &'a ItemChanges<'a>,
    /// The encoded new entries.
    new: &'a [u8],
    /// The kept entries and the new ones, if any are kept.
    built: Vec<u8>,
}

impl<'a> ItemChanges<'a> {
    /// Creates the removal of an item.
    pub(in crate::inode) fn remove(key: Key) -> Self {
        Self { key, change: ItemChange::Remove }
    }

    /// Creates an item without content.
    pub(in crate::inode) fn mark(key: Key) -> Self {
        Self { key, change: ItemChange::Mark }
    }

    /// Creates the change of an EXTENT_DATA item.
    pub(in crate::inode) fn extent(number: u64, (offset, item): &'a ExtentEdit) -> Self {
        let key = Key::new(number, ItemKind::EXTENT_DATA, *offset);
        Self { key, change: item.as_ref().map_or(ItemChange::Remove, ItemChange::Extent) }
    }

    /// Returns true if it changes an EXTENT_DATA item.
    pub(in crate::inode) fn is_extent(&self) -> bool {
        self.key.kind == ItemKind::EXTENT_DATA
    }

    /// Creates the change of the DIR_ITEM of a hash, from packed changes.
    pub(in crate::inode) fn names(dir: u64, hash: u32, packed: &'a [u8]) -> Self {
        let key = Key::new(dir, ItemKind::DIR_ITEM, u64::from(hash));
        Self { key, change: ItemChange::Names(packed) }
    }

    /// Returns the changes of items that a frozen set makes, with the attributes of its inode. Not
    /// included are extents, which are edited separately, DIR_ITEMs, which are deferred, and the
    /// ORPHAN_ITEM, which is elsewhere in the tree.
    pub(in crate::inode) fn of(
        number: u64,
        changes: &'a DelayedItems,
        item: &'a InodeItem,
    ) -> impl Iterator<Item = Self> {
        let draft =
            move |kind, offset, change| Self { key: Key::new(number, kind, offset), change };
        let inode = draft(ItemKind::INODE_ITEM, 0, ItemChange::Inode(item));
        let xattrs = changes.xattrs.iter().map(move |(hash, alike)| {
            draft(ItemKind::XATTR_ITEM, u64::from(*hash), ItemChange::Xattrs(alike))
        });
        let places = changes.entries.by_index.iter().map(move |(index, entry)| {
            let change = entry.as_deref().map_or(ItemChange::Remove, ItemChange::Place);
            draft(ItemKind::DIR_INDEX, *index, change)
        });
        let refs = refs(number, changes);
        let extrefs = extrefs(number, changes);
        let of_inode = std::iter::once(inode).chain(refs).chain(extrefs).chain(xattrs);
        of_inode.chain(places)
    }

    /// Returns the edits of `drafts`. Their new entries are encoded into `buffer`.
    pub(in crate::inode) fn edits(
        drafts: &'a [Self],
        buffer: &'a mut Vec<u8>,
    ) -> Vec<EncodedChange<'a>> {
        buffer.clear();
        let mut write = |draft: &Self| {
            let start = buffer.len();
            draft.change.encode_into(buffer);
            start..buffer.len()
        };
        let ranges: Vec<Range<usize>> = drafts.iter().map(&mut write).collect();
        let edit = |(draft, range): (&'a Self, Range<usize>)| EncodedChange {
            draft,
            new: &buffer[range],
            built: Vec::new(),
        };
        drafts.iter().zip(ranges).map(edit).collect()
    }
}

/// Returns the changes of INODE_REFs. A removed name may be in either kind of item.
fn refs(number: u64, changes: &DelayedItems) -> impl Iterator<Item = ItemChanges<'_>> {
    let of_dirs = changes.refs.chunk_by(|a, b| a.dir == b.dir);
    let of_dirs = of_dirs.filter(|refs| refs.iter().any(|one| one.place != EXTREF));
    of_dirs.map(move |refs| ItemChanges {
        key: Key::new(number, ItemKind::INODE_REF, refs[0].dir),
        change: ItemChange::Refs(refs),
    })
}

fn extrefs(number: u64, changes: &DelayedItems) -> impl Iterator<Item = ItemChanges<'_>> {
    let others = changes.refs.iter().filter(|one| one.place != REF);
    let mut others: Vec<_> =
        others.map(|one| (extref_hash(one.dir, &one.entry.name), one)).collect();
    others.sort_by_key(|(hash, _)| *hash);
    let mut drafts: Vec<ItemChanges<'_>> = Vec::new();
    for (hash, one) in others {
        let key = Key::new(number, ItemKind::INODE_EXTREF, hash);
        match drafts.last_mut() {
            Some(ItemChanges { key: last, change: ItemChange::Extrefs(alike) }) if *last == key => {
                alike.push(one);
            }
            _ => drafts.push(ItemChanges { key, change: ItemChange::Extrefs(Few::One(one)) }),
        }
    }
    drafts.into_iter()
}

const REF: Option<RefIndex> = Some(RefIndex::Ref);
const EXTREF: Option<RefIndex> = Some(RefIndex::Extref);

const SOUND: &str = "verified with its block";

impl ItemChange<'_> {
    /// Appends the new entries.
    fn encode_into(&self, item: &mut Vec<u8>) {
        match self {
            Self::Remove | Self::Mark => {}
            Self::Inode(inode) => item.extend_from_slice(&inode.encode()),
            Self::Place(entry) => entry.on_disk().encode_into(item),
            Self::Extent(extent) => item.extend_from_slice(&extent.encode()),
            Self::Names(packed) => unpacked(packed)
                .filter_map(|change| change.entry)
                .for_each(|entry| entry.encode_into(item)),
            Self::Xattrs(changes) => changes.iter().for_each(|change| change.encode_into(item)),
            Self::Refs(changes) => changes
                .iter()
                .filter(|change| change.place == REF)
                .for_each(|change| change.entry.as_name(change.dir).encode_ref_into(item)),
            Self::Extrefs(changes) => changes
                .iter()
                .filter(|change| change.place == EXTREF)
                .for_each(|change| change.entry.as_name(change.dir).encode_extref_into(item)),
        }
    }

    /// Appends the entries of an item that are kept.
    fn keep_into(&self, current: &[u8], dir: u64, item: &mut Vec<u8>) {
        let entries = || dir_entries(current).map(|entry| entry.expect(SOUND));
        match self {
            Self::Remove | Self::Mark | Self::Inode(_) | Self::Place(_) | Self::Extent(_) => {}
            Self::Names(packed) => keep_names(entries(), packed, item),
            Self::Xattrs(changes) => entries()
                .filter(|old| !changes.iter().any(|change| *change.name == *old.name))
                .for_each(|old| old.encode_into(item)),
            Self::Refs(changes) => inode_refs(dir, current)
                .map(|old| old.expect(SOUND))
                .filter(|old| !changes.iter().any(|change| change.is_at(dir, old.index)))
                .for_each(|old| old.encode_ref_into(item)),
            Self::Extrefs(changes) => inode_extrefs(current)
                .map(|old| old.expect(SOUND))
                .filter(|old| !changes.iter().any(|change| change.is_at(old.parent, old.index)))
                .for_each(|old| old.encode_extref_into(item)),
        }
    }
}

/// Appends the entries of a DIR_ITEM that are kept. Each change that replaces or removes a name of
/// the tree affects the first entry that has it: a damaged directory may store a name twice, and
/// the other entry keeps its own place.
fn keep_names<'a>(entries: impl Iterator<Item = DirEntry<'a>>, packed: &[u8], item: &mut Vec<u8>) {
    let mut taken: Vec<&[u8]> = Vec::new();
    for old in entries {
        let changes = unpacked(packed).any(|change| change.below && change.name == old.name);
        if changes && !taken.contains(&old.name) {
            taken.push(old.name);
        } else {
            old.encode_into(item);
        }
    }
}

impl XattrChange {
    fn encode_into(&self, item: &mut Vec<u8>) {
        if let Some(data) = &self.value {
            let target = Key::MIN;
            let kind = DirEntryKind::Xattr;
            DirEntry { target, transid: 0, kind, name: &self.name, data }.encode_into(item);
        }
    }
}

impl RefChange {
    fn is_at(&self, dir: u64, index: u64) -> bool {
        (self.dir, self.entry.index) == (dir, index)
    }
}

impl Edit for EncodedChange<'_> {
    fn key(&self) -> Key {
        self.draft.key
    }

    fn apply(&mut self, current: Option<&[u8]>) -> Change<'_> {
        let ItemChanges { key, change } = self.draft;
        let current = current.unwrap_or_default();
        self.built.clear();
        change.keep_into(current, key.offset, &mut self.built);
        if !self.built.is_empty() {
            self.built.extend_from_slice(self.new);
        }
        let whole = if self.built.is_empty() { self.new } else { &self.built };
        match (change, whole) {
            (ItemChange::Mark, _) => Change::Put(whole),
            (_, []) => Change::Remove,
            (_, whole) if whole == current => Change::Keep,
            (_, whole) => Change::Put(whole),
        }
    }
}

#[cfg(test)]
mod tests;
