//! Items of a log that are about to be changed.
//!
//! 1. They are kept in the order of their keys, each once: the last word on an item counts.
//! 2. What is told of the items of an inode counts these, too, not only what is in the log.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use userbtrfs_btree::{ItemEdit, ReadAhead, Tree};
use userbtrfs_codec::hash::{extref_hash, name_hash};
use userbtrfs_format::{DirEntry, DirEntryKind, InodeName, ItemKind, Key};

use crate::error::Result;
use crate::node::{Forest, Link, PlacedLink, RefPlace};

/// See the module's text.
#[derive(Default)]
pub(super) struct Drafts {
    edits: BTreeMap<Key, Option<Vec<u8>>>,
}

impl Drafts {
    pub(super) fn len(&self) -> usize {
        self.edits.len()
    }

    /// An item is there, with this content.
    pub(super) fn put(&mut self, key: Key, item: Vec<u8>) {
        self.edits.insert(key, Some(item));
    }

    /// An item is not there.
    pub(super) fn remove(&mut self, key: Key) {
        self.edits.insert(key, None);
    }

    /// Takes all of them.
    pub(super) fn take(&mut self) -> Vec<ItemEdit> {
        let edits = std::mem::take(&mut self.edits).into_iter();
        let edit = |(key, item)| match item {
            Some(item) => ItemEdit::Put(key, item),
            None => ItemEdit::Remove(key),
        };
        edits.map(edit).collect()
    }

    /// The keys between two that the log has, or is to have.
    pub(super) fn keys(
        &self,
        forest: &Forest,
        log: Option<&Tree>,
        range: RangeInclusive<Key>,
    ) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        if let Some(log) = log {
            let mut cursor = forest.cursor(log, range.start(), ReadAhead::Off)?;
            while let Some(item) = cursor.item().filter(|item| item.key <= *range.end()) {
                keys.push(item.key);
                cursor.advance()?;
            }
        }
        let coming = self.edits.range(range).filter(|(_, item)| item.is_some());
        keys.extend(coming.map(|(key, _)| *key));
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Items take the place of all that the log has between two keys.
    pub(super) fn replace(&mut self, old: Vec<Key>, new: BTreeMap<Key, Vec<u8>>) {
        self.edits.extend(old.into_iter().map(|key| (key, None)));
        self.edits.extend(new.into_iter().map(|(key, item)| (key, Some(item))));
    }
}

/// The items that hold the names of an inode: each the names that it holds in the tree, since
/// replay puts items in the place of items.
pub(super) fn names(number: u64, names: &[PlacedLink]) -> BTreeMap<Key, Vec<u8>> {
    let mut items: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for (Link { dir, index, name }, place) in names {
        let name = InodeName { parent: *dir, index: *index, name };
        let key = match place {
            RefPlace::Ref => Key::new(number, ItemKind::INODE_REF, *dir),
            RefPlace::Extref => {
                Key::new(number, ItemKind::INODE_EXTREF, extref_hash(*dir, name.name))
            }
        };
        let item = items.entry(key).or_default();
        match place {
            RefPlace::Ref => name.encode_ref_into(item),
            RefPlace::Extref => name.encode_extref_into(item),
        }
    }
    items
}

/// The items that hold the extended attributes of an inode.
pub(super) fn xattrs(number: u64, xattrs: &[(Vec<u8>, Vec<u8>)]) -> BTreeMap<Key, Vec<u8>> {
    let mut items: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for (name, data) in xattrs {
        let key = Key::new(number, ItemKind::XATTR_ITEM, u64::from(name_hash(name)));
        let (target, kind) = (Key::MIN, DirEntryKind::Xattr);
        let entry = DirEntry { target, transid: 0, kind, name, data };
        entry.encode_into(items.entry(key).or_default());
    }
    items
}

/// All keys of some kinds of an inode.
pub(super) fn keys_of(number: u64, kinds: RangeInclusive<ItemKind>) -> RangeInclusive<Key> {
    Key::new(number, *kinds.start(), 0)..=Key::new(number, *kinds.end(), u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_items_in_which_they_stand_in_the_tree() {
        let link =
            |index, name: &[u8], place| (Link { dir: 256, index, name: name.to_vec() }, place);
        let (by_dir, by_hash) = (RefPlace::Ref, RefPlace::Extref);
        let long = [b'b'; 200];
        let links = [link(2, b"a", by_dir), link(3, &long, by_hash), link(4, b"c", by_dir)];
        let items = names(300, &links);
        let kinds: Vec<_> = items.keys().map(|key| key.kind).collect();
        assert_eq!(kinds, [ItemKind::INODE_REF, ItemKind::INODE_EXTREF]);
        assert_eq!(items.values().map(Vec::len).collect::<Vec<_>>(), [2 * 11, 218]);
    }

    #[test]
    fn the_last_word_counts_and_what_is_to_come_is_there() {
        let mut drafts = Drafts::default();
        let key = |offset| Key::new(300, ItemKind::DIR_INDEX, offset);
        drafts.put(key(2), vec![1]);
        drafts.put(key(3), vec![2]);
        drafts.remove(key(2));
        assert_eq!(drafts.edits.len(), 2);
        drafts.replace(vec![key(3), key(4)], [(key(5), vec![3])].into());
        let edits = drafts.take();
        let gone = |offset| ItemEdit::Remove(key(offset));
        assert_eq!(edits, [gone(2), gone(3), gone(4), ItemEdit::Put(key(5), vec![3])]);
    }
}
