//! Cursors: items of a tree in key order.
//!
//! 1. A cursor holds the bytes of its leaf, no lock. It sees each leaf as it was when the cursor
//!    reached it.
//! 2. It moves to the next leaf by searching the first key after its leaf: it keeps nothing of
//!    the path to it, so that the tree may change under it.

use userbtrfs_format::{Item, Key};
use userbtrfs_volume::ReadError;

use crate::read_ahead::Ahead;
use crate::search::Position;
use crate::{NodeRef, NodeStore, Tree};

/// The read-ahead mode of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// No read-ahead: for a few items.
    Off,
    /// Reads the leaves that follow: for many items, in order.
    Forward,
}

/// A position between items of a tree.
pub struct Cursor<'a> {
    store: &'a NodeStore,
    tree: &'a Tree,
    ahead: Option<Ahead>,
    leaf: Option<NodeRef>,
    slot: usize,
    next: Option<Key>,
}

impl<'a> Cursor<'a> {
    /// Returns a cursor before the first item whose key is not less than `key`.
    pub fn seek(
        store: &'a NodeStore,
        tree: &'a Tree,
        key: &Key,
        read_ahead: ReadAhead,
    ) -> Result<Self, ReadError> {
        let mut cursor = Self::nowhere(store, tree, read_ahead);
        cursor.go_to(key)?;
        cursor.settle()?;
        Ok(cursor)
    }

    /// Returns a cursor before the last item whose key is not greater than `key`; before the
    /// first item if there is none.
    pub fn seek_back(
        store: &'a NodeStore,
        tree: &'a Tree,
        key: &Key,
        read_ahead: ReadAhead,
    ) -> Result<Self, ReadError> {
        let mut cursor = Self::nowhere(store, tree, read_ahead);
        // A parent records the first key of each leaf: the item sought is in the leaf of `key`.
        if !cursor.go_to(key)? {
            cursor.slot = cursor.slot.saturating_sub(1);
        }
        cursor.settle()?;
        Ok(cursor)
    }

    fn nowhere(store: &'a NodeStore, tree: &'a Tree, read_ahead: ReadAhead) -> Self {
        let ahead = (read_ahead == ReadAhead::Forward).then(Ahead::default);
        Self { store, tree, ahead, leaf: None, slot: 0, next: None }
    }

    /// Returns the item after the cursor; `None` at the end of the tree.
    pub fn item(&self) -> Option<Item<'_>> {
        self.leaf.as_ref().map(|leaf| leaf.item(self.slot))
    }

    /// Moves past one item.
    pub fn advance(&mut self) -> Result<(), ReadError> {
        self.slot += 1;
        self.settle()
    }

    /// Moves forward to the first item whose key is not less than `key`.
    pub fn skip_to(&mut self, key: &Key) -> Result<(), ReadError> {
        let Some(leaf) = &self.leaf else { return Ok(()) };
        if leaf.key(self.slot) >= *key {
            return Ok(());
        }
        if self.next.is_some_and(|next| next <= *key) {
            self.go_to(key)?;
        } else {
            self.slot = leaf.search(key).unwrap_or_else(|slot| slot);
        }
        self.settle()
    }

    /// Returns the leaf and the slot of the item after the cursor; they stay valid when the
    /// cursor moves.
    pub fn leaf(&self) -> Option<(&NodeRef, usize)> {
        self.leaf.as_ref().map(|leaf| (leaf, self.slot))
    }

    /// Moves to `key` and returns whether an item has that key.
    fn go_to(&mut self, key: &Key) -> Result<bool, ReadError> {
        let Self { store, tree, ahead, .. } = self;
        let position = tree.search_with(store, key, |logical, expected| {
            let ready = ahead.as_mut().and_then(|ahead| ahead.take(store, logical));
            ready.unwrap_or_else(|| store.load(logical, expected))
        })?;
        let Position { leaf, slot, exact, next, parent } = position;
        if let (Some(ahead), Some((parent, slot))) = (ahead, parent) {
            ahead.advance(store, tree, &parent, slot);
        }
        self.leaf = Some(leaf);
        self.slot = slot;
        self.next = next;
        Ok(exact)
    }

    /// Moves to the next leaf while there are no items left in this one.
    fn settle(&mut self) -> Result<(), ReadError> {
        while self.leaf.as_ref().is_some_and(|leaf| self.slot >= leaf.len()) {
            match self.next.take() {
                None => self.leaf = None,
                Some(key) => {
                    self.go_to(&key)?;
                }
            }
        }
        Ok(())
    }
}
