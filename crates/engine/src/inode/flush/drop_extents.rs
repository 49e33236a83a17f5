//! Puts pending ranges into the EXTENT_DATA items of a file (Linux: btrfs_drop_extents).
//!
//! 1. An item that such ranges overlap is cut: its *remnants* are the parts that are not
//!    overlapped. Inline data leaves none.
//! 2. At any time the tree shows, for every byte that is not pending, what it showed before, both
//!    to a reader that iterates over the items and to one that searches for the last item that
//!    starts at or before the byte. So there are two rounds. In the first one remnants get items,
//!    which extend to the end of the cut item; in the second one all items get their lengths, or
//!    are removed.
//! 3. An item without remnants drops its reference; one with several adds references.
//! 4. If the filesystem lacks NO_HOLES, every byte below the size has an item after the flush,
//!    provided that this was true below the size in the tree before.
//! 5. No other thread changes the items of the inode while they are read: flushes run one at a
//!    time.

use userbtrfs_btree::{Cursor, ReadAhead, Tree};
use userbtrfs_format::{FileExtent, ItemKind, Key};
use userbtrfs_transaction::{Damage, Result};

use crate::inode::TreeRoots;
use crate::inode::incore::extent_map::{ExtentMap, ExtentMapKind};
use crate::inode::pending::extents::{ExtentChanges, Replaced};
use crate::units::SECTOR;

/// The new content of an EXTENT_DATA item.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::inode) struct ExtentData {
    extent: ExtentMap,
    generation: u64,
}

/// The edit of the item at an offset; `None` removes it.
pub(in crate::inode) type ExtentEdit = (u64, Option<ExtentData>);

/// The edits of the items of one file.
#[derive(Default)]
pub(in crate::inode) struct ExtentSplits {
    /// The first round: new items, ascending.
    pub(in crate::inode) remnants: Vec<ExtentEdit>,
    /// The second round.
    pub(in crate::inode) changes: Vec<ExtentEdit>,
    /// The changes of references.
    pub(in crate::inode) replaced: Vec<Replaced>,
    /// Ranges that start before this offset are among the edits.
    placed: u64,
}

/// A file whose items are edited.
pub(in crate::inode) struct DropExtents<'a> {
    pub(in crate::inode) tree_roots: &'a TreeRoots,
    pub(in crate::inode) tree: &'a Tree,
    pub(in crate::inode) number: u64,
    /// The pending ranges.
    pub(in crate::inode) extents: &'a ExtentChanges,
    /// The transaction.
    pub(in crate::inode) generation: u64,
    /// The file sizes in the tree before and after, between which there must be items; `None` if
    /// holes have no items.
    pub(in crate::inode) holes: Option<(u64, u64)>,
    /// The tree has no items of the inode.
    pub(in crate::inode) created: bool,
}

/// An item in the tree.
struct Stored {
    start: u64,
    end: u64,
    generation: u64,
    /// `None` for inline data.
    kind: Option<ExtentMapKind>,
}

impl DropExtents<'_> {
    /// Computes the edits. Whenever there are more than `max`, calls `put`, which must put them
    /// into the tree and count the references.
    pub(in crate::inode) fn run(
        &self,
        max: usize,
        mut put: impl FnMut(&mut ExtentSplits) -> Result<()>,
    ) -> Result<ExtentSplits> {
        let mut cuts = ExtentSplits::default();
        if !self.created {
            let mut from = self.extents.next_from(0);
            while let Some(start) = from {
                from = self.cut_from(start, &mut cuts, max, &mut put)?;
            }
        }
        self.fill_gaps(&mut cuts)?;
        self.place(u64::MAX, &mut cuts);
        Ok(cuts)
    }

    /// Adds the edits of pending ranges that start before an offset.
    fn place(&self, end: u64, cuts: &mut ExtentSplits) {
        for ExtentMap { start, end, kind } in self.extents.starting(cuts.placed, end) {
            let end = self.end_of_item(start, end, &kind);
            cuts.changes.extend(end.map(|end| self.item(start, end, kind)));
        }
        cuts.placed = end;
        cuts.changes.sort_unstable_by_key(|(offset, _)| *offset);
    }

    /// Returns the end of the item of a pending range; `None` if it has no item.
    fn end_of_item(&self, start: u64, end: u64, kind: &ExtentMapKind) -> Option<u64> {
        match kind {
            ExtentMapKind::Hole => {
                self.holes.map(|(_, size)| size.min(end)).filter(|end| start < *end)
            }
            _ => Some(end),
        }
    }

    fn item(&self, start: u64, end: u64, kind: ExtentMapKind) -> ExtentEdit {
        let extent = ExtentMap { start, end, kind };
        (start, Some(ExtentData { extent, generation: self.generation }))
    }

    /// Cuts items from the start of a range on, while ranges follow closely; returns the start of
    /// the next range.
    fn cut_from(
        &self,
        start: u64,
        cuts: &mut ExtentSplits,
        max: usize,
        put: &mut impl FnMut(&mut ExtentSplits) -> Result<()>,
    ) -> Result<Option<u64>> {
        let mut items = self.items(start)?;
        while let Some(item) = items.next()? {
            match self.extents.next_from(item.start) {
                None => return Ok(None),
                Some(next) if next >= item.end => return Ok(Some(next)),
                Some(_) => self.cut(&item, cuts),
            }
            if cuts.remnants.len() + cuts.changes.len() > max {
                // Stop here: items that are put now are not to be cut again.
                self.place(item.end, cuts);
                put(cuts)?;
            }
        }
        Ok(None)
    }

    /// Cuts an item that pending ranges overlap.
    fn cut(&self, item: &Stored, cuts: &mut ExtentSplits) {
        let Some(kind) = &item.kind else { return self.remove(item.start, cuts) };
        let gaps = self.extents.gaps(item.start, item.end);
        for &(from, to) in &gaps {
            let part = |end: u64| {
                let kind = kind.part(from - item.start, end - from);
                let extent = ExtentMap { start: from, end, kind };
                (from, Some(ExtentData { extent, generation: item.generation }))
            };
            let is_new = from > item.start;
            cuts.remnants.extend(is_new.then(|| part(item.end)));
            cuts.changes.extend((!is_new || to < item.end).then(|| part(to)));
        }
        if gaps.first().is_none_or(|(from, _)| *from > item.start) {
            self.remove(item.start, cuts);
        }
        cuts.replaced.extend(Replaced::new(item.start, kind, gaps.len()));
    }

    /// Removes the item at an offset, unless a new one replaces it.
    fn remove(&self, start: u64, cuts: &mut ExtentSplits) {
        let comes = self.extents.at(start);
        if comes.is_none_or(|kind| self.end_of_item(start, u64::MAX, kind).is_none()) {
            cuts.changes.push((start, None));
        }
    }

    /// Adds items for holes where nothing is pending and no item exists.
    fn fill_gaps(&self, cuts: &mut ExtentSplits) -> Result<()> {
        let Some((from, to)) = self.holes.filter(|(from, to)| from < to) else { return Ok(()) };
        for (mut at, end) in self.extents.gaps(from, to) {
            let mut items = self.items(at)?;
            while let Some(item) = items.next()?.filter(|item| item.start < end) {
                if at < item.start {
                    cuts.changes.push(self.item(at, item.start, ExtentMapKind::Hole));
                }
                at = item.end;
            }
            if at < end {
                cuts.changes.push(self.item(at, end, ExtentMapKind::Hole));
            }
        }
        Ok(())
    }

    /// Returns the items that end after an offset.
    fn items(&self, start: u64) -> Result<Items<'_>> {
        let key = Key::new(self.number, ItemKind::EXTENT_DATA, start);
        let seek = || Cursor::seek_back(self.tree_roots.store(), self.tree, &key, ReadAhead::Off);
        let cursor = (!self.created).then(seek).transpose()?;
        Ok(Items { cursor, tree: self.tree, number: self.number, start, end: 0 })
    }
}

/// Items of a file, in order.
struct Items<'a> {
    /// `None` if the tree has none.
    cursor: Option<Cursor<'a>>,
    tree: &'a Tree,
    number: u64,
    /// Items that end at or before this offset are skipped.
    start: u64,
    /// The end of the last item.
    end: u64,
}

impl Items<'_> {
    fn next(&mut self) -> Result<Option<Stored>> {
        while let Some(found) = self.next_of_all()? {
            if found.start < self.end {
                let key = Key::new(self.number, ItemKind::EXTENT_DATA, found.start);
                return Err(Damage::FileExtents(self.tree.id(), key).into());
            }
            self.end = found.end;
            if found.end > self.start {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn next_of_all(&mut self) -> Result<Option<Stored>> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let first = Key::new(self.number, ItemKind::EXTENT_DATA, 0);
        while cursor.item().is_some_and(|item| item.key < first) {
            cursor.advance()?;
        }
        let is_one = |key: Key| (key.objectid, key.kind) == (first.objectid, first.kind);
        let item = cursor.item().filter(|item| is_one(item.key));
        let Some(found) = item.map(|item| Stored::parse(item.key.offset, item.data)) else {
            return Ok(None);
        };
        cursor.advance()?;
        Ok(Some(found))
    }
}

impl Stored {
    fn parse(start: u64, data: &[u8]) -> Self {
        let extent = FileExtent::parse(start, data).expect("verified with its block");
        let bytes = extent.file_bytes().max(1).next_multiple_of(SECTOR);
        let kind = ExtentMapKind::of_item(&extent);
        Self { start, end: start + bytes, generation: extent.generation, kind }
    }
}

impl ExtentData {
    /// Returns the encoded item.
    pub(in crate::inode) fn encode(&self) -> Vec<u8> {
        self.extent.to_item(self.generation).encode()
    }
}

#[cfg(test)]
mod tests;
