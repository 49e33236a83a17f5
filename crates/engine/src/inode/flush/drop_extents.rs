//! How ranges that wait come into the items of a file.
//!
//! 1. An item that such ranges overlap is cut: its *remnants* are what they leave of it. Inline
//!    data leaves none.
//! 2. At any time the tree shows, for every byte that does not wait, what it showed before: to who
//!    goes through the items, and to who looks for the last one that starts before the byte, or
//!    there. So there are two rounds. In the first one remnants get items, which reach to the end
//!    of the item that is cut; in the second one all get their lengths, or go.
//! 3. An item without remnants gives up its reference, one with several makes more of it.
//! 4. Where the filesystem lacks NO_HOLES, every byte below the size has an item when the merge is
//!    done, if that was so below the size that the tree knew before.
//! 5. Items are read while nobody else changes those of the inode: merges run one at a time.

use userbtrfs_btree::{Cursor, ReadAhead, Tree};
use userbtrfs_format::{FileExtent, FileExtentKind, HoleExtent, ItemKind, Key, SECTOR_SIZE};
use userbtrfs_transaction::{Damage, Result};

use crate::inode::TreeRoots;
use crate::inode::pending::extents::{ExtentChanges, PendingExtent, PendingExtentKind, Replaced};

/// What comes to an item of a file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::inode) struct ExtentData {
    kind: PendingExtentKind,
    bytes: u64,
    generation: u64,
}

/// What becomes of the item at an offset; nothing where it goes.
pub(in crate::inode) type ExtentEdit = (u64, Option<ExtentData>);

/// What becomes of items of one file.
#[derive(Default)]
pub(in crate::inode) struct ExtentSplits {
    /// The first round: new items, ascending.
    pub(in crate::inode) remnants: Vec<ExtentEdit>,
    /// The second round.
    pub(in crate::inode) changes: Vec<ExtentEdit>,
    /// What this does to references.
    pub(in crate::inode) replaced: Vec<Replaced>,
    /// Ranges that start before this offset have their items.
    placed: u64,
}

/// A file whose items are cut.
pub(in crate::inode) struct DropExtents<'a> {
    pub(in crate::inode) tree_roots: &'a TreeRoots,
    pub(in crate::inode) tree: &'a Tree,
    pub(in crate::inode) number: u64,
    /// What waits.
    pub(in crate::inode) extents: &'a ExtentChanges,
    /// The transaction.
    pub(in crate::inode) generation: u64,
    /// Between which offsets there must be items: the sizes that the tree knows before and after.
    /// Nothing where holes have no items.
    pub(in crate::inode) holes: Option<(u64, u64)>,
    /// Nothing is in the tree.
    pub(in crate::inode) created: bool,
}

/// An item that a tree has.
struct Stored {
    start: u64,
    end: u64,
    generation: u64,
    /// Nothing for inline data.
    kind: Option<PendingExtentKind>,
}

impl DropExtents<'_> {
    /// Finds what becomes of the items. Whenever there are more than `max` edits, `put` must put
    /// them into the tree, and count the references.
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

    /// Gives ranges that wait, and start before an offset, their items, if they have any.
    fn place(&self, end: u64, cuts: &mut ExtentSplits) {
        for PendingExtent { start, end, kind } in self.extents.starting(cuts.placed, end) {
            let end = self.end_of_item(start, end, &kind);
            cuts.changes.extend(end.map(|end| self.item(start, end, kind)));
        }
        cuts.placed = end;
        cuts.changes.sort_unstable_by_key(|(offset, _)| *offset);
    }

    /// Where the item of a range that waits ends; nothing where it has none.
    fn end_of_item(&self, start: u64, end: u64, kind: &PendingExtentKind) -> Option<u64> {
        match kind {
            PendingExtentKind::Hole => {
                self.holes.map(|(_, size)| size.min(end)).filter(|end| start < *end)
            }
            _ => Some(end),
        }
    }

    fn item(&self, start: u64, end: u64, kind: PendingExtentKind) -> ExtentEdit {
        (start, Some(ExtentData { kind, bytes: end - start, generation: self.generation }))
    }

    /// Cuts items from where a range starts, as long as ranges follow closely; gives where the
    /// next one starts.
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
                // No further: what comes into the tree is not met as something to be cut.
                self.place(item.end, cuts);
                put(cuts)?;
            }
        }
        Ok(None)
    }

    /// Cuts an item that ranges overlap.
    fn cut(&self, item: &Stored, cuts: &mut ExtentSplits) {
        let Some(kind) = &item.kind else { return self.remove(item.start, cuts) };
        let gaps = self.extents.gaps(item.start, item.end);
        for &(from, to) in &gaps {
            let part = |end: u64| {
                let (kind, bytes) = (kind.part(from - item.start, end - from), end - from);
                (from, Some(ExtentData { kind, bytes, generation: item.generation }))
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

    /// The item at an offset goes, if none comes there.
    fn remove(&self, start: u64, cuts: &mut ExtentSplits) {
        let comes = self.extents.at(start);
        if comes.is_none_or(|kind| self.end_of_item(start, u64::MAX, kind).is_none()) {
            cuts.changes.push((start, None));
        }
    }

    /// Gives holes their items where nothing waits, and nothing is.
    fn fill_gaps(&self, cuts: &mut ExtentSplits) -> Result<()> {
        let Some((from, to)) = self.holes.filter(|(from, to)| from < to) else { return Ok(()) };
        for (mut at, end) in self.extents.gaps(from, to) {
            let mut items = self.items(at)?;
            while let Some(item) = items.next()?.filter(|item| item.start < end) {
                if at < item.start {
                    cuts.changes.push(self.item(at, item.start, PendingExtentKind::Hole));
                }
                at = item.end;
            }
            if at < end {
                cuts.changes.push(self.item(at, end, PendingExtentKind::Hole));
            }
        }
        Ok(())
    }

    /// The items that end behind an offset.
    fn items(&self, start: u64) -> Result<Items<'_>> {
        let key = Key::new(self.number, ItemKind::EXTENT_DATA, start);
        let seek = || Cursor::seek_back(self.tree_roots.store(), self.tree, &key, ReadAhead::Off);
        let cursor = (!self.created).then(seek).transpose()?;
        Ok(Items { cursor, tree: self.tree, number: self.number, start, end: 0 })
    }
}

/// Items of a file, in order.
struct Items<'a> {
    /// Nothing where the tree has none.
    cursor: Option<Cursor<'a>>,
    tree: &'a Tree,
    number: u64,
    /// What ends before is not wanted.
    start: u64,
    /// Where the last one ends.
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
        let bytes = extent.file_bytes().max(1).next_multiple_of(u64::from(SECTOR_SIZE));
        let kind = match extent.kind {
            FileExtentKind::Inline(_) => None,
            FileExtentKind::Hole(_) => Some(PendingExtentKind::Hole),
            FileExtentKind::Prealloc(prealloc) => Some(PendingExtentKind::Prealloc(prealloc)),
            FileExtentKind::Regular(regular) => {
                Some(PendingExtentKind::Regular(regular, extent.compression))
            }
        };
        Self { start, end: start + bytes, generation: extent.generation, kind }
    }
}

impl ExtentData {
    /// Writes the item.
    pub(in crate::inode) fn encode(&self) -> Vec<u8> {
        let (generation, ram_bytes) = (self.generation, self.bytes);
        let (kind, compression) = match &self.kind {
            PendingExtentKind::Hole => {
                (FileExtentKind::Hole(HoleExtent { bytes: self.bytes, offset: 0, ram_bytes }), None)
            }
            PendingExtentKind::Inline(inline) => inline.as_item(),
            PendingExtentKind::Prealloc(extent) => (FileExtentKind::Prealloc(*extent), None),
            PendingExtentKind::Regular(extent, compression) => {
                (FileExtentKind::Regular(*extent), *compression)
            }
        };
        FileExtent { generation, compression, kind }.encode()
    }
}

#[cfg(test)]
mod tests;
