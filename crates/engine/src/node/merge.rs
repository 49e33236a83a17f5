//! How what waits comes into the trees.
//!
//! 1. One merge runs at a time. It takes all that waits, in the order of the items, so that each
//!    leaf is come to once.
//! 2. An inode's set is frozen, then put into the tree, then dropped: until that is done reads
//!    find it there.
//! 3. Operations go on meanwhile, on sets of their own.
//! 4. A merge that fails has put part of what it took into the trees: nothing of the transaction
//!    may become durable, and no later merge succeeds.

use std::sync::Weak;

use userbtrfs_btree::ReadAhead;
use userbtrfs_format::{ItemKind, Key, RegularExtent, TreeId};
use userbtrfs_ledger::{Handle, Participant, Result};
use userbtrfs_sync::Arc;

use super::edits::{ItemEdit, put_edits};
use super::orphan::on_disk;
use super::pending::Frozen;
use super::stored::ORPHANS;
use super::{Inode, Nodes};

/// Edits that are gathered before they are applied.
const BATCH: usize = 4096;

/// The part of the bound at which a worker begins to merge, so that a commit finds little left.
const EARLY: usize = 8;

/// What merges when the ledger asks; it does not keep the filesystem open.
pub(crate) struct Merger(pub(crate) Weak<Nodes>);

impl Participant for Merger {
    fn is_clean(&self) -> bool {
        self.0.upgrade().is_none_or(|nodes| nodes.waiting.is_empty())
    }

    fn merge(&self, handle: &Handle<'_>) -> Result<()> {
        match self.0.upgrade() {
            Some(nodes) => nodes.merge(handle),
            None => Ok(()),
        }
    }

    fn aborted(&self) {}
}

/// What was taken and is not yet in its tree, all of one subvolume.
struct Batch<'a> {
    nodes: &'a Nodes,
    handle: &'a Handle<'a>,
    subvolume: TreeId,
    edits: Vec<ItemEdit>,
    /// What comes to the list of inodes without a name, which stands behind all inodes.
    orphans: Vec<ItemEdit>,
    /// Extents of files that go: the inode, and where in it each starts.
    dropped: Vec<(u64, u64, RegularExtent)>,
    frozen: Vec<(Arc<Inode>, Arc<Frozen>)>,
    merged: Vec<Arc<Frozen>>,
}

impl Nodes {
    /// Merges where so much waits that memory asks for it. No lock is held.
    pub(super) fn relieve(&self) -> crate::error::Result<()> {
        let (waiting, max) = (self.waiting.bytes(), self.options.pending_max);
        let ledger = self.ledger()?;
        if waiting > max {
            ledger.merge_pending()?;
        } else if waiting > max / EARLY {
            ledger.request_merge();
        }
        Ok(())
    }

    /// Puts all that waits into the trees.
    fn merge(&self, handle: &Handle<'_>) -> Result<()> {
        let _one = self.merging.lock();
        let inodes = self.waiting.take();
        // What was promised to one of them may be for others: all is given back at the end.
        let mut merged = Vec::new();
        for inodes in inodes.chunk_by(|a, b| a.id().subvolume == b.id().subvolume) {
            let mut batch = Batch::new(self, handle, inodes[0].id().subvolume);
            for inode in inodes {
                batch.add(inode)?;
            }
            merged.extend(batch.finish(&inodes[0])?);
            handle.subvolume_changed(inodes[0].id().subvolume);
        }
        Ok(())
    }
}

impl<'a> Batch<'a> {
    fn new(nodes: &'a Nodes, handle: &'a Handle<'a>, subvolume: TreeId) -> Self {
        let (edits, orphans, dropped, frozen, merged) = Default::default();
        Self { nodes, handle, subvolume, edits, orphans, dropped, frozen, merged }
    }

    /// Takes an inode's changes.
    fn add(&mut self, inode: &Arc<Inode>) -> Result<()> {
        let Some(frozen) = inode.state().freeze() else { return Ok(()) };
        if frozen.changes.gone {
            self.remove_all(inode)?;
        } else {
            put_edits(inode.number(), &frozen, self.handle.generation(), &mut self.edits);
        }
        if let Some(listed) = frozen.changes.orphan {
            let key = Key::new(ORPHANS, ItemKind::ORPHAN_ITEM, inode.number());
            self.orphans.push(match listed {
                true => ItemEdit::Put(key, Vec::new()),
                false => ItemEdit::Remove(key),
            });
        }
        self.frozen.push((Arc::clone(inode), frozen));
        match self.edits.len() < BATCH {
            true => Ok(()),
            false => self.apply(inode),
        }
    }

    /// Removes all that the tree has of an inode.
    fn remove_all(&mut self, inode: &Inode) -> Result<()> {
        let (forest, number) = (&self.nodes.forest, inode.number());
        let first = Key::new(number, ItemKind(0), 0);
        let mut cursor = forest.cursor(inode.tree(), &first, ReadAhead::Off)?;
        while let Some(item) = cursor.item().filter(|item| item.key.objectid == number) {
            self.edits.push(ItemEdit::Remove(item.key));
            let is_extent = item.key.kind == ItemKind::EXTENT_DATA;
            let offset = item.key.offset;
            if let Some(extent) = is_extent.then(|| on_disk(offset, item.data)).flatten() {
                self.dropped.push((number, offset.wrapping_sub(extent.offset), extent));
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Puts what was taken into the tree.
    fn apply(&mut self, any: &Inode) -> Result<()> {
        self.handle.apply(any.tree(), &mut self.edits)?;
        self.edits.clear();
        for (number, start, extent) in self.dropped.drain(..) {
            let (disk, bytes) = (extent.disk, extent.disk_bytes);
            self.handle.drop_file_extent(self.subvolume, number, start, disk, bytes);
        }
        for (inode, frozen) in self.frozen.drain(..) {
            self.nodes.waiting.shrink(frozen.changes.bytes);
            inode.state().merging = None;
            if frozen.changes.gone {
                self.nodes.table.remove(inode.id());
            }
            self.merged.push(frozen);
        }
        Ok(())
    }

    /// Puts the rest into the tree, and gives all sets that were merged.
    fn finish(mut self, any: &Inode) -> Result<Vec<Arc<Frozen>>> {
        let orphans = std::mem::take(&mut self.orphans);
        self.edits.extend(orphans);
        self.apply(any)?;
        Ok(self.merged)
    }
}
