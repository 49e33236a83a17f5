//! Changes of items.

use userbtrfs_format::{Key, TreeId, item_len_max, item_space};
use userbtrfs_volume::{ReadError, TreeBlock};

use crate::source::{NoSpace, SourceError};

/// A change of the item at one key.
pub trait Edit {
    /// The key.
    fn key(&self) -> Key;

    /// Returns the change of the item with the content `current`; `None` if there is no item.
    ///
    /// May be called more than once; the result depends on `current` alone.
    fn apply(&mut self, current: Option<&[u8]>) -> Change<'_>;
}

/// The change of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Leaves the item as it is, present or not.
    Keep,
    /// Inserts the item, or replaces its content.
    Put(&'a [u8]),
    /// Removes the item, if it is present.
    Remove,
}

/// A change that does not depend on the current content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemEdit {
    /// Inserts an item, or replaces its content.
    Put(Key, Vec<u8>),
    /// Removes an item, if it is present.
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

/// The reason why items could not be changed. Changes made before the failed one stay.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// A tree block cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no space for a block.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// The tree would exceed the maximum height; only a forged tree can.
    #[error("tree {0} has all levels that there are, and they are full")]
    TooHigh(TreeId),
    /// The references to a block could not be looked up.
    #[error(transparent)]
    Source(SourceError),
}

/// The nodes that a change may modify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only the leaf, which alone is locked.
    Leaf,
    /// The whole path from the root, which is locked.
    Way,
}

/// The result of the change of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done; the first key of the leaf is as before.
    Done,
    /// Done; the leaf has another first key, or is empty.
    FirstChanged,
    /// Not done: a node above the leaf would have to change.
    Structure,
    /// Not done: the leaf lacks `missing` bytes for an item before this slot, or in it.
    NoRoom { slot: usize, missing: usize },
}

/// Returns whether a block uses so little of its space that it is merged with a neighbour.
pub(crate) fn is_sparse(block: &TreeBlock) -> bool {
    is_sparse_without(block, 0)
}

/// Returns whether the block is sparse once `gone` of its bytes are freed.
fn is_sparse_without(block: &TreeBlock, gone: usize) -> bool {
    block.used_space() - gone < block.area() / 4
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
            let missing = (new - new.min(old)).saturating_sub(leaf.free_space());
            if missing > 0 {
                return Outcome::NoRoom { slot, missing };
            }
            if found { leaf.replace_item(slot, data) } else { leaf.insert_item(slot, key, data) }
        }
        Change::Remove if found => leaf.remove_items(slot..slot + 1),
        Change::Keep | Change::Remove => {}
    }
    if first { Outcome::FirstChanged } else { Outcome::Done }
}
