//! What pending entries make of items.
//!
//! 1. An item that may hold several entries is read, changed by entry, and written back: what it
//!    has of others stays as it is.
//! 2. What an edit makes of an item depends on the item alone, so it may be asked again.
//! 3. Edits come in the order of their keys.

use std::collections::BTreeMap;

use userbtrfs_btree::{Change, Edit};
use userbtrfs_codec::hash::{extref_hash, name_hash};
use userbtrfs_format::{
    DirEntry, DirEntryKind, FileExtent, FileExtentKind, InlineExtent, ItemKind, Key, dir_entries,
    inode_extrefs, inode_refs,
};
use userbtrfs_sync::Arc;

use super::Entry;
use super::pending::{Content, Frozen, NameChange, Pending, RefPlace};

/// A change of one item.
pub(super) enum ItemEdit {
    /// It has this content.
    Put(Key, Vec<u8>),
    /// It goes.
    Remove(Key),
    /// Entries in it change.
    Entries(EntriesEdit),
}

/// A change of entries in an item that may hold several.
pub(super) struct EntriesEdit {
    key: Key,
    changes: Vec<EntryChange>,
    built: Vec<u8>,
}

/// A change of one entry of an item.
enum EntryChange {
    /// Of a DIR_ITEM: by name.
    Name(Arc<Entry>, bool),
    /// Of an XATTR_ITEM: by name.
    Xattr(Box<[u8]>, Option<Arc<[u8]>>),
    /// Of an INODE_REF or INODE_EXTREF: by directory and place.
    Ref(u64, Arc<Entry>, bool),
}

impl Edit for ItemEdit {
    fn key(&self) -> Key {
        match self {
            Self::Put(key, _) | Self::Remove(key) => *key,
            Self::Entries(edit) => edit.key,
        }
    }

    fn apply(&mut self, current: Option<&[u8]>) -> Change<'_> {
        match self {
            Self::Put(_, content) => Change::Put(content),
            Self::Remove(_) => Change::Remove,
            Self::Entries(edit) => edit.apply(current.unwrap_or_default()),
        }
    }
}

impl EntriesEdit {
    /// What becomes of an item; one that is not there counts as empty.
    fn apply(&mut self, current: &[u8]) -> Change<'_> {
        self.built.clear();
        self.keep(current);
        for change in &self.changes {
            change.encode_into(self.key.kind, &mut self.built);
        }
        match &*self.built {
            built if built == current => Change::Keep,
            [] => Change::Remove,
            built => Change::Put(built),
        }
    }

    /// Writes what stays of the item.
    fn keep(&mut self, current: &[u8]) {
        let Self { key, changes, built } = self;
        let stays = |dir, index| !changes.iter().any(|change| change.is_at(dir, index));
        let sound = "verified with its block";
        match key.kind {
            ItemKind::INODE_REF => inode_refs(key.offset, current)
                .map(|name| name.expect(sound))
                .filter(|name| stays(name.parent, name.index))
                .for_each(|name| name.encode_ref_into(built)),
            ItemKind::INODE_EXTREF => inode_extrefs(current)
                .map(|name| name.expect(sound))
                .filter(|name| stays(name.parent, name.index))
                .for_each(|name| name.encode_extref_into(built)),
            _ => dir_entries(current)
                .map(|entry| entry.expect(sound))
                .filter(|entry| !changes.iter().any(|change| *change.name() == *entry.name))
                .for_each(|entry| entry.encode_into(built)),
        }
    }
}

impl EntryChange {
    fn name(&self) -> &[u8] {
        match self {
            Self::Name(entry, _) | Self::Ref(_, entry, _) => &entry.name,
            Self::Xattr(name, _) => name,
        }
    }

    fn is_at(&self, dir: u64, index: u64) -> bool {
        matches!(self, Self::Ref(own, entry, _) if (*own, entry.index) == (dir, index))
    }

    /// Writes the entry, where it comes.
    fn encode_into(&self, kind: ItemKind, item: &mut Vec<u8>) {
        match self {
            Self::Name(entry, true) => entry.on_disk().encode_into(item),
            Self::Xattr(name, Some(value)) => {
                let (target, kind) = (Key::MIN, DirEntryKind::Xattr);
                let entry = DirEntry { target, transid: 0, kind, name, data: value };
                entry.encode_into(item);
            }
            Self::Ref(dir, entry, true) if kind == ItemKind::INODE_REF => {
                entry.as_name(*dir).encode_ref_into(item);
            }
            Self::Ref(dir, entry, true) => entry.as_name(*dir).encode_extref_into(item),
            Self::Name(_, false) | Self::Xattr(_, None) | Self::Ref(_, _, false) => {}
        }
    }
}

/// Puts the edits that a frozen set makes behind `edits`; but for the list of inodes without a
/// name, which stands elsewhere.
pub(super) fn put_edits(number: u64, frozen: &Frozen, generation: u64, edits: &mut Vec<ItemEdit>) {
    let Frozen { item, changes } = frozen;
    let key = |kind, offset| Key::new(number, kind, offset);
    edits.push(ItemEdit::Put(key(ItemKind::INODE_ITEM, 0), item.encode().to_vec()));
    put_refs(number, changes, edits);
    put_xattrs(number, changes, edits);
    for (hash, alike) in &changes.entries.by_name {
        let name = |change: &NameChange| EntryChange::Name(Arc::clone(&change.entry), change.there);
        let changes = alike.iter().map(name).collect();
        edits.push(entries(key(ItemKind::DIR_ITEM, u64::from(*hash)), changes));
    }
    for (index, entry) in &changes.entries.by_index {
        let key = key(ItemKind::DIR_INDEX, *index);
        edits.push(match entry {
            Some(entry) => ItemEdit::Put(key, entry.on_disk().encode()),
            None => ItemEdit::Remove(key),
        });
    }
    if let Some(content) = &changes.content {
        edits.push(content_edit(key(ItemKind::EXTENT_DATA, 0), content, generation));
    }
}

fn entries(key: Key, changes: Vec<EntryChange>) -> ItemEdit {
    ItemEdit::Entries(EntriesEdit { key, changes, built: Vec::new() })
}

/// A name that goes may stand in either item.
fn put_refs(number: u64, changes: &Pending, edits: &mut Vec<ItemEdit>) {
    let mut refs: BTreeMap<Key, Vec<EntryChange>> = BTreeMap::new();
    for ((dir, _), change) in &changes.refs {
        let (entry, place) = (&change.entry, change.place);
        let mut add = |kind, offset| {
            let change = EntryChange::Ref(*dir, Arc::clone(entry), place.is_some());
            refs.entry(Key::new(number, kind, offset)).or_default().push(change);
        };
        if place != Some(RefPlace::Extref) {
            add(ItemKind::INODE_REF, *dir);
        }
        if place != Some(RefPlace::Ref) {
            add(ItemKind::INODE_EXTREF, extref_hash(*dir, &entry.name));
        }
    }
    edits.extend(refs.into_iter().map(|(key, changes)| entries(key, changes)));
}

fn put_xattrs(number: u64, changes: &Pending, edits: &mut Vec<ItemEdit>) {
    let mut xattrs: BTreeMap<u32, Vec<EntryChange>> = BTreeMap::new();
    for (name, value) in &changes.xattrs {
        let change = EntryChange::Xattr(name.clone(), value.clone());
        xattrs.entry(name_hash(name)).or_default().push(change);
    }
    let key = |hash| Key::new(number, ItemKind::XATTR_ITEM, u64::from(hash));
    edits.extend(xattrs.into_iter().map(|(hash, changes)| entries(key(hash), changes)));
}

fn content_edit(key: Key, content: &Content, generation: u64) -> ItemEdit {
    match content {
        Content::Empty => ItemEdit::Remove(key),
        Content::Inline(data) => {
            let inline = InlineExtent { ram_bytes: data.len() as u64, data };
            let kind = FileExtentKind::Inline(inline);
            ItemEdit::Put(key, FileExtent { generation, compression: None, kind }.encode())
        }
    }
}

#[cfg(test)]
mod tests;
