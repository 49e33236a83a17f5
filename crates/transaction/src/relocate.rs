//! Relocation of a block group: all that lies in it moves to other block groups.
//!
//! ```text
//!   freeze the group     commit     copy data     commit: move     commit: remove the group
//!                                  +------- part by part ------+
//! ```
//!
//! 1. From `freeze` on nothing is allocated in the group, so that after the first commit the extent
//!    tree lists all that is in it, and all of it is on the device.
//! 2. Data is copied before the commit that moves its references, and is not overwritten in place
//!    meanwhile. The checksums of the copy are those of the original, and are in their tree first.
//! 3. One commit moves all references to a part of the group: before it is durable, the old places
//!    are in use, and after it the new ones. So every crash leaves a consistent filesystem.
//! 4. Blocks of subvolumes are moved by [`RelocationPlan`], which keeps what snapshots share. Other
//!    trees are not shared: the path to each block is copied.
//! 5. All that can fail, but for writes and for reads of what was just read, is done before
//!    anything changes. A relocation that finds too little space, a block that cannot be read, or
//!    references that it does not know, changes nothing, and the commit continues.
//! 6. A request is made under a handle, so that the commit of that transaction finds it.
//! 7. A thread that looked up addresses of data outside of a transaction uses them only if the
//!    [`AddressEpoch`] is still the same.

mod epoch;
mod group;
mod stats;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{ControlFlow, Range};

use userbtrfs_btree::{
    Extent, ItemEdit, Moved, MovedRef, PlanError, ReadAhead, RefChange, RelocationPlan, Tree,
};
use userbtrfs_format::{
    Expectation, ExtentFlags, ExtentItem, InlineRef, ItemKind, Key, Logical, MetadataLevel,
    RootItem, TreeId,
};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::checksums;
use crate::commit::{Handle, HandleKind};
use crate::context::{CHECKSUM_FACTOR, TransactionContext};
use crate::damage::Damage;
use crate::editor::{Editor, Items, TreeItems};
use crate::error::{Error, Result};
use crate::refs;
use crate::space::{Reservation, ReservePolicy};
use crate::units::VERIFIED;

pub use epoch::AddressEpoch;
pub(crate) use group::GroupRelocator;
pub use stats::RelocationStats;

/// The most extents and tree blocks that one commit moves.
const PART_EXTENTS: usize = 1 << 16;
/// The most bytes of data that one commit moves, unless they are one extent.
const PART_BYTES: u64 = 1 << 30;

/// An extent of data that was copied.
#[derive(Clone, Copy, Debug)]
struct CopiedExtent {
    from: Logical,
    to: Logical,
    len: u64,
}

/// A relocation that the next commit makes.
#[derive(Debug)]
struct Request {
    /// The addresses of a part of a block group.
    range: Range<u64>,
    data: Vec<CopiedExtent>,
    /// The most bytes of memory that the changes take.
    memory_max: usize,
}

/// The result of a relocation.
#[derive(Debug)]
enum Outcome {
    /// All references are moved. These copies have none: their originals were freed meanwhile.
    Moved { unused: Vec<CopiedExtent> },
    /// Nothing is changed: it would take too much memory.
    TooLarge,
    /// Nothing is changed, for this reason.
    Refused(Error),
}

/// The relocation that the commit of the running transaction makes.
pub(crate) struct PendingRelocation {
    state: Mutex<State>,
    epochs: epoch::Epochs,
}

#[derive(Default)]
struct State {
    request: Option<Request>,
    outcome: Option<Outcome>,
    stats: RelocationStats,
}

/// References that are being moved. The next epoch begins when this is dropped, and so after the
/// references of the extent tree are changed.
#[must_use = "references are moved until this is dropped"]
pub(crate) struct MovingReferences<'a> {
    epochs: &'a epoch::Epochs,
    _reservation: Reservation,
}

impl Drop for MovingReferences<'_> {
    fn drop(&mut self) {
        self.epochs.begin();
    }
}

impl PendingRelocation {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(Class::ChangedRoots, State::default());
        Self { state, epochs: epoch::Epochs::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().request.is_none()
    }

    pub(crate) fn stats(&self) -> RelocationStats {
        self.state.lock().stats
    }

    /// Sets the bytes that are left to be moved.
    pub(crate) fn set_left(&self, bytes: u64) {
        self.state.lock().stats.left = bytes;
    }

    /// Returns the present epoch; `None` while references are being moved.
    pub(crate) fn epoch(&self) -> Option<AddressEpoch> {
        self.epochs.now()
    }

    /// Waits while references are being moved. The caller is in no transaction.
    pub(crate) fn wait_for_epoch(&self, context: &TransactionContext) -> Result<()> {
        while self.epochs.now().is_none() {
            drop(Handle::join(context, HandleKind::Operation)?);
        }
        Ok(())
    }

    /// Makes the relocation that was requested, if there is one. All references are in the extent
    /// tree, and the caller excludes changes of all trees; it applies the references before it
    /// drops the result.
    pub(crate) fn run(
        &self,
        context: &TransactionContext,
        editor: &Editor<'_>,
    ) -> Result<Option<MovingReferences<'_>>> {
        let Some(request) = self.state.lock().request.take() else { return Ok(None) };
        let (outcome, moving) = match Relocation::plan(context, editor.generation, &request) {
            Ok((relocation, reservation)) => {
                self.epochs.end();
                let moving = MovingReferences { epochs: &self.epochs, _reservation: reservation };
                (relocation.run(editor)?, Some(moving))
            }
            Err(refused) => (refused, None),
        };
        self.state.lock().outcome = Some(outcome);
        Ok(moving)
    }
}

/// A relocation that can be made: all that it needs is read, and its references are known.
struct Relocation<'a> {
    context: &'a TransactionContext,
    plan: RelocationPlan<'a>,
    data: &'a [CopiedExtent],
    /// The copies whose originals have no references.
    unused: Vec<CopiedExtent>,
    /// The checksums of the copies, by the address of the first sector.
    checksums: BTreeMap<u64, Vec<u8>>,
    /// For each block of a tree that no snapshot shares, the changes that copy it.
    paths: Vec<(TreeId, Vec<ItemEdit>)>,
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<PlanError> for Outcome {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::TooLarge => Self::TooLarge,
            PlanError::Read(error) => Self::Refused(error.into()),
        }
    }
}

impl<'a> Relocation<'a> {
    /// Plans the move of all that is in a range, and reserves space for it.
    fn plan(
        context: &'a TransactionContext,
        generation: u64,
        request: &'a Request,
    ) -> Result<(Self, Reservation), Outcome> {
        let plan = plan_blocks(context, generation, request)?;
        let moved = plan.data_refs(|leaf| leaf);
        let Some(unused) = compare_data_refs(context, &moved, &request.data)? else {
            return Err(refused("references to data are unknown"));
        };
        let mut checksums = BTreeMap::new();
        for CopiedExtent { from, to, len } in used(&request.data, &unused) {
            let runs = checksums::runs(&context.tree_roots, from, len)?;
            checksums.extend(runs.into_iter().map(|(at, sums)| (at - from.0 + to.0, sums)));
        }
        let mut paths = Vec::new();
        let mut blocks = plan.copies() as u64;
        let mut of_chunk_tree = 0;
        for (logical, owner, expected) in blocks_of_other_trees(context, &request.range)? {
            let path_len = path_len(context, owner, expected.level)?;
            blocks += path_len;
            if owner == TreeId::CHUNK {
                of_chunk_tree += path_len;
            }
            paths.push((owner, edits_of_path(context, logical, owner, &expected)?));
        }
        // The chunk tree has space of its own, which is not reserved.
        if of_chunk_tree > 0 && !context.space.has_system_blocks(of_chunk_tree) {
            return Err(Error::NoSpace.into());
        }
        let of_paths = (blocks - plan.copies() as u64) * u64::from(context.nodesize());
        if of_paths > request.memory_max as u64 {
            return Err(Outcome::TooLarge);
        }
        let sums: usize = checksums.values().map(Vec::len).sum();
        let bytes = blocks * u64::from(context.nodesize()) + CHECKSUM_FACTOR * sums as u64;
        let references = plan.changes(&moved) as u64 + 2 * blocks;
        let reservation = context.reserve_now(bytes, references, ReservePolicy::Normal);
        let reservation = reservation.ok_or(Error::NoSpace)?;
        let relocation = Self { context, plan, data: &request.data, unused, checksums, paths };
        Ok((relocation, reservation))
    }

    fn run(self, editor: &Editor<'_>) -> Result<Outcome> {
        for (owner, edits) in self.paths {
            for edit in edits {
                editor.apply(owner, &mut [edit])?;
            }
        }
        checksums::insert(editor, &self.checksums)?;
        move_references(self.context, self.plan, self.data)?;
        Ok(Outcome::Moved { unused: self.unused })
    }
}

fn refused(why: &'static str) -> Outcome {
    Outcome::Refused(Error::NotRelocated(why))
}

/// Returns the copies that get references.
fn used(data: &[CopiedExtent], unused: &[CopiedExtent]) -> impl Iterator<Item = CopiedExtent> {
    let unused: BTreeSet<_> = unused.iter().map(|it| it.from).collect();
    data.iter().copied().filter(move |it| !unused.contains(&it.from))
}

/// Plans the changes of the trees of subvolumes.
fn plan_blocks<'a>(
    context: &'a TransactionContext,
    generation: u64,
    request: &Request,
) -> Result<RelocationPlan<'a>, Outcome> {
    let trees = subvolume_trees(context)?;
    let data: HashMap<_, _, _> = request.data.iter().map(|it| (it.from, it.to)).collect();
    let moved = Moved { blocks: request.range.clone(), data };
    let store = context.tree_roots.store();
    let mut plan = RelocationPlan::new(store, moved, generation, request.memory_max);
    for tree in &trees {
        plan.add_tree(tree)?;
    }
    let lookup = |logical, level| {
        let found = refs::lookup(&context.tree_roots, &Extent::Block { logical, level })?;
        found.ok_or_else(|| Error::from(Damage::NoExtent(logical)))
    };
    if plan.find_refs(lookup)? {
        Ok(plan)
    } else {
        Err(refused("references to tree blocks are unknown"))
    }
}

/// Returns the trees whose blocks snapshots may share. Those of deleted subvolumes are whole, or
/// this fails: the references of one that is being dropped are not known.
fn subvolume_trees(context: &TransactionContext) -> Result<Vec<Arc<Tree>>> {
    let tree_roots = &context.tree_roots;
    let mut trees = Vec::new();
    let mut cursor = tree_roots.cursor(tree_roots.roots(), &Key::MIN, ReadAhead::Forward)?;
    while let Some(item) = cursor.item() {
        let id = TreeId(item.key.objectid);
        if item.key.kind == ItemKind::ROOT_ITEM && id.is_shareable() {
            let root = RootItem::parse(item.data).expect(VERIFIED);
            if root.refs == 0 && root.drop_progress.objectid != 0 {
                return Err(Error::TreeBeingDropped);
            }
            trees.push(tree_roots.any_tree(id, &root));
        }
        cursor.advance()?;
    }
    Ok(trees)
}

/// Compares the references to data that were found with the extent tree; returns the extents that
/// have none, and `None` if they differ.
fn compare_data_refs(
    context: &TransactionContext,
    moved: &[MovedRef],
    data: &[CopiedExtent],
) -> Result<Option<Vec<CopiedExtent>>> {
    let mut counts: HashMap<Logical, u64> = HashMap::new();
    for found in moved {
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

/// Calls `see` with the extents that lie in a range, according to the extent tree, until it breaks.
fn visit_extents(
    context: &TransactionContext,
    range: &Range<u64>,
    mut see: impl FnMut(Key, ExtentItem) -> ControlFlow<()>,
) -> Result<()> {
    let first = Key::new(range.start, ItemKind::EXTENT_ITEM, 0);
    TreeItems::new(&context.tree_roots, TreeId::EXTENT)?.visit(&first, &mut |key, item| {
        if key.objectid >= range.end {
            return ControlFlow::Break(());
        }
        let is_extent = matches!(key.kind, ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM);
        if key.objectid >= range.start && is_extent {
            return see(key, ExtentItem::parse(key, item).expect(VERIFIED));
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
            MetadataLevel::None => return ControlFlow::Continue(()),
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
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Returns the number of blocks on the path from the root of a tree to a block.
fn path_len(context: &TransactionContext, owner: TreeId, level: u8) -> Result<u64> {
    let root = context.tree_roots.tree(owner)?.root();
    Ok(u64::from(root.level.saturating_sub(level)) + 1)
}

/// Returns the changes after which the path to a block, of a tree that no snapshot shares, is
/// copied, and all items are as before.
fn edits_of_path(
    context: &TransactionContext,
    logical: Logical,
    owner: TreeId,
    expected: &Expectation,
) -> Result<Vec<ItemEdit>> {
    let block = context.volume().read_block(logical, expected)?;
    if block.is_empty() {
        // The root of an empty tree: an item is added, and removed again.
        let key = Key::new(1, ItemKind::INODE_ITEM, 0);
        return Ok(vec![ItemEdit::Put(key, Vec::new()), ItemEdit::Remove(key)]);
    }
    let tree = context.tree_roots.tree(owner)?;
    let cursor = context.tree_roots.cursor(&tree, &block.key(0), ReadAhead::Off)?;
    // Nothing changes, but for the addresses.
    let item = cursor.item().map(|item| ItemEdit::Put(item.key, item.data.to_vec()));
    Ok(item.into_iter().collect())
}

/// A part of a block group, of which all moves in one commit.
struct Part {
    range: Range<u64>,
    /// The extents of data: start and length.
    data: Vec<(Logical, u64)>,
    /// The number of extents and tree blocks.
    count: usize,
}

impl Part {
    /// Returns the number of its tree blocks.
    fn blocks(&self) -> u64 {
        (self.count - self.data.len()) as u64
    }

    /// Returns the first part of a range, of at most `most` extents and tree blocks, and of few
    /// bytes of data; `None` if there is nothing in the range.
    fn first(
        context: &TransactionContext,
        range: &Range<u64>,
        most: usize,
    ) -> Result<Option<Self>> {
        let mut part = Self { range: range.clone(), data: Vec::new(), count: 0 };
        let mut bytes = 0;
        visit_extents(context, range, |key, item| {
            let is_data = item.flags.contains(ExtentFlags::DATA);
            let len = if is_data { key.offset } else { 0 };
            if part.count == most || part.count > 0 && bytes + len > PART_BYTES {
                part.range.end = key.objectid;
                return ControlFlow::Break(());
            }
            bytes += len;
            part.count += 1;
            part.data.extend(is_data.then_some((Logical(key.objectid), len)));
            ControlFlow::Continue(())
        })?;
        Ok((part.count > 0).then_some(part))
    }
}
