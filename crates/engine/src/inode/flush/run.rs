//! How what waits comes into the trees.
//!
//! 1. One merge runs at a time. It takes all that waits, in the order of the items, so that each
//!    leaf is come to once.
//! 2. An inode's set is frozen, then put into the tree, then dropped: until that is done reads
//!    find it there.
//! 3. Operations go on meanwhile, on sets of their own.
//! 4. Extents of files come in two rounds: see [`crate::inode::flush::drop_extents`]. No leaf is
//!    written between them.
//! 5. Names by hash come late: a merge passes them on to what waits of its directory for that,
//!    and puts all of them into the tree only where it is to, or where they are too many. Those of
//!    a directory of moderate size go there before: when they are many beside all that it has.
//! 6. A merge that fails has put part of what it took into the trees: nothing of the transaction
//!    may become durable, and no later merge succeeds.

use std::sync::Weak;

use userbtrfs_btree::ReadAhead;
use userbtrfs_format::{FileKind, IncompatFlags, InodeItem, ItemKind, Key, SECTOR_SIZE};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{FlushScope, Handle, Result, TransactionHooks};

use crate::error::InodeId;
use crate::inode::flush::drop_extents::{DropExtents, ExtentEdit, ExtentSplits};
use crate::inode::flush::item_edits::ItemChanges;
use crate::inode::ops::orphan::stored_extent;
use crate::inode::pending::deferred_dir_items::{DeferredDirItems, HashBucket};
use crate::inode::pending::delayed_items::{DelayedItems, EntryChanges};
use crate::inode::pending::extents::Replaced;
use crate::inode::tree::ondisk;
use crate::inode::tree::ondisk::ORPHANS;
use crate::inode::{Inode, Inodes};

/// Inodes whose sets are taken before they are put into the tree.
const TAKEN_MAX: usize = 256;

/// Items that are changed at a time: a set may be of any number of them.
const EDITS_MAX: usize = 1024;

/// Bytes in a sector.
const SECTOR: u64 = SECTOR_SIZE as u64;

/// Names that are passed on while nobody can look for one among those that come late.
const PASSED_MAX: usize = 256;

/// The part of the names of a directory that is many: then a few of them fall into each leaf.
const MANY: u64 = 10;

/// The part of the bound of what waits that the names of a directory of moderate size take. The
/// leaves of larger ones go to the disk between merges, and come back.
const MODERATE: usize = 4;

/// The most bytes of names that come late.
const LATE_MAX: usize = 1 << 30;

/// The part of the bound at which a worker begins to merge, so that a commit finds little left.
const EARLY: usize = 8;

/// What merges when the ledger asks; it does not keep the filesystem open.
pub(crate) struct DelayedItemsFlusher(pub(crate) Weak<Inodes>);

impl TransactionHooks for DelayedItemsFlusher {
    fn is_clean(&self) -> bool {
        self.0.upgrade().is_none_or(|nodes| nodes.waiting.is_empty() && nodes.late.is_empty())
    }

    fn merge(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()> {
        match self.0.upgrade() {
            Some(nodes) => nodes.merge(handle, what),
            None => Ok(()),
        }
    }

    fn aborted(&self) {}
}

/// A set that was taken, and is not yet in its tree.
struct Taken {
    inode: Arc<Inode>,
    set: Arc<DelayedItems>,
    /// The attributes that are merged with it.
    item: InodeItem,
    /// What the tree has of an inode that is gone.
    items: Vec<Key>,
    /// What becomes of the items of a file.
    extents: Vec<ExtentEdit>,
}

/// What was taken and is not yet in its tree, all of one subvolume.
struct Batch<'a> {
    nodes: &'a Inodes,
    handle: &'a Handle<'a>,
    holes_have_items: bool,
    taken: Vec<Taken>,
    /// Items of files that come before any other change of those files: inode and item.
    remnants: Vec<(u64, ExtentEdit)>,
    /// How many items of files change.
    extents: usize,
    /// What comes to the list of inodes without a name, which stands behind all inodes.
    orphans: Vec<ItemChanges<'static>>,
    /// Extents that files refer to in another way than before.
    replaced: Vec<(InodeId, Replaced)>,
    /// Directories with names that come late.
    dirs: Vec<Arc<Inode>>,
    /// What comes into items.
    buffer: Vec<u8>,
    /// Items of files overlap just now: their leaves must not be written.
    is_cutting: bool,
}

impl Inodes {
    /// Merges where so much waits that memory asks for it. No lock is held.
    pub(in crate::inode) fn relieve(&self) -> crate::error::Result<()> {
        let (waiting, max) = (self.waiting.bytes(), self.options.pending_max);
        let transactions = self.transactions()?;
        if waiting > max {
            transactions.merge_most()?;
        } else if waiting > max / EARLY {
            transactions.request_merge();
        }
        Ok(())
    }

    /// Puts what waits into the trees; never again where that failed half-way.
    fn merge(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()> {
        let _one = self.merging.lock();
        let transactions = self.transactions.as_ref().expect("who merges changes something");
        transactions.check()?;
        // Before the next one in the line comes in.
        self.merge_alone(handle, what).inspect_err(|error| transactions.fail(&error.to_string()))
    }

    fn merge_alone(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()> {
        let mut promised = self.delayed_reservation.take();
        let inodes = self.waiting.take();
        for inodes in inodes.chunk_by(|a, b| a.id().subvolume == b.id().subvolume) {
            let mut batch = Batch::new(self, handle);
            for inode in inodes {
                batch.add(inode)?;
            }
            batch.finish(&inodes[0])?;
            handle.subvolume_changed(inodes[0].id().subvolume);
        }
        // Names that come late drop none.
        if let Some(promised) = &mut promised {
            promised.meet();
        }
        let late_max = match what {
            FlushScope::All => 0,
            FlushScope::Most => self.options.late_bytes.min(LATE_MAX),
        };
        if what == FlushScope::All || self.late.bytes() > late_max {
            self.merge_some_late(handle, late_max)?;
        }
        if !self.late.is_empty() {
            self.hold(handle, promised);
        }
        Ok(())
    }

    /// Puts names that come late into their trees, until no more of them are left than so much.
    fn merge_some_late(&self, handle: &Handle<'_>, max: usize) -> Result<()> {
        for dir in self.late.take() {
            let largest = || dir.late().as_ref().map(|late| late.largest());
            while let Some(part) = largest()
                && self.late.bytes() > max
            {
                self.merge_late(handle, &dir, (max > 0).then_some(part))?;
            }
            if dir.late().is_some() {
                self.late.add(&dir, 0);
            }
        }
        Ok(())
    }

    /// Puts the names of a directory that come late into its tree: a part of them, or all.
    fn merge_late(&self, handle: &Handle<'_>, dir: &Inode, part: Option<HashBucket>) -> Result<()> {
        let Some(late) = dir.late().clone() else { return Ok(()) };
        let drafts =
            late.iter(part).map(|(hash, alike)| ItemChanges::names(dir.number(), hash, alike));
        Batch::new(self, handle).put(dir, drafts)?;
        drop(late);
        self.forget_late(dir, part);
        Ok(())
    }

    /// Whether the names of a directory that come late are better put into its tree.
    fn has_many_late(&self, dir: &Inode) -> bool {
        let size = dir.size();
        let late = dir.late().as_ref().map_or(0, |late| 2 * late.names_len() as u64);
        let is_moderate = size <= (self.options.pending_max / MODERATE) as u64;
        late > 0 && is_moderate && late.saturating_mul(MANY) >= size
    }

    /// The names of a directory that come late, or a part of them, are in its tree, or are not to
    /// come any more.
    fn forget_late(&self, dir: &Inode, part: Option<HashBucket>) {
        let mut late = dir.late();
        let Some(names) = late.as_mut().map(shared_by_merges) else { return };
        let before = names.bytes();
        names.forget(part);
        self.late.shrink(before - names.bytes());
        if names.bytes() == 0 {
            *late = None;
        }
    }

    /// Passes names that were merged but for their hashes on to those that come late. Until all
    /// are, they are found in their set. Of those that came and went nothing is left.
    fn pass_on(&self, dir: &Arc<Inode>, changes: &EntryChanges) {
        let mut names = changes.by_name.iter().peekable();
        while names.peek().is_some() {
            let mut late = dir.late();
            if late.is_none() {
                self.late.add(dir, 0);
            }
            let some = shared_by_merges(late.get_or_insert_default());
            let before = some.bytes();
            for (hash, alike) in names.by_ref().take(PASSED_MAX) {
                some.take_in(*hash, alike);
            }
            let after = some.bytes();
            self.late.grow(after.saturating_sub(before));
            self.late.shrink(before.saturating_sub(after));
            if after == 0 {
                *late = None;
            }
        }
    }
}

/// What only merges share, for the one that changes it.
fn shared_by_merges(late: &mut Arc<DeferredDirItems>) -> &mut DeferredDirItems {
    Arc::get_mut(late).expect("only a merge shares them, and there is one")
}

impl Taken {
    fn drafts(&self) -> impl Iterator<Item = ItemChanges<'_>> {
        let (number, is_gone) = (self.inode.number(), self.set.gone);
        let drafts = (!is_gone).then(|| ItemChanges::of(number, &self.set, &self.item));
        let removed = self.items.iter().map(|key| ItemChanges::remove(*key));
        let extents = self.extents.iter().map(move |edit| ItemChanges::extent(number, edit));
        removed.chain(drafts.into_iter().flatten()).chain(extents)
    }
}

impl<'a> Batch<'a> {
    fn new(nodes: &'a Inodes, handle: &'a Handle<'a>) -> Self {
        let superblock = nodes.tree_roots.store().volume().superblock();
        Self {
            nodes,
            handle,
            holes_have_items: !superblock.incompat.contains(IncompatFlags::NO_HOLES),
            taken: Vec::new(),
            remnants: Vec::new(),
            extents: 0,
            orphans: Vec::new(),
            replaced: Vec::new(),
            dirs: Vec::new(),
            buffer: Vec::new(),
            is_cutting: false,
        }
    }

    /// Takes an inode's changes.
    fn add(&mut self, inode: &Arc<Inode>) -> Result<()> {
        let Some((set, item)) = inode.state().freeze() else { return Ok(()) };
        if let Some(listed) = set.orphan {
            let key = Key::new(ORPHANS, ItemKind::ORPHAN_ITEM, inode.number());
            self.orphans.push(if listed {
                ItemChanges::mark(key)
            } else {
                ItemChanges::remove(key)
            });
        }
        let (items, extents) = match set.gone {
            true => (self.items(inode)?, Vec::new()),
            false => (Vec::new(), self.extents(inode, &set, &item)?),
        };
        self.extents += extents.len();
        self.taken.push(Taken { inode: Arc::clone(inode), set, item, items, extents });
        match self.taken.len() < TAKEN_MAX && self.extents < EDITS_MAX {
            true => Ok(()),
            false => self.apply(inode),
        }
    }

    /// What becomes of the items of a file; where that is much, most of it is done.
    fn extents(
        &mut self,
        inode: &Inode,
        set: &DelayedItems,
        item: &InodeItem,
    ) -> Result<Vec<ExtentEdit>> {
        let (extents, holes) = (&set.extents, self.holes(inode, set, item)?);
        if extents.is_empty() && holes.is_none() {
            return Ok(Vec::new());
        }
        let (nodes, handle) = (self.nodes, self.handle);
        let drop_extents = DropExtents {
            tree_roots: &nodes.tree_roots,
            tree: inode.tree(),
            number: inode.number(),
            extents,
            generation: handle.generation(),
            holes,
            created: set.created,
        };
        let mut cuts = drop_extents.run(EDITS_MAX, |cuts| self.put_cuts(inode, cuts))?;
        self.take_cuts(inode, &mut cuts);
        Ok(cuts.changes)
    }

    /// Between which sizes of a file holes must have items; nothing where they have none. The log
    /// must know of them, too, before the tree does.
    fn holes(
        &self,
        inode: &Inode,
        set: &DelayedItems,
        item: &InodeItem,
    ) -> Result<Option<(u64, u64)>> {
        if !self.holes_have_items || item.kind != FileKind::Regular {
            return Ok(None);
        }
        let before = match set.created {
            true => 0,
            false => ondisk::size(&self.nodes.tree_roots, inode.tree(), inode.number())?,
        };
        let up = |size: u64| size.div_ceil(SECTOR).saturating_mul(SECTOR);
        let (before, after) = (up(before), up(item.size));
        if before < after {
            inode.state().changed.insert(self.handle.generation(), before..after);
        }
        Ok(Some((before, after)))
    }

    /// What comes first, and what changes at references, is left to the whole.
    fn take_cuts(&mut self, inode: &Inode, cuts: &mut ExtentSplits) {
        let (id, number) = (inode.id(), inode.number());
        self.remnants.extend(cuts.remnants.drain(..).map(|edit| (number, edit)));
        self.replaced.extend(cuts.replaced.drain(..).map(|replaced| (id, replaced)));
    }

    /// Puts a part of what becomes of a file into the tree.
    fn put_cuts(&mut self, inode: &Inode, cuts: &mut ExtentSplits) -> Result<()> {
        self.is_cutting = true;
        self.take_cuts(inode, cuts);
        self.put_remnants(inode)?;
        let changes = std::mem::take(&mut cuts.changes);
        self.put(inode, changes.iter().map(|edit| ItemChanges::extent(inode.number(), edit)))?;
        self.count_references();
        Ok(())
    }

    /// All that the tree has of an inode that is gone.
    fn items(&mut self, inode: &Inode) -> Result<Vec<Key>> {
        let (tree_roots, number) = (&self.nodes.tree_roots, inode.number());
        let mut items = Vec::new();
        let first = Key::new(number, ItemKind(0), 0);
        let mut cursor = tree_roots.cursor(inode.tree(), &first, ReadAhead::Off)?;
        while let Some(item) = cursor.item().filter(|item| item.key.objectid == number) {
            items.push(item.key);
            if item.key.kind == ItemKind::EXTENT_DATA {
                let replaced = stored_extent(item.key.offset, item.data);
                self.replaced.extend(replaced.map(|replaced| (inode.id(), replaced)));
            }
            cursor.advance()?;
        }
        Ok(items)
    }

    /// Puts what was taken into the tree.
    fn apply(&mut self, any: &Inode) -> Result<()> {
        let taken = std::mem::take(&mut self.taken);
        self.extents = 0;
        self.put_remnants(any)?;
        self.put(any, taken.iter().flat_map(Taken::drafts))?;
        self.is_cutting = false;
        self.handle.write_early()?;
        self.count_references();
        for Taken { inode, set, .. } in taken {
            if set.gone {
                self.nodes.forget_late(&inode, None);
            } else if !set.entries.by_name.is_empty() {
                self.nodes.pass_on(&inode, &set.entries);
                self.dirs.push(Arc::clone(&inode));
            }
            inode.state().merging = None;
            if set.gone {
                self.nodes.table.remove(inode.id());
            }
            self.nodes.waiting.shrink(set.bytes);
        }
        Ok(())
    }

    /// Puts what must come first into the tree.
    fn put_remnants(&mut self, any: &Inode) -> Result<()> {
        let remnants = std::mem::take(&mut self.remnants);
        self.is_cutting |= !remnants.is_empty();
        self.put(any, remnants.iter().map(|(number, edit)| ItemChanges::extent(*number, edit)))
    }

    fn count_references(&mut self) {
        let handle = self.handle;
        self.replaced.drain(..).for_each(|(inode, replaced)| replaced.count(handle, inode));
    }

    fn put<'d>(
        &mut self,
        any: &Inode,
        drafts: impl Iterator<Item = ItemChanges<'d>>,
    ) -> Result<()> {
        let mut drafts = drafts.peekable();
        loop {
            let some: Vec<_> = drafts.by_ref().take(EDITS_MAX).collect();
            if some.is_empty() {
                return Ok(());
            }
            let mut edits = ItemChanges::edits(&some, &mut self.buffer);
            self.handle.apply(any.tree(), &mut edits)?;
            let (last, next) = (some.last(), drafts.peek());
            let amid_a_file =
                [last, next].iter().all(|draft| draft.is_some_and(ItemChanges::is_extent));
            if !self.is_cutting && !amid_a_file {
                self.handle.write_early()?;
            }
        }
    }

    /// Puts the rest into the tree.
    fn finish(mut self, any: &Inode) -> Result<()> {
        self.apply(any)?;
        let orphans = std::mem::take(&mut self.orphans);
        self.put(any, orphans.into_iter())?;
        let Self { nodes, handle, dirs, .. } = self;
        let mut dirs = dirs.iter().filter(|dir| nodes.has_many_late(dir));
        dirs.try_for_each(|dir| nodes.merge_late(handle, dir, None))
    }
}
