//! Applies delayed references to the extent tree.

use std::ops::ControlFlow;

use userbtrfs_btree::{BlockRefs, Extent};
use userbtrfs_format::{
    ExtentFlags, ExtentItem, IncompatFlags, ItemKind, Key, Logical, MetadataLevel, TreeId,
};

use super::delayed::{Head, logical_of};
use super::extent_refs::{ExtentRefs, is_keyed_ref};
use crate::damage::Damage;
use crate::editor::{Changes, EditItems, Editor, Items, TreeItems};
use crate::error::Result;
use crate::roots::TreeRoots;
use crate::units::VERIFIED;

/// The result of applying a head to an extent, with what is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The extent tree has it now: its space is to be allocated in the free space tree, and is
    /// used.
    Added,
    /// The extent tree had it and has it: nothing is left to do.
    Kept,
    /// The extent tree does not have it any more: its space is to be freed in the free space tree,
    /// to be reused once the transaction is durable; checksums of data are to be removed.
    Freed,
    /// The extent tree never had it. Its space is free once the transaction is durable, and was
    /// never allocated in the free space tree; checksums of data are to be removed.
    NeverAdded,
}

/// The parameters of the form of new items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) nodesize: u32,
    pub(super) skinny: bool,
    pub(super) generation: u64,
}

/// Returns the references of an extent in the extent tree; `None` if it is not there.
pub fn lookup(tree_roots: &TreeRoots, extent: &Extent) -> Result<Option<BlockRefs>> {
    let nodesize = tree_roots.store().volume().geometry().nodesize;
    let found = find(&TreeItems::new(tree_roots, TreeId::EXTENT)?, extent, nodesize)?;
    Ok(found.map(|ExtentLookup { item, .. }| BlockRefs {
        refs: item.refs,
        full_backref: item.flags.contains(ExtentFlags::FULL_BACKREF),
    }))
}

/// Applies the changes of one extent to the extent tree.
pub fn run(editor: &Editor<'_>, head: &Head) -> Result<Outcome> {
    let superblock = editor.tree_roots.store().volume().superblock();
    let form = Form {
        nodesize: superblock.nodesize,
        skinny: superblock.incompat.contains(IncompatFlags::SKINNY_METADATA),
        generation: editor.generation,
    };
    run_in(&mut editor.items(TreeId::EXTENT)?, head, form)
}

/// An extent as found in the extent tree.
pub(super) struct ExtentLookup {
    pub(super) key: Key,
    pub(super) item: ExtentItem,
    /// True if there are keyed references.
    pub(super) keyed: bool,
}

pub(super) fn run_in(items: &mut impl EditItems, head: &Head, form: Form) -> Result<Outcome> {
    let logical = head.logical();
    if head.conflicting {
        return Err(Damage::TwoExtents(logical).into());
    }
    if head.fresh && head.changes.is_empty() {
        return Ok(Outcome::NeverAdded);
    }
    let found = match find(items, &head.extent, form.nodesize)? {
        Some(_) if head.fresh => return Err(Damage::ExtentExists(logical).into()),
        None if head.fresh => new_extent(&head.extent, form),
        None => return Err(Damage::NoExtent(logical).into()),
        Some(found) => found,
    };
    let (key, changes, left) = change(&*items, found, head, form)?;
    let changes = finish(key, changes, left.as_ref());
    items.apply(changes)?;
    Ok(match (head.fresh, left) {
        (true, _) => Outcome::Added,
        (false, Some(_)) => Outcome::Kept,
        (false, None) => Outcome::Freed,
    })
}

/// Applies a head to an extent; returns the key of its item, the changes of its keyed references,
/// and the item, if any reference is left.
fn change(
    items: &impl Items,
    found: ExtentLookup,
    head: &Head,
    form: Form,
) -> Result<(Key, Changes, Option<ExtentItem>)> {
    let ExtentLookup { key, item, keyed } = found;
    let logical = head.logical();
    let nodesize = form.nodesize;
    let mut refs =
        ExtentRefs { items, logical, item, keyed, changes: Changes::default(), nodesize };
    // Dropped references make space for added ones.
    for (backref, by) in head.changes.iter().filter(|(_, by)| **by < 0) {
        refs.drop_refs(*backref, by.unsigned_abs())?;
    }
    for (backref, by) in head.changes.iter().filter(|(_, by)| **by > 0) {
        refs.add_refs(*backref, by.unsigned_abs())?;
    }
    let wrong = Damage::ReferenceCount { logical, refs: refs.item.refs };
    refs.item.refs = refs.item.refs.checked_add_signed(head.net()).ok_or(wrong)?;
    if head.set_full_backref {
        refs.item.flags |= ExtentFlags::FULL_BACKREF;
    }
    let inline: u64 = refs.item.inline.iter().map(userbtrfs_format::InlineRef::count).sum();
    let is_last = refs.item.refs == 0;
    // Without keyed references the sum is known.
    let is_sum = if refs.keyed { inline <= refs.item.refs } else { inline == refs.item.refs };
    if !is_sum || (is_last && refs.has_keyed_refs()?) {
        return Err(wrong.into());
    }
    Ok((key, refs.changes, (!is_last).then_some(refs.item)))
}

fn finish(key: Key, mut changes: Changes, left: Option<&ExtentItem>) -> Changes {
    match left {
        Some(item) => changes.put(key, item.encode()),
        None => changes.remove(key),
    }
    changes
}

/// Returns an extent that is not in the extent tree yet.
fn new_extent(extent: &Extent, form: Form) -> ExtentLookup {
    let Logical(logical) = logical_of(extent);
    let (key, flags, level) = match *extent {
        Extent::Data { len, .. } => {
            let key = Key::new(logical, ItemKind::EXTENT_ITEM, len);
            (key, ExtentFlags::DATA, MetadataLevel::None)
        }
        Extent::Block { level, .. } if form.skinny => {
            let key = Key::new(logical, ItemKind::METADATA_ITEM, u64::from(level));
            (key, ExtentFlags::TREE_BLOCK, MetadataLevel::InKey(level))
        }
        Extent::Block { level, .. } => {
            let key = Key::new(logical, ItemKind::EXTENT_ITEM, u64::from(form.nodesize));
            // The first key is a hint, which no reader relies on.
            (key, ExtentFlags::TREE_BLOCK, MetadataLevel::InItem(Key::MIN, level))
        }
    };
    let generation = form.generation;
    let item = ExtentItem { refs: 0, generation, flags, level, inline: Vec::new() };
    ExtentLookup { key, item, keyed: false }
}

/// Looks up an extent. Another extent at its address is damage.
pub(super) fn find(
    items: &impl Items,
    extent: &Extent,
    nodesize: u32,
) -> Result<Option<ExtentLookup>> {
    let logical = logical_of(extent);
    let first = Key::new(logical.0, ItemKind::EXTENT_ITEM, 0);
    let mut found: Option<ExtentLookup> = None;
    items.visit(&first, &mut |key, data| {
        if key < first {
            return ControlFlow::Continue(());
        }
        if let Some(found) = &mut found {
            found.keyed = is_keyed_ref(key, logical);
            return ControlFlow::Break(());
        }
        let is_extent = matches!(key.kind, ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM);
        if key.objectid != logical.0 || !is_extent {
            return ControlFlow::Break(());
        }
        let item = ExtentItem::parse(key, data).expect(VERIFIED);
        found = Some(ExtentLookup { key, item, keyed: false });
        ControlFlow::Continue(())
    })?;
    match found {
        Some(found) if !is(&found, extent, nodesize) => {
            Err(Damage::ExtentShape { logical, found: found.key }.into())
        }
        found => Ok(found),
    }
}

/// Returns true if an item is that of the extent.
fn is(found: &ExtentLookup, extent: &Extent, nodesize: u32) -> bool {
    match (*extent, found.item.level) {
        (Extent::Data { len, .. }, MetadataLevel::None) => found.key.offset == len,
        (Extent::Block { level, .. }, MetadataLevel::InKey(found)) => found == level,
        (Extent::Block { level, .. }, MetadataLevel::InItem(_, in_item)) => {
            in_item == level && found.key.offset == u64::from(nodesize)
        }
        _ => false,
    }
}
