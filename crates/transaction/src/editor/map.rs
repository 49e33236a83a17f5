//! Items in a map, which tests use in place of a tree.

use std::collections::BTreeMap;
use std::ops::Bound;

use userbtrfs_btree::ItemEdit;
use userbtrfs_format::Key;

use super::{Changes, EditItems, ItemVisitor, Items};
use crate::error::Result;

/// Items by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapItems(pub(crate) BTreeMap<Key, Vec<u8>>);

impl Items for MapItems {
    fn visit(&self, from: &Key, see: &mut ItemVisitor<'_>) -> Result<()> {
        let start = self.0.range(..=*from).next_back().map_or(*from, |(key, _)| *key);
        for (key, data) in self.0.range((Bound::Included(start), Bound::Unbounded)) {
            if see(*key, data).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl EditItems for MapItems {
    fn apply(&mut self, changes: Changes) -> Result<()> {
        for edit in changes.into_edits() {
            match edit {
                ItemEdit::Put(key, data) => {
                    self.0.insert(key, data);
                }
                ItemEdit::Remove(key) => {
                    assert!(self.0.remove(&key).is_some(), "{key} is removed, but not there");
                }
            }
        }
        Ok(())
    }
}
