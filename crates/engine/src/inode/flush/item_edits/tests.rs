//! Tests of edits on handmade items.

use userbtrfs_format::FileKind;

use super::*;
use crate::inode::pending::deferred_dir_items::DeferredDirItems;
use crate::inode::testing::{alike, entry, item};

/// Returns the result of an edit; applies it twice, and to other content in between.
fn applied(edit: &mut EncodedChange<'_>, current: Option<&[u8]>) -> Option<Vec<u8>> {
    let ask = |edit: &mut EncodedChange<'_>, current: Option<&[u8]>| match edit.apply(current) {
        Change::Keep => current.map(<[u8]>::to_vec),
        Change::Put(content) => Some(content.to_vec()),
        Change::Remove => None,
    };
    let first = ask(edit, current);
    ask(edit, None);
    let second = ask(edit, current);
    assert_eq!(first, second, "the answer depends on the item alone");
    first
}

/// Returns the edits of a set; leaks what they borrow, which is little.
fn edits_of(changes: DelayedItems) -> Vec<EncodedChange<'static>> {
    let late: &mut DeferredDirItems = Box::leak(Box::default());
    changes.entries.by_name.iter().for_each(|(hash, alike)| late.take_in(*hash, alike));
    let (changes, item) = Box::leak(Box::new((changes, item(FileKind::Directory))));
    let mut drafts: Vec<_> = ItemChanges::of(257, changes, item).collect();
    drafts.extend(late.iter(None).map(|(hash, packed)| ItemChanges::names(257, hash, packed)));
    drafts.sort_by_key(|draft| draft.key);
    let drafts = drafts.leak();
    let edits = ItemChanges::edits(drafts, Box::leak(Box::default()));
    assert!(edits.is_sorted_by(|a, b| a.key() < b.key()), "edits come in key order");
    edits
}

fn edit_of<'a, 'e>(
    edits: &'a mut [EncodedChange<'e>],
    kind: ItemKind,
) -> &'a mut EncodedChange<'e> {
    edits.iter_mut().find(|edit| edit.key().kind == kind).expect("there is such an edit")
}

#[test]
fn name_is_added_to_and_removed_from_item_of_its_hash() {
    let [one, two] = alike();
    let a = entry(2, &one, 300);
    let b = entry(3, &two, 301);
    let mut changes = DelayedItems::default();
    changes.add_entry(&b);
    let mut edits = edits_of(changes);
    let old = a.on_disk().encode();
    let both = applied(edit_of(&mut edits, ItemKind::DIR_ITEM), Some(&old)).unwrap();
    assert_eq!(both, [old.clone(), b.on_disk().encode()].concat());
    let alone = applied(edit_of(&mut edits, ItemKind::DIR_INDEX), None).unwrap();
    assert_eq!(alone, b.on_disk().encode());

    let mut changes = DelayedItems::default();
    changes.remove_entry(&b);
    let mut edits = edits_of(changes);
    let left = applied(edit_of(&mut edits, ItemKind::DIR_ITEM), Some(&both));
    assert_eq!(left, Some(old));
    let none = applied(edit_of(&mut edits, ItemKind::DIR_ITEM), Some(&b.on_disk().encode()));
    assert_eq!(none, None);
    let index = applied(edit_of(&mut edits, ItemKind::DIR_INDEX), Some(&b.on_disk().encode()));
    assert_eq!(index, None);
}

#[test]
fn replaced_name_is_stored_once() {
    let old = entry(2, b"a", 300);
    let new = entry(9, b"a", 301);
    let mut changes = DelayedItems::default();
    changes.remove_entry(&old);
    changes.add_entry(&new);
    let mut edits = edits_of(changes);
    let found = applied(edit_of(&mut edits, ItemKind::DIR_ITEM), Some(&old.on_disk().encode()));
    assert_eq!(found, Some(new.on_disk().encode()));
    let places: Vec<_> =
        edits.iter().map(Edit::key).filter(|key| key.kind == ItemKind::DIR_INDEX).collect();
    assert_eq!(places.iter().map(|key| key.offset).collect::<Vec<_>>(), [2, 9]);
}

#[test]
fn unlink_of_name_stored_twice_keeps_other_entry() {
    let first = entry(2, b"a", 300);
    let second = entry(3, b"a", 301);
    let both = [first.on_disk().encode(), second.on_disk().encode()].concat();
    let mut changes = DelayedItems::default();
    changes.remove_entry(&first);
    let mut edits = edits_of(changes);
    let left = applied(edit_of(&mut edits, ItemKind::DIR_ITEM), Some(&both));
    assert_eq!(left, Some(second.on_disk().encode()));

    let mut changes = DelayedItems::default();
    let again = entry(9, b"a", 302);
    changes.remove_entry(&first);
    changes.add_entry(&again);
    let mut edits = edits_of(changes);
    let left = applied(edit_of(&mut edits, ItemKind::DIR_ITEM), Some(&both));
    assert_eq!(left, Some([second.on_disk().encode(), again.on_disk().encode()].concat()));
}

#[test]
fn names_of_one_directory_share_ref_and_are_removed_from_either_item() {
    let a = entry(2, b"a", 257);
    let b = entry(3, b"bb", 257);
    let c = entry(4, b"ccc", 257);
    let mut changes = DelayedItems::default();
    changes.add_ref(256, &a, RefIndex::Ref);
    changes.add_ref(256, &b, RefIndex::Ref);
    changes.add_ref(256, &c, RefIndex::Extref);
    let mut edits = edits_of(changes);
    let refs = applied(edit_of(&mut edits, ItemKind::INODE_REF), None).unwrap();
    let names: Vec<_> = inode_refs(256, &refs).map(|name| name.unwrap().name.to_vec()).collect();
    assert_eq!(names, [b"a".to_vec(), b"bb".to_vec()]);
    let extrefs = applied(edit_of(&mut edits, ItemKind::INODE_EXTREF), None).unwrap();
    let extref = inode_extrefs(&extrefs).next().unwrap().unwrap();
    assert_eq!((extref.parent, extref.index, extref.name), (256, 4, b"ccc".as_slice()));

    let mut changes = DelayedItems::default();
    changes.remove_ref(256, &a);
    changes.remove_ref(256, &c);
    let mut edits = edits_of(changes);
    let left = applied(edit_of(&mut edits, ItemKind::INODE_REF), Some(&refs)).unwrap();
    assert_eq!(inode_refs(256, &left).next().unwrap().unwrap().name, b"bb");
    let hash = extref_hash(256, b"ccc");
    let edit = edits.iter_mut().find(|edit| edit.key().offset == hash).unwrap();
    assert_eq!(applied(edit, Some(&extrefs)), None);
}

#[test]
fn attributes_are_set_replaced_and_removed_by_name() {
    let mut changes = DelayedItems::default();
    changes.set_xattr(b"user.a", Some(b"new"));
    let mut edits = edits_of(changes);
    let set = applied(edit_of(&mut edits, ItemKind::XATTR_ITEM), None).unwrap();
    assert_eq!(dir_entries(&set).next().unwrap().unwrap().data, b"new");

    let mut changes = DelayedItems::default();
    changes.set_xattr(b"user.a", Some(b""));
    let mut edits = edits_of(changes);
    let replaced = applied(edit_of(&mut edits, ItemKind::XATTR_ITEM), Some(&set)).unwrap();
    let found: Vec<_> = dir_entries(&replaced).map(Result::unwrap).collect();
    assert_eq!((found.len(), found[0].data), (1, b"".as_slice()));

    let mut changes = DelayedItems::default();
    changes.set_xattr(b"user.a", None);
    let mut edits = edits_of(changes);
    assert_eq!(applied(edit_of(&mut edits, ItemKind::XATTR_ITEM), Some(&set)), None);
    assert_eq!(applied(edit_of(&mut edits, ItemKind::XATTR_ITEM), None), None);
}
