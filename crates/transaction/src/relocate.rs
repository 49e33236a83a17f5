//! Relocation of a block group: all that lies in it moves to other block groups.
//!
//! ```text
//!   freeze the group     commit     copy data     commit: move     commit: remove the group
//! ```
//!
//! 1. From `freeze` on nothing is allocated in the group, so that after the first commit the extent
//!    tree lists all that is in it, and all of it is on the device.
//! 2. Data is copied before the commit that moves its references, and is not overwritten in place
//!    meanwhile. The checksums of the copy are those of the original.
//! 3. One commit moves all references: before it is durable, the old places are in use, and after
//!    it the new ones. So every crash leaves a consistent filesystem.
//! 4. Blocks of subvolumes are moved by [`RelocationPlan`], which keeps what snapshots share. Other
//!    trees are not shared: the path to each block is copied.
//! 5. A relocation that finds too little space, or references that it does not know, changes
//!    nothing.

mod group;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{ControlFlow, Range};

use userbtrfs_btree::{Extent, ItemEdit, Moved, ReadAhead, RefChange, RelocationPlan, Tree};
use userbtrfs_format::{
    Expectation, ExtentFlags, ExtentItem, InlineRef, ItemKind, Key, Logical, MetadataLevel,
    RootItem, TreeId,
};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::checksums;
use crate::context::TransactionContext;
use crate::damage::Damage;
use crate::editor::{Editor, Items, TreeItems};
use crate::error::{Error, Result};
use crate::refs;
use crate::space::ReservePolicy;
use crate::units::VERIFIED;

pub(crate) use group::GroupRelocator;

/// The blocks that may be copied for a block of a tree that no snapshot shares.
const PATH_BLOCKS: u64 = 3;

/// An extent of data that was copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedExtent {
    from: Logical,
    to: Logical,
    len: u64,
}

/// A relocation that the next commit makes.
#[derive(Debug)]
struct Request {
    /// The addresses of the block group.
    range: Range<u64>,
    data: Vec<CopiedExtent>,
}

/// The result of a relocation.
#[derive(Debug)]
enum Outcome {
    /// All references are moved. These copies have none: their originals were freed meanwhile.
    Moved { unused: Vec<CopiedExtent> },
    /// Nothing is changed, for this reason.
    Refused(Error),
}

/// The relocation that the commit of the running transaction makes.
pub(crate) struct PendingRelocation(Mutex<State>);

#[derive(Default)]
struct State {
    request: Option<Request>,
    outcome: Option<Outcome>,
}

impl PendingRelocation {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Class::ChangedRoots, State::default()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().request.is_none()
    }

    /// Makes the relocation that was requested; returns true if there was one. All references are
    /// in the extent tree, and the caller excludes changes of all trees.
    pub(crate) fn run(&self, context: &TransactionContext, editor: &Editor<'_>) -> Result<bool> {
        let Some(request) = self.0.lock().request.take() else { return Ok(false) };
        let outcome = relocate(context, editor, &request)?;
        self.0.lock().outcome = Some(outcome);
        Ok(true)
    }
}

/// Moves all that is in a block group.
fn relocate(
    context: &TransactionContext,
    editor: &Editor<'_>,
    request: &Request,
) -> Result<Outcome> {
    let Some(trees) = subvolume_trees(context)? else {
        return Ok(refused("a deleted subvolume is still being dropped"));
    };
    let data: HashMap<_, _, _> = request.data.iter().map(|it| (it.from, it.to)).collect();
    let moved = Moved { blocks: request.range.clone(), data };
    let store = context.tree_roots.store();
    let mut plan = RelocationPlan::new(store, moved, editor.generation);
    for tree in &trees {
        plan.add_tree(tree)?;
    }
    let lookup = |logical, level| {
        let found = refs::lookup(&context.tree_roots, &Extent::Block { logical, level })?;
        found.ok_or_else(|| Error::from(Damage::NoExtent(logical)))
    };
    if !plan.find_refs(lookup)? {
        return Ok(refused("references to tree blocks are unknown"));
    }
    let Some(unused) = compare_data_refs(context, &plan, &request.data)? else {
        return Ok(refused("references to data are unknown"));
    };
    let others = blocks_of_other_trees(context, &request.range)?;
    let blocks = plan.copies() as u64 + PATH_BLOCKS * others.len() as u64;
    let bytes = blocks * u64::from(context.nodesize());
    match context.reserve_now(bytes, 2 * blocks, ReservePolicy::Steal) {
        Some(reservation) => drop(reservation),
        None => return Ok(Outcome::Refused(Error::NoSpace)),
    }
    move_references(context, plan, &request.data)?;
    for extent in &request.data {
        if !unused.iter().any(|it| it.from == extent.from) {
            checksums::copy(editor, extent.from, extent.len, extent.to)?;
        }
    }
    for (logical, owner, expected) in others {
        copy_path(context, editor, logical, owner, &expected)?;
    }
    Ok(Outcome::Moved { unused })
}

fn refused(why: &'static str) -> Outcome {
    Outcome::Refused(Error::NotRelocated(why))
}

/// Returns the trees whose blocks snapshots may share; `None` if one of them is being dropped.
fn subvolume_trees(context: &TransactionContext) -> Result<Option<Vec<Arc<Tree>>>> {
    let tree_roots = &context.tree_roots;
    let mut trees = Vec::new();
    let mut cursor = tree_roots.cursor(tree_roots.roots(), &Key::MIN, ReadAhead::Forward)?;
    while let Some(item) = cursor.item() {
        let id = TreeId(item.key.objectid);
        if item.key.kind == ItemKind::ROOT_ITEM && id.is_shareable() {
            if RootItem::parse(item.data).expect(VERIFIED).refs == 0 {
                return Ok(None);
            }
            trees.push(id);
        }
        cursor.advance()?;
    }
    trees.into_iter().map(|id| tree_roots.tree(id)).collect::<Result<_>>().map(Some)
}

/// Compares the references to data that were found with the extent tree; returns the extents that
/// have none, and `None` if they differ.
fn compare_data_refs(
    context: &TransactionContext,
    plan: &RelocationPlan<'_>,
    data: &[CopiedExtent],
) -> Result<Option<Vec<CopiedExtent>>> {
    let mut counts: HashMap<Logical, u64> = HashMap::new();
    for found in plan.data_refs(|leaf| leaf) {
        *counts.entry(found.logical).or_default() += 1;
    }
    let mut unused = Vec::new();
    for extent in data {
        let count = counts.get(&extent.from).copied().unwrap_or(0);
        let listed = Extent::Data { logical: extent.from, len: extent.len };
        let listed = refs::lookup(&context.tree_roots, &listed)?.map_or(0, |found| found.refs);
        if count != listed {
            return Ok(None);
        }
        if count == 0 {
            unused.push(*extent);
        }
    }
    Ok(Some(unused))
}

/// Changes the trees of subvolumes, and counts the references to data.
fn move_references(
    context: &TransactionContext,
    plan: RelocationPlan<'_>,
    data: &[CopiedExtent],
) -> Result<()> {
    let places: BTreeMap<_, _> = data.iter().map(|it| (it.from, it.to)).collect();
    let mut counted = BTreeSet::new();
    for moved in plan.run(context).map_err(|_| Error::NoSpace)? {
        let to = places[&moved.logical];
        let len = moved.len;
        if counted.insert(to) {
            context.refs.allocated_data(to, len, moved.new);
        } else {
            let extent = Extent::Data { logical: to, len };
            context.refs.change(&RefChange { add: true, extent, backref: moved.new });
        }
        let extent = Extent::Data { logical: moved.logical, len };
        context.refs.change(&RefChange { add: false, extent, backref: moved.old });
    }
    Ok(())
}

/// Calls `see` with the extents that lie in a range, according to the extent tree.
fn visit_extents(
    context: &TransactionContext,
    range: &Range<u64>,
    mut see: impl FnMut(Key, ExtentItem),
) -> Result<()> {
    let first = Key::new(range.start, ItemKind::EXTENT_ITEM, 0);
    TreeItems::new(&context.tree_roots, TreeId::EXTENT)?.visit(&first, &mut |key, item| {
        if key.objectid >= range.end {
            return ControlFlow::Break(());
        }
        let is_extent = matches!(key.kind, ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM);
        if key.objectid >= range.start && is_extent {
            see(key, ExtentItem::parse(key, item).expect(VERIFIED));
        }
        ControlFlow::Continue(())
    })
}

/// Returns the blocks in a range that belong to trees which no snapshot shares: the address, the
/// tree, and what to expect of the block.
fn blocks_of_other_trees(
    context: &TransactionContext,
    range: &Range<u64>,
) -> Result<Vec<(Logical, TreeId, Expectation)>> {
    let mut found = Vec::new();
    visit_extents(context, range, |key, item| {
        let level = match item.level {
            MetadataLevel::InKey(level) | MetadataLevel::InItem(_, level) => level,
            MetadataLevel::None => return,
        };
        let generation = item.generation;
        for inline in &item.inline {
            if let &InlineRef::TreeBlock(owner) = inline
                && !owner.is_shareable()
            {
                let expected = Expectation { owner, level, generation, first_key: None, end: None };
                found.push((Logical(key.objectid), owner, expected));
            }
        }
    })?;
    Ok(found)
}

/// Copies the path to a block of a tree that no snapshot shares.
fn copy_path(
    context: &TransactionContext,
    editor: &Editor<'_>,
    logical: Logical,
    owner: TreeId,
    expected: &Expectation,
) -> Result<()> {
    let block = context.volume().read_block(logical, expected)?;
    if block.is_empty() {
        // The root of an empty tree: an item is added, and removed again.
        let key = Key::new(1, ItemKind::INODE_ITEM, 0);
        editor.apply(owner, &mut [ItemEdit::Put(key, Vec::new())])?;
        return editor.apply(owner, &mut [ItemEdit::Remove(key)]);
    }
    let tree = context.tree_roots.tree(owner)?;
    let cursor = context.tree_roots.cursor(&tree, &block.key(0), ReadAhead::Off)?;
    let item = cursor.item().map(|item| (item.key, item.data.to_vec()));
    drop(cursor);
    match item {
        // Nothing changes, but for the addresses.
        Some((key, data)) => editor.apply(owner, &mut [ItemEdit::Put(key, data)]),
        None => Ok(()),
    }
}

/// Returns the extents of data in a range, by address: start and length.
fn data_extents(context: &TransactionContext, range: &Range<u64>) -> Result<Vec<(Logical, u64)>> {
    let mut found = Vec::new();
    visit_extents(context, range, |key, item| {
        if item.flags.contains(ExtentFlags::DATA) {
            found.push((Logical(key.objectid), key.offset));
        }
    })?;
    Ok(found)
}
