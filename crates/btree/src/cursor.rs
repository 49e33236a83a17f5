//! Cursors: items of a tree in key order.
//!
//! 1. A cursor holds the bytes of its leaf, no lock. It sees each leaf as it was when it came.
//! 2. It goes on by searching the first key after the leaf: it needs nothing of the way it came,
//!    so that the tree may change under it.

use userbtrfs_format::{Item, Key};
use userbtrfs_volume::ReadError;

use crate::read_ahead::Ahead;
use crate::search::Position;
use crate::{NodeRef, NodeStore, Tree};

/// Whether a cursor reads leaves before it comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// For a few items.
    Off,
    /// For many, in order.
    Forward,
}

/// A place between items of a tree.
pub struct Cursor<'a> {
    store: &'a NodeStore,
    tree: &'a Tree,
    ahead: Option<Ahead>,
    leaf: Option<NodeRef>,
    slot: usize,
    next: Option<Key>,
}

impl<'a> Cursor<'a> {
    /// A cursor before the first item whose key is not less than `key`.
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

    /// A cursor before the last item whose key is not greater than `key`; before the first
    /// item where there is none.
    pub fn seek_back(
        store: &'a NodeStore,
        tree: &'a Tree,
        key: &Key,
        read_ahead: ReadAhead,
    ) -> Result<Self, ReadError> {
        let mut cursor = Self::nowhere(store, tree, read_ahead);
        // A leaf's first key stands in its parent: the item sought is in the leaf of `key`.
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

    /// The item after the cursor; nothing at the end of the tree.
    pub fn item(&self) -> Option<Item<'_>> {
        self.leaf.as_ref().map(|leaf| leaf.item(self.slot))
    }

    /// Moves past one item.
    pub fn advance(&mut self) -> Result<(), ReadError> {
        self.slot += 1;
        self.settle()
    }

    /// Moves on to the first item whose key is not less than `key`.
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

    /// The leaf and the slot of the item after the cursor; they stay valid when it moves on.
    pub fn leaf(&self) -> Option<(&NodeRef, usize)> {
        self.leaf.as_ref().map(|leaf| (leaf, self.slot))
    }

    /// Goes to `key` and says whether it is there.
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
        (self.leaf, self.slot, self.next) = (Some(leaf), slot, next);
        Ok(exact)
    }

    /// Goes on to the next leaf while there is no item in this one.
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
