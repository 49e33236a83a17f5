//! Items of one tree, as the modules of this crate read and change them.
//!
//! 1. Changes are computed apart from where items are stored: the callers only know [`Items`],
//!    which is a tree here, and a map in tests.
//! 2. An [`Editor`] belongs to one transaction. Its changes may make new delayed references: no
//!    lock is held while it works.

#[cfg(test)]
pub(crate) mod map;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use userbtrfs_btree::{BlockSource, Cursor, ItemEdit, ReadAhead, Tree};
use userbtrfs_format::{Key, TreeId};
use userbtrfs_sync::Arc;

use crate::error::Result;
use crate::roots::TreeRoots;

/// Changes trees in a transaction.
#[derive(Clone, Copy)]
pub struct Editor<'a> {
    /// The trees.
    pub tree_roots: &'a TreeRoots,
    /// The source of blocks for copy-on-write.
    pub source: &'a dyn BlockSource,
    /// The number of the transaction.
    pub generation: u64,
}

impl<'a> Editor<'a> {
    /// Changes items of a tree; the keys of `edits` ascend strictly.
    pub fn apply(&self, tree: TreeId, edits: &mut [ItemEdit]) -> Result<()> {
        self.apply_to(&*self.tree_roots.tree(tree)?, edits)
    }

    fn apply_to(&self, tree: &Tree, edits: &mut [ItemEdit]) -> Result<()> {
        Ok(tree.apply(self.tree_roots.store(), self.source, edits)?)
    }

    /// Returns the items of a tree, for reading and changing.
    pub(crate) fn items(&self, tree: TreeId) -> Result<EditedItems<'a>> {
        Ok(EditedItems { editor: *self, read: TreeItems::new(self.tree_roots, tree)? })
    }
}

/// A function that is called with each item, and may stop the visit.
pub(crate) type ItemVisitor<'a> = dyn FnMut(Key, &[u8]) -> ControlFlow<()> + 'a;

/// Items in key order.
pub(crate) trait Items {
    /// Calls `see` with items in order, from the last whose key is not greater than `from` (from
    /// the first, if there is none), until it breaks off.
    fn visit(&self, from: &Key, see: &mut ItemVisitor<'_>) -> Result<()>;

    /// Returns the result of `read` on the item of this key; `None` if there is none.
    fn get<T>(&self, key: &Key, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>>
    where
        Self: Sized,
    {
        let mut read = Some(read);
        let mut found = None;
        self.visit(key, &mut |at, data| {
            if at == *key {
                found = read.take().map(|read| read(data));
            }
            if at < *key { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(found)
    }
}

/// Items in key order, and changes of them.
pub(crate) trait EditItems: Items {
    /// Makes all of the changes.
    fn apply(&mut self, changes: Changes) -> Result<()>;
}

/// Changes of items, by key.
#[derive(Debug, Default)]
pub(crate) struct Changes(BTreeMap<Key, Option<Vec<u8>>>);

impl Changes {
    /// Sets the item to `data`, whether it exists or not.
    pub(crate) fn put(&mut self, key: Key, data: Vec<u8>) {
        self.0.insert(key, Some(data));
    }

    /// Removes the item.
    pub(crate) fn remove(&mut self, key: Key) {
        self.0.insert(key, None);
    }

    /// Returns true if the item of this key is changed.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// Returns true if nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many items change.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the changes in the order of their keys.
    pub(crate) fn into_edits(self) -> Vec<ItemEdit> {
        let edit = |(key, data)| match data {
            Some(data) => ItemEdit::Put(key, data),
            None => ItemEdit::Remove(key),
        };
        self.0.into_iter().map(edit).collect()
    }
}

/// Items of a tree that are only read.
pub(crate) struct TreeItems<'a> {
    tree_roots: &'a TreeRoots,
    tree: Arc<Tree>,
}

impl<'a> TreeItems<'a> {
    /// Returns the items of the tree `id`.
    pub(crate) fn new(tree_roots: &'a TreeRoots, id: TreeId) -> Result<Self> {
        Ok(Self { tree_roots, tree: tree_roots.tree(id)? })
    }
}

impl Items for TreeItems<'_> {
    fn visit(&self, from: &Key, see: &mut ItemVisitor<'_>) -> Result<()> {
        let store = self.tree_roots.store();
        let mut cursor = Cursor::seek_back(store, &self.tree, from, ReadAhead::Off)?;
        while let Some(item) = cursor.item() {
            if see(item.key, item.data).is_break() {
                break;
            }
            cursor.advance()?;
        }
        Ok(())
    }
}

/// Items of a tree that a transaction changes.
pub(crate) struct EditedItems<'a> {
    editor: Editor<'a>,
    read: TreeItems<'a>,
}

impl Items for EditedItems<'_> {
    fn visit(&self, from: &Key, see: &mut ItemVisitor<'_>) -> Result<()> {
        self.read.visit(from, see)
    }
}

impl EditItems for EditedItems<'_> {
    fn apply(&mut self, changes: Changes) -> Result<()> {
        self.editor.apply_to(&self.read.tree, &mut changes.into_edits())
    }
}
