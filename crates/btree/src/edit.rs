//! Changes of items.

use userbtrfs_format::{Key, TreeId, item_len_max, item_space};
use userbtrfs_volume::{ReadError, TreeBlock};

use crate::source::{NoSpace, SourceError};

/// A change of the item at one key.
pub trait Edit {
    /// The key.
    fn key(&self) -> Key;

    /// What becomes of the item whose content is `current`; nothing where it is not there.
    ///
    /// May be asked more than once, and answers by `current` alone.
    fn apply(&mut self, current: Option<&[u8]>) -> Change<'_>;
}

/// What becomes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// It stays as it is, there or not.
    Keep,
    /// It is there, with this content.
    Put(&'a [u8]),
    /// It is not there.
    Remove,
}

/// A change that does not depend on what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemEdit {
    /// The item has this content.
    Put(Key, Vec<u8>),
    /// The item is not there.
    Remove(Key),
}

impl Edit for ItemEdit {
    fn key(&self) -> Key {
        match self {
            Self::Put(key, _) | Self::Remove(key) => *key,
        }
    }

    fn apply(&mut self, _current: Option<&[u8]>) -> Change<'_> {
        match self {
            Self::Put(_, content) => Change::Put(content),
            Self::Remove(_) => Change::Remove,
        }
    }
}

/// Why items could not be changed. What was changed before stays changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// A tree block cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no place for a block.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// It would have more levels than a tree can have: no tree of ours outgrows them.
    #[error("tree {0} has all levels that there are, and they are full")]
    TooHigh(TreeId),
    /// The books could not be asked.
    #[error(transparent)]
    Source(SourceError),
}

/// How far a change of a leaf may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only the leaf is held: nothing above it may have to change.
    Leaf,
    /// The whole way from the root is held.
    Way,
}

/// How the change of one item went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done; the first key of the leaf is as before.
    Done,
    /// It is done; the leaf has another first key, or none.
    FirstChanged,
    /// Not done: what is above the leaf has to change.
    Structure,
    /// Not done: there is no room for an item before this slot.
    NoRoom { slot: usize },
}

/// A leaf or node that uses less than this part of its space is merged with a neighbour.
pub(crate) fn is_sparse(block: &TreeBlock) -> bool {
    is_sparse_without(block, 0)
}

/// Whether it will be when so many bytes are gone.
fn is_sparse_without(block: &TreeBlock, gone: usize) -> bool {
    block.used_space() - gone < (block.used_space() + block.free_space()) / 4
}

/// Changes one item of a leaf.
pub(crate) fn edit_leaf(leaf: &mut TreeBlock, edit: &mut impl Edit, reach: Reach) -> Outcome {
    let key = edit.key();
    let (slot, found) = match leaf.search(&key) {
        Ok(slot) => (slot, true),
        Err(slot) => (slot, false),
    };
    let change = edit.apply(found.then(|| leaf.item(slot).data));
    let removes = found && change == Change::Remove;
    let first = slot == 0 && (removes || (!found && matches!(change, Change::Put(_))));
    let old = if found { item_space(leaf.item(slot).data.len()) } else { 0 };
    let new = match change {
        Change::Put(data) => item_space(data.len()),
        Change::Remove => 0,
        Change::Keep => old,
    };
    let shrinks = new < old && is_sparse_without(leaf, old - new);
    if reach == Reach::Leaf && (first || shrinks) {
        return Outcome::Structure;
    }
    match change {
        Change::Put(data) => {
            let nodesize = u32::try_from(leaf.bytes().len()).expect("a block is small");
            assert!(data.len() <= item_len_max(nodesize), "item {key} fits no block");
            if !put(leaf, slot, found, key, data) {
                return Outcome::NoRoom { slot };
            }
        }
        Change::Remove if found => leaf.remove_items(slot..slot + 1),
        Change::Keep | Change::Remove => {}
    }
    if first { Outcome::FirstChanged } else { Outcome::Done }
}

/// Puts an item where there is room for it.
fn put(leaf: &mut TreeBlock, slot: usize, found: bool, key: Key, data: &[u8]) -> bool {
    let old = if found { item_space(leaf.item(slot).data.len()) } else { 0 };
    let fits = leaf.free_space() + old >= item_space(data.len());
    match (fits, found) {
        (false, _) => {}
        (true, true) => leaf.replace_item(slot, data),
        (true, false) => leaf.insert_item(slot, key, data),
    }
    fits
}
