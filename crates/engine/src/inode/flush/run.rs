//! Flushes delayed items into the trees (Linux: btrfs_run_delayed_items).
//!
//! 1. One flush runs at a time. It takes all delayed items, in key order, so that each leaf is
//!    visited once.
//! 2. An inode's set is frozen, then put into the tree, then dropped: until then reads find it in
//!    memory.
//! 3. Operations continue meanwhile, on sets of their own.
//! 4. Extents of files are put in two rounds: see [`crate::inode::flush::drop_extents`]. No leaf is
//!    written out between them.
//! 5. DIR_ITEMs are deferred: a flush adds them to the deferred ones of their directory, and puts
//!    these into the tree only in a flush of [`FlushScope::All`], or if there are too many. Those
//!    of a directory of moderate size are put earlier: when they are many compared with all its
//!    names.
//! 6. A flush that fails has put part of the items into the trees: nothing of the transaction may
//!    become durable, so all writing ends, and no later flush succeeds.

use std::sync::Weak;

use userbtrfs_btree::ReadAhead;
use userbtrfs_format::{FileKind, IncompatFlags, InodeItem, ItemKind, Key, ORPHAN_OBJECTID};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{FlushScope, Handle, Result, TransactionHooks};

use crate::error::InodeId;
use crate::inode::flush::drop_extents::{DropExtents, ExtentEdit, ExtentSplits};
use crate::inode::flush::item_edits::ItemChanges;
use crate::inode::pending::deferred_dir_items::{DeferredDirItems, HashBucket};
use crate::inode::pending::delayed_items::{DelayedItems, EntryChanges};
use crate::inode::pending::extents::Replaced;
use crate::inode::tree::ondisk;
use crate::inode::{Inode, Inodes};
use crate::units::SECTOR;

/// The most inodes whose sets are taken before they are put into the tree.
const TAKEN_MAX: usize = 256;

/// The most items that are changed at once: a set may have any number of them.
const EDITS_MAX: usize = 1024;

/// The most names that are deferred under one lock, which blocks lookups among the deferred names.
const PASSED_MAX: usize = 256;

/// The fraction of the names of a directory that counts as many: then several fall into each leaf.
const MANY: u64 = 10;

/// The fraction of the limit of delayed items up to which a directory is of moderate size. The
/// leaves of larger ones are evicted between flushes, and read again.
const MODERATE: usize = 4;

/// The most bytes of deferred DIR_ITEMs.
const LATE_MAX: usize = 1 << 30;

/// Flushes for the transaction manager. It does not keep the filesystem open.
pub(crate) struct DelayedItemsFlusher(pub(crate) Weak<Inodes>);

impl TransactionHooks for DelayedItemsFlusher {
    fn is_clean(&self) -> bool {
        self.0.upgrade().is_none_or(|inodes| inodes.waiting.is_empty() && inodes.late.is_empty())
    }

    fn merge(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()> {
        match self.0.upgrade() {
            Some(inodes) => flush(&inodes, handle, what),
            None => Ok(()),
        }
    }

    fn aborted(&self) {}
}

/// A set that was taken, and is not yet in its tree.
struct Taken {
    inode: Arc<Inode>,
    set: Arc<DelayedItems>,
    /// The attributes that are written with it.
    item: InodeItem,
    /// The items that the tree has of a deleted inode.
    items: Vec<Key>,
    /// The edits of EXTENT_DATA items.
    extents: Vec<ExtentEdit>,
}

/// Sets that were taken and are not yet in the tree, all of one subvolume.
struct Batch<'a> {
    inodes: &'a Inodes,
    handle: &'a Handle<'a>,
    holes_have_items: bool,
    taken: Vec<Taken>,
    /// Edits of EXTENT_DATA items to put before any other edit of their files: inode and edit.
    remnants: Vec<(u64, ExtentEdit)>,
    /// The number of edits of EXTENT_DATA items.
    extents: usize,
    /// Edits of ORPHAN_ITEMs, whose keys are greater than those of all inodes.
    orphans: Vec<ItemChanges<'static>>,
    /// Extents whose references change.
    replaced: Vec<(InodeId, Replaced)>,
    /// Directories with deferred DIR_ITEMs.
    dirs: Vec<Arc<Inode>>,
    /// A buffer for the new content of items.
    buffer: Vec<u8>,
    /// EXTENT_DATA items overlap just now: their leaves must not be written out.
    is_cutting: bool,
}

/// Flushes delayed items into the trees; a failure aborts the transaction.
fn flush(inodes: &Inodes, handle: &Handle<'_>, what: FlushScope) -> Result<()> {
    let _one = inodes.merging.lock();
    let transactions = inodes.transactions.as_ref().expect("who merges changes something");
    transactions.check()?;
    // Abort before the next flush gets the lock.
    flush_alone(inodes, handle, what).inspect_err(|error| transactions.fail(&error.to_string()))
}

/// Flushes the delayed items of one inode; a failure aborts the transaction. The space that is
/// reserved for them is released by the next flush of all.
#[cfg(feature = "experiments")]
pub(crate) fn flush_inode(inodes: &Inodes, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let _one = inodes.merging.lock();
    let transactions = inodes.transactions.as_ref().expect("the caller changed the inode");
    transactions.check()?;
    let mut batch = Batch::new(inodes, handle);
    let flushed = batch.add(inode).and_then(|()| batch.finish(inode));
    flushed.inspect_err(|error| transactions.fail(&error.to_string()))?;
    handle.subvolume_changed(inode.id().subvolume);
    Ok(())
}

fn flush_alone(inodes: &Inodes, handle: &Handle<'_>, what: FlushScope) -> Result<()> {
    let mut promised = inodes.delayed_reservation.take();
    let changed = inodes.waiting.take();
    for changed in changed.chunk_by(|a, b| a.id().subvolume == b.id().subvolume) {
        let mut batch = Batch::new(inodes, handle);
        for inode in changed {
            batch.add(inode)?;
        }
        batch.finish(&changed[0])?;
        handle.subvolume_changed(changed[0].id().subvolume);
    }
    // Deferred DIR_ITEMs drop no extent references.
    if let Some(promised) = &mut promised {
        promised.meet();
    }
    let late_max = match what {
        FlushScope::All => 0,
        FlushScope::Most => inodes.options.late_bytes.min(LATE_MAX),
    };
    if what == FlushScope::All || inodes.late.bytes() > late_max {
        flush_some_late(inodes, handle, late_max)?;
    }
    if !inodes.late.is_empty() {
        inodes.hold(handle, promised);
    }
    Ok(())
}

/// Flushes deferred DIR_ITEMs until no more than `max` bytes of them are left.
fn flush_some_late(inodes: &Inodes, handle: &Handle<'_>, max: usize) -> Result<()> {
    for dir in inodes.late.take() {
        let largest = || dir.late().as_ref().map(|late| late.largest());
        while let Some(part) = largest()
            && inodes.late.bytes() > max
        {
            flush_late(inodes, handle, &dir, (max > 0).then_some(part))?;
        }
        if dir.late().is_some() {
            inodes.late.add(&dir, 0);
        }
    }
    Ok(())
}

/// Flushes the deferred DIR_ITEMs of a directory: one bucket, or all.
fn flush_late(
    inodes: &Inodes,
    handle: &Handle<'_>,
    dir: &Inode,
    part: Option<HashBucket>,
) -> Result<()> {
    let Some(late) = dir.late().clone() else { return Ok(()) };
    let drafts = late.iter(part).map(|(hash, alike)| ItemChanges::names(dir.number(), hash, alike));
    Batch::new(inodes, handle).put(dir, drafts)?;
    drop(late);
    forget_late(inodes, dir, part);
    Ok(())
}

/// Returns true if the deferred DIR_ITEMs of a directory are enough to be flushed.
fn has_many_late(inodes: &Inodes, dir: &Inode) -> bool {
    let size = dir.size();
    let late = dir.late().as_ref().map_or(0, |late| 2 * late.names_len() as u64);
    let is_moderate = size <= (inodes.options.pending_max / MODERATE) as u64;
    late > 0 && is_moderate && late.saturating_mul(MANY) >= size
}

/// Drops the deferred DIR_ITEMs of a directory, or one bucket, after they were flushed, or
/// since the directory is deleted.
fn forget_late(inodes: &Inodes, dir: &Inode, part: Option<HashBucket>) {
    let mut late = dir.late();
    let Some(names) = late.as_mut().map(shared_by_merges) else { return };
    let before = names.bytes();
    names.forget(part);
    inodes.late.shrink(before - names.bytes());
    if names.bytes() == 0 {
        *late = None;
    }
}

/// Defers the DIR_ITEMs of a set whose other items are in the tree. Until all are deferred,
/// they are found in the set. Names that were added and removed leave nothing.
fn defer_names(inodes: &Inodes, dir: &Arc<Inode>, changes: &EntryChanges) {
    let mut names = changes.by_name.iter().peekable();
    while names.peek().is_some() {
        let mut late = dir.late();
        if late.is_none() {
            inodes.late.add(dir, 0);
        }
        let some = shared_by_merges(late.get_or_insert_default());
        let before = some.bytes();
        for (hash, alike) in names.by_ref().take(PASSED_MAX) {
            some.take_in(*hash, alike);
        }
        let after = some.bytes();
        inodes.late.grow(after.saturating_sub(before));
        inodes.late.shrink(before.saturating_sub(after));
        if after == 0 {
            *late = None;
        }
    }
}

/// Returns exclusive access to deferred DIR_ITEMs: only flushes share them, and one flush runs at a
/// time.
fn shared_by_merges(late: &mut Arc<DeferredDirItems>) -> &mut DeferredDirItems {
    Arc::get_mut(late).expect("only a merge shares them, and there is one")
}

impl Taken {
    fn drafts(&self) -> impl Iterator<Item = ItemChanges<'_>> {
        let number = self.inode.number();
        let is_gone = self.set.gone;
        let drafts = (!is_gone).then(|| ItemChanges::of(number, &self.set, &self.item));
        let removed = self.items.iter().map(|key| ItemChanges::remove(*key));
        let extents = self.extents.iter().map(move |edit| ItemChanges::extent(number, edit));
        removed.chain(drafts.into_iter().flatten()).chain(extents)
    }
}

impl<'a> Batch<'a> {
    fn new(inodes: &'a Inodes, handle: &'a Handle<'a>) -> Self {
        let superblock = inodes.tree_roots.store().volume().superblock();
        Self {
            inodes,
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

    /// Takes the changes of an inode.
    fn add(&mut self, inode: &Arc<Inode>) -> Result<()> {
        let Some((set, item)) = inode.state().freeze() else { return Ok(()) };
        if let Some(listed) = set.orphan {
            let key = Key::new(ORPHAN_OBJECTID, ItemKind::ORPHAN_ITEM, inode.number());
            self.orphans.push(if listed {
                ItemChanges::mark(key)
            } else {
                ItemChanges::remove(key)
            });
        }
        let (items, extents) = if set.gone {
            (self.items(inode)?, Vec::new())
        } else {
            (Vec::new(), self.extents(inode, &set, &item)?)
        };
        self.extents += extents.len();
        self.taken.push(Taken { inode: Arc::clone(inode), set, item, items, extents });
        if self.taken.len() < TAKEN_MAX && self.extents < EDITS_MAX {
            Ok(())
        } else {
            self.apply(inode)
        }
    }

    /// Returns the edits of a file's EXTENT_DATA items; if there are many, most are put at once.
    fn extents(
        &mut self,
        inode: &Inode,
        set: &DelayedItems,
        item: &InodeItem,
    ) -> Result<Vec<ExtentEdit>> {
        let extents = &set.extents;
        let holes = self.holes(inode, set, item)?;
        if extents.is_empty() && holes.is_none() {
            return Ok(Vec::new());
        }
        let inodes = self.inodes;
        let handle = self.handle;
        let drop_extents = DropExtents {
            tree_roots: &inodes.tree_roots,
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

    /// Returns the file sizes before and after, between which holes must have items, or `None` if
    /// holes have no items. The added range is marked changed, so that it is logged before the tree
    /// has it.
    fn holes(
        &self,
        inode: &Inode,
        set: &DelayedItems,
        item: &InodeItem,
    ) -> Result<Option<(u64, u64)>> {
        if !self.holes_have_items || item.kind != FileKind::Regular {
            return Ok(None);
        }
        let before = if set.created {
            0
        } else {
            ondisk::size(&self.inodes.tree_roots, inode.tree(), inode.number())?
        };
        let up = |size: u64| size.div_ceil(SECTOR).saturating_mul(SECTOR);
        let before = up(before);
        let after = up(item.size);
        if before < after {
            inode.state().changed.insert(self.handle.generation(), before..after);
        }
        Ok(Some((before, after)))
    }

    /// Moves the edits to put first, and the changes of references, to the batch.
    fn take_cuts(&mut self, inode: &Inode, cuts: &mut ExtentSplits) {
        let id = inode.id();
        let number = inode.number();
        self.remnants.extend(cuts.remnants.drain(..).map(|edit| (number, edit)));
        self.replaced.extend(cuts.replaced.drain(..).map(|replaced| (id, replaced)));
    }

    /// Puts a part of the edits of a file into the tree.
    fn put_cuts(&mut self, inode: &Inode, cuts: &mut ExtentSplits) -> Result<()> {
        self.is_cutting = true;
        self.take_cuts(inode, cuts);
        self.put_remnants(inode)?;
        let changes = std::mem::take(&mut cuts.changes);
        self.put(inode, changes.iter().map(|edit| ItemChanges::extent(inode.number(), edit)))?;
        self.count_references();
        Ok(())
    }

    /// Returns the keys of all items of a deleted inode, and collects the references that they
    /// drop.
    fn items(&mut self, inode: &Inode) -> Result<Vec<Key>> {
        let tree_roots = &self.inodes.tree_roots;
        let number = inode.number();
        let mut items = Vec::new();
        let first = Key::new(number, ItemKind(0), 0);
        let mut cursor = tree_roots.cursor(inode.tree(), &first, ReadAhead::Off)?;
        while let Some(item) = cursor.item().filter(|item| item.key.objectid == number) {
            items.push(item.key);
            if item.key.kind == ItemKind::EXTENT_DATA {
                let replaced = Replaced::stored(item.key.offset, item.data);
                self.replaced.extend(replaced.map(|replaced| (inode.id(), replaced)));
            }
            cursor.advance()?;
        }
        Ok(items)
    }

    /// Puts the taken sets into the tree.
    fn apply(&mut self, any: &Inode) -> Result<()> {
        let taken = std::mem::take(&mut self.taken);
        self.extents = 0;
        self.put_remnants(any)?;
        self.put(any, taken.iter().flat_map(Taken::drafts))?;
        self.is_cutting = false;
        self.handle.start_writeout()?;
        self.count_references();
        for Taken { inode, set, .. } in taken {
            if set.gone {
                forget_late(self.inodes, &inode, None);
            } else if !set.entries.by_name.is_empty() {
                defer_names(self.inodes, &inode, &set.entries);
                self.dirs.push(Arc::clone(&inode));
            }
            inode.state().merging = None;
            if set.gone {
                self.inodes.table.remove(inode.id());
            }
            self.inodes.waiting.shrink(set.bytes);
        }
        Ok(())
    }

    /// Puts the edits of the first round into the tree.
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
            let last = some.last();
            let next = drafts.peek();
            let amid_a_file =
                [last, next].iter().all(|draft| draft.is_some_and(ItemChanges::is_extent));
            if !self.is_cutting && !amid_a_file {
                self.handle.start_writeout()?;
            }
        }
    }

    /// Puts the rest into the tree, the ORPHAN_ITEMs last.
    fn finish(mut self, any: &Inode) -> Result<()> {
        self.apply(any)?;
        let orphans = std::mem::take(&mut self.orphans);
        self.put(any, orphans.into_iter())?;
        let Self { inodes, handle, dirs, .. } = self;
        let mut dirs = dirs.iter().filter(|dir| has_many_late(inodes, dir));
        dirs.try_for_each(|dir| flush_late(inodes, handle, dir, None))
    }
}
