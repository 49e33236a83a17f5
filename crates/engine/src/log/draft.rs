//! Pending changes of items of a log.
//!
//! 1. Changes are sorted by key, one for each key: the last change of an item counts.
//! 2. Lookups of the items of an inode include pending changes, not only what is in the log.
//! 3. Most changes are added in the order of their keys: none needs an allocation of its own.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use smallvec::SmallVec;
use userbtrfs_btree::{Change, Edit, ReadAhead, Tree};
use userbtrfs_codec::hash::{extref_hash, name_hash};
use userbtrfs_format::{DirEntry, DirEntryKind, InodeName, ItemKind, Key};

use crate::error::Result;
use crate::inode::{IndexedLink, Link, RefIndex, TreeRoots};

/// The bytes of item contents that an fsync of a file usually logs.
const CONTENTS_USUAL: usize = 512;

/// A batch of changes of log items, sorted by key.
#[derive(Default)]
pub(super) struct LogItemBatches {
    list: SmallVec<[LogItemBatch; 4]>,
    /// The contents, one after the other, including those that were replaced.
    pages: Vec<u8>,
}

/// The pending change of one item.
struct LogItemBatch {
    key: Key,
    /// The range of its content in `pages`; `None` if the item is removed.
    content: Option<Range<usize>>,
}

/// The change of one item, as it is applied to the tree.
pub(super) struct LogItemEdit<'a> {
    key: Key,
    content: Option<&'a [u8]>,
}

impl Edit for LogItemEdit<'_> {
    fn key(&self) -> Key {
        self.key
    }

    fn apply(&mut self, _current: Option<&[u8]>) -> Change<'_> {
        self.content.map_or(Change::Remove, Change::Put)
    }
}

impl LogItemBatches {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the length of all contents in bytes.
    pub(super) fn bytes(&self) -> usize {
        let content = |draft: &LogItemBatch| draft.content.as_ref().map_or(0, Range::len);
        self.list.iter().map(content).sum()
    }

    /// Puts an item with this content.
    pub(super) fn put(&mut self, key: Key, item: &[u8]) {
        self.put_with(key, |content| content.extend_from_slice(item));
    }

    /// Puts an item with the content that `add` appends to the vector that it is passed.
    pub(super) fn put_with(&mut self, key: Key, add: impl FnOnce(&mut Vec<u8>)) {
        if self.pages.is_empty() {
            self.pages.reserve(CONTENTS_USUAL);
        }
        let start = self.pages.len();
        add(&mut self.pages);
        self.set(key, Some(start..self.pages.len()));
    }

    /// Removes an item.
    pub(super) fn remove(&mut self, key: Key) {
        self.set(key, None);
    }

    fn set(&mut self, key: Key, content: Option<Range<usize>>) {
        let draft = LogItemBatch { key, content };
        if self.list.last().is_none_or(|last| last.key < key) {
            return self.list.push(draft);
        }
        match self.list.binary_search_by_key(&key, |draft| draft.key) {
            Ok(at) => self.list[at] = draft,
            Err(at) => self.list.insert(at, draft),
        }
    }

    /// Returns all changes as edits of the log tree.
    pub(super) fn edits(&self) -> SmallVec<[LogItemEdit<'_>; 4]> {
        let content = |range: &Range<usize>| &self.pages[range.clone()];
        let edit = |LogItemBatch { key, content: range }: &LogItemBatch| LogItemEdit {
            key: *key,
            content: range.as_ref().map(content),
        };
        self.list.iter().map(edit).collect()
    }

    /// Discards all changes.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.pages.clear();
    }

    /// Returns the keys in a range that the log has or is to have.
    pub(super) fn keys(
        &self,
        tree_roots: &TreeRoots,
        log: Option<&Tree>,
        range: RangeInclusive<Key>,
    ) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        if let Some(log) = log {
            let mut cursor = tree_roots.cursor(log, range.start(), ReadAhead::Off)?;
            while let Some(item) = cursor.item().filter(|item| item.key <= *range.end()) {
                keys.push(item.key);
                cursor.advance()?;
            }
        }
        let first = self.list.partition_point(|draft| draft.key < *range.start());
        let drafts = self.list[first..].iter().take_while(|draft| draft.key <= *range.end());
        keys.extend(drafts.filter(|draft| draft.content.is_some()).map(|draft| draft.key));
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Returns the content of an item that the log has, or is to have.
    pub(super) fn content(
        &self,
        tree_roots: &TreeRoots,
        log: Option<&Tree>,
        key: Key,
    ) -> Result<Option<Vec<u8>>> {
        if let Ok(at) = self.list.binary_search_by_key(&key, |draft| draft.key) {
            let content = self.list[at].content.clone();
            return Ok(content.map(|range| self.pages[range].to_vec()));
        }
        let Some(log) = log else { return Ok(None) };
        let cursor = tree_roots.cursor(log, &key, ReadAhead::Off)?;
        Ok(cursor.item().filter(|item| item.key == key).map(|item| item.data.to_vec()))
    }

    /// Removes the items of the keys in `old`, and puts those of `new`.
    pub(super) fn replace(&mut self, old: Vec<Key>, new: BTreeMap<Key, Vec<u8>>) {
        for key in old {
            self.remove(key);
        }
        for (key, item) in new {
            self.put(key, &item);
        }
    }
}

/// Returns the items that hold the names of an inode, each with the names that it holds in the
/// tree, since replay replaces whole items.
pub(super) fn names(number: u64, names: &[IndexedLink]) -> BTreeMap<Key, Vec<u8>> {
    let mut items: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for (Link { dir, index, name }, place) in names {
        let name = InodeName { parent: *dir, index: *index, name };
        let key = match place {
            RefIndex::Ref => Key::new(number, ItemKind::INODE_REF, *dir),
            RefIndex::Extref => {
                Key::new(number, ItemKind::INODE_EXTREF, extref_hash(*dir, name.name))
            }
        };
        let item = items.entry(key).or_default();
        match place {
            RefIndex::Ref => name.encode_ref_into(item),
            RefIndex::Extref => name.encode_extref_into(item),
        }
    }
    items
}

/// Returns the items that hold the extended attributes of an inode.
pub(super) fn xattrs(number: u64, xattrs: &[(Vec<u8>, Vec<u8>)]) -> BTreeMap<Key, Vec<u8>> {
    let mut items: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for (name, data) in xattrs {
        let key = Key::new(number, ItemKind::XATTR_ITEM, u64::from(name_hash(name)));
        let target = Key::MIN;
        let kind = DirEntryKind::Xattr;
        let entry = DirEntry { target, transid: 0, kind, name, data };
        entry.encode_into(items.entry(key).or_default());
    }
    items
}

/// Returns the range of all keys of these kinds of an inode.
pub(super) fn keys_of(number: u64, kinds: RangeInclusive<ItemKind>) -> RangeInclusive<Key> {
    Key::new(number, *kinds.start(), 0)..=Key::new(number, *kinds.end(), u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_logged_in_the_item_kinds_of_the_tree() {
        let link =
            |index, name: &[u8], place| (Link { dir: 256, index, name: name.to_vec() }, place);
        let by_dir = RefIndex::Ref;
        let by_hash = RefIndex::Extref;
        let long = [b'b'; 200];
        let links = [link(2, b"a", by_dir), link(3, &long, by_hash), link(4, b"c", by_dir)];
        let items = names(300, &links);
        let kinds: Vec<_> = items.keys().map(|key| key.kind).collect();
        assert_eq!(kinds, [ItemKind::INODE_REF, ItemKind::INODE_EXTREF]);
        assert_eq!(items.values().map(Vec::len).collect::<Vec<_>>(), [2 * 11, 218]);
    }

    #[test]
    fn later_change_of_a_key_replaces_earlier_one() {
        let mut drafts = LogItemBatches::default();
        let key = |offset| Key::new(300, ItemKind::DIR_INDEX, offset);
        drafts.put(key(2), &[1]);
        drafts.put(key(5), &[2]);
        drafts.remove(key(2));
        assert_eq!(drafts.len(), 2);
        drafts.replace(vec![key(5), key(4)], [(key(5), vec![3]), (key(3), vec![4, 5])].into());
        let edits: Vec<_> = drafts.edits().iter().map(|edit| (edit.key, edit.content)).collect();
        let there: [(Key, Option<&[u8]>); 2] = [(key(3), Some(&[4, 5])), (key(5), Some(&[3]))];
        assert_eq!(edits, [(key(2), None), there[0], (key(4), None), there[1]]);
        drafts.clear();
        assert_eq!((drafts.len(), drafts.edits().len()), (0, 0));
    }
}
