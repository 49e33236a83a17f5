//! Dropping the trees of deleted subvolumes, in steps.
//!
//! A deleted subvolume has a root item with no references, and no name; its tree is not changed
//! any more. The walk is in [`TreeDrop`]; here it is divided into transactions:
//!
//! 1. A step is made under one handle: the references that it drops, and the position after it in
//!    the root item, are durable together. After a crash, or in Linux, the drop continues there.
//! 2. The last step removes the root item and the orphan item. Nothing of the tree is left then.
//! 3. A step reserves what the next commit takes for the references that it drops; the less space
//!    there is, the smaller the steps. A block is dropped, or converted, as a whole.
//! 4. Between steps the walk is kept in memory. It is lost with the mount; nothing else is.
//! 5. A step that fails has dropped what its position says. Only if the position cannot be written
//!    does all writing end.

use std::collections::BTreeMap;

use userbtrfs_btree::{DropCounts, DropError, DropPosition, ItemEdit, ReadAhead, TreeDrop};
use userbtrfs_format::{ItemKind, Key, ORPHAN_OBJECTID, RootItem, TreeId};
use userbtrfs_sync::{Arc, Class, Mutex};

use crate::commit::{CommitTrigger, Committer, Handle, HandleKind};
use crate::context::TransactionContext;
use crate::damage::Damage;
use crate::error::{Error, Result};
use crate::roots::TreeRoots;
use crate::space::flush::SpaceReserver;
use crate::space::{Reservation, ReservePolicy};
use crate::units::VERIFIED;

/// The references that a step drops by default.
pub(crate) const STEP_REFERENCES: u64 = 512;

/// Items of the root tree that change in a step.
const STEP_ITEMS: u64 = 2;

/// The bytes of a child pointer: a node has no more children than fit.
const POINTER_BYTES: u64 = 33;

/// The progress of the drop of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropProgress {
    /// The tree is dropped, and its root item removed.
    Dropped(DropCounts),
    /// More steps are needed.
    Continues(DropCounts),
}

/// Drops trees.
pub(crate) struct TreeDropper {
    context: Arc<TransactionContext>,
    committer: Arc<Committer>,
    /// The trees that are being dropped; `None` during a step.
    walks: Mutex<BTreeMap<TreeId, Option<TreeDrop>>>,
}

impl TreeDropper {
    pub(crate) fn new(context: Arc<TransactionContext>, committer: Arc<Committer>) -> Self {
        let walks = Mutex::new(Class::CacheShard, BTreeMap::new());
        Self { context, committer, walks }
    }

    /// Makes a step of about `references` references. The caller is in no transaction.
    pub(crate) fn step(
        &self,
        id: TreeId,
        reserver: &SpaceReserver,
        references: u64,
    ) -> Result<DropProgress> {
        self.context.check()?;
        self.bound_memory()?;
        let (_reservation, budget) = self.reserve(reserver, references)?;
        let handle = Handle::join(&self.context, HandleKind::Operation)?;
        let kept = self.walks.lock().insert(id, None);
        assert!(!matches!(kept, Some(None)), "one thread at a time drops {id}");
        let mut walk = match kept.flatten().map_or_else(|| self.start(id), Ok) {
            Ok(walk) => walk,
            Err(error) => {
                self.walks.lock().remove(&id);
                return Err(error);
            }
        };
        let stepped = walk.step(self.context.tree_roots.store(), &*self.context, budget);
        let written = self.context.fail_on_error(|| match stepped {
            Ok(true) => self.remove_root(&handle, id),
            Ok(false) | Err(_) => self.write_position(&handle, id, walk.position()),
        });
        let counts = walk.take_counts();
        let mut walks = self.walks.lock();
        walks.remove(&id);
        written?;
        if stepped? {
            return Ok(DropProgress::Dropped(counts));
        }
        walks.insert(id, Some(walk));
        Ok(DropProgress::Continues(counts))
    }

    /// Commits if the delayed references take too much memory.
    fn bound_memory(&self) -> Result<()> {
        let TransactionContext { options, refs, .. } = &*self.context;
        if options.only_asked || refs.bytes() <= options.dirty_max / 2 {
            return Ok(());
        }
        self.committer.commit(CommitTrigger::Memory)
    }

    /// Reserves space for a step of `most` references, or fewer if there is less space. Returns
    /// the number of references.
    fn reserve(&self, reserver: &SpaceReserver, most: u64) -> Result<(Reservation, u64)> {
        let bytes = self.context.bytes_for(STEP_ITEMS);
        // A block is dropped as a whole, with the blocks above it that it was the last child of.
        let least = u64::from(self.context.nodesize()) / POINTER_BYTES;
        let now =
            |budget: u64| self.context.reserve_now(bytes, budget.max(least), ReservePolicy::Steal);
        let mut budget = most.max(1);
        loop {
            if let Some(reservation) = now(budget) {
                return Ok((reservation, budget));
            }
            if budget <= least {
                break;
            }
            budget /= 2;
        }
        // That may have committed, so that there is space for more.
        let reservation = reserver.reserve(STEP_ITEMS, ReservePolicy::Steal)?;
        Ok(now(1).map_or((reservation, 1), |reservation| (reservation, 1)))
    }

    /// Begins to drop a tree, or continues what an earlier mount began.
    fn start(&self, id: TreeId) -> Result<TreeDrop> {
        let tree_roots = &self.context.tree_roots;
        let (key, item) = tree_roots.root_entry(id)?.ok_or(Error::NoTree(id))?;
        assert_eq!(item.refs, 0, "{id} is dropped after it was deleted");
        let at = item.drop_progress;
        let level = item.drop_level;
        let position = (at.objectid != 0).then_some(DropPosition { key: at, level });
        let tree = tree_roots.dead_tree(id, &item);
        let store = tree_roots.store();
        let source = &*self.context;
        Ok(TreeDrop::start(store, source, &tree, key.offset, position)?)
    }

    fn write_position(
        &self,
        handle: &Handle<'_>,
        id: TreeId,
        position: Option<DropPosition>,
    ) -> Result<()> {
        let tree_roots = &self.context.tree_roots;
        let Some(DropPosition { key: at, level }) = position else { return Ok(()) };
        let (key, mut item) = tree_roots.root_entry(id)?.ok_or(Error::NoTree(id))?;
        if (item.drop_progress, item.drop_level) == (at, level) {
            return Ok(());
        }
        (item.drop_progress, item.drop_level) = (at, level);
        handle.apply(tree_roots.roots(), &mut [ItemEdit::Put(key, item.encode())])
    }

    fn remove_root(&self, handle: &Handle<'_>, id: TreeId) -> Result<()> {
        let tree_roots = &self.context.tree_roots;
        let (key, _) = tree_roots.root_entry(id)?.ok_or(Error::NoTree(id))?;
        let orphan = Key::new(ORPHAN_OBJECTID, ItemKind::ORPHAN_ITEM, id.0);
        // The commit finds no root item to update.
        self.context.changed.lock().forget(id);
        tree_roots.forget(id);
        handle.apply(tree_roots.roots(), &mut [ItemEdit::Remove(key), ItemEdit::Remove(orphan)])
    }
}

/// Returns the deleted subvolumes whose trees are not dropped yet, ascending.
pub(crate) fn dead_roots(tree_roots: &TreeRoots) -> Result<Vec<TreeId>> {
    let mut dead = Vec::new();
    let first = Key::new(TreeId::FS.0, ItemKind::ROOT_ITEM, 0);
    let mut cursor = tree_roots.cursor(tree_roots.roots(), &first, ReadAhead::Forward)?;
    while let Some(item) = cursor.item() {
        let id = TreeId(item.key.objectid);
        if item.key.kind == ItemKind::ROOT_ITEM && id.is_subvolume() {
            let root = RootItem::parse(item.data).expect(VERIFIED);
            dead.extend((root.refs == 0).then_some(id));
        }
        cursor.advance()?;
    }
    Ok(dead)
}

impl From<DropError> for Error {
    fn from(error: DropError) -> Self {
        match error {
            DropError::Read(error) => Self::Read(error),
            DropError::Source(error) => Self::from_source(error),
            DropError::Unreferenced(logical) => Damage::NoExtent(logical).into(),
            DropError::NotOwn { tree, logical } => Damage::NotOwn { tree, logical }.into(),
            DropError::Position { tree, at: DropPosition { key, level } } => {
                Damage::DropPosition { tree, key, level }.into()
            }
        }
    }
}
