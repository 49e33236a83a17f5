//! The deletion of a subvolume by its items: its name and its references are removed, its tree is
//! left to be dropped.

use userbtrfs_btree::{Cursor, ItemEdit, ReadAhead, Tree};
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{
    InodeItem, ItemKind, Key, RootFlags, RootItem, RootRef, TreeId, dir_entries, uuid_key,
};
use userbtrfs_transaction::{HandleKind, TransactionManager};

/// The object id of orphan items.
const ORPHANS: u64 = u64::MAX - 4;

/// Returns the first item whose key is not less than `key`.
pub(super) fn first_from(
    transactions: &TransactionManager,
    tree: &Tree,
    key: Key,
) -> (Key, Vec<u8>) {
    let store = transactions.tree_roots().store();
    let cursor = Cursor::seek(store, tree, &key, ReadAhead::Off).unwrap();
    let item = cursor.item().expect("there is an item");
    (item.key, item.data.to_vec())
}

/// Deletes a subvolume in the running transaction: no name leads to it, and its root item has no
/// references.
pub(super) fn delete(transactions: &TransactionManager, id: TreeId) {
    let tree_roots = transactions.tree_roots();
    let roots = tree_roots.roots();
    let backref = Key::new(id.0, ItemKind::ROOT_BACKREF, 0);
    let (backref, name) = first_from(transactions, roots, backref);
    assert_eq!((backref.objectid, backref.kind), (id.0, ItemKind::ROOT_BACKREF));
    let parent = TreeId(backref.offset);
    let handle = transactions.start(HandleKind::Operation).unwrap();
    let RootRef { dirid, sequence, name } = RootRef::parse(&name).unwrap();

    let tree = tree_roots.tree(parent).unwrap();
    let inode = Key::new(dirid, ItemKind::INODE_ITEM, 0);
    let (_, data) = first_from(transactions, &tree, inode);
    let mut item = InodeItem::parse(&data).unwrap();
    item.size -= 2 * name.len() as u64;
    let entry = Key::new(dirid, ItemKind::DIR_ITEM, u64::from(name_hash(name)));
    let (_, entries) = first_from(transactions, &tree, entry);
    assert_eq!(dir_entries(&entries).count(), 1, "names of this test do not collide");
    let index = Key::new(dirid, ItemKind::DIR_INDEX, sequence);
    let mut edits = [
        ItemEdit::Put(inode, item.encode().to_vec()),
        ItemEdit::Remove(entry),
        ItemEdit::Remove(index),
    ];
    handle.apply(&tree, &mut edits).unwrap();

    let (key, data) = first_from(transactions, roots, Key::new(id.0, ItemKind::ROOT_ITEM, 0));
    let mut root = RootItem::parse(&data).unwrap();
    root.refs = 0;
    root.flags |= RootFlags::DEAD;
    let mut edits = vec![
        ItemEdit::Remove(Key::new(parent.0, ItemKind::ROOT_REF, id.0)),
        ItemEdit::Put(key, root.encode()),
        ItemEdit::Remove(backref),
        ItemEdit::Put(Key::new(ORPHANS, ItemKind::ORPHAN_ITEM, id.0), Vec::new()),
    ];
    handle.apply(roots, &mut edits).unwrap();

    let uuid = root.extended.expect("a new root").uuid;
    let uuids = tree_roots.tree(TreeId::UUID).unwrap();
    handle
        .apply(&uuids, &mut [ItemEdit::Remove(uuid_key(uuid, ItemKind::UUID_KEY_SUBVOL))])
        .unwrap();
}
