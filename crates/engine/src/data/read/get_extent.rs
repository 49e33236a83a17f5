//! Finds what holds a range of a file (Linux: btrfs_get_extent): a gapless sequence of segments,
//! one for each extent, pending or in the tree, and for each hole.
//!
//! 1. Segments follow each other without gap or overlap, from the given start to the end of the
//!    file.
//! 2. A gap between extent items is a hole, whether the filesystem has NO_HOLES or not.
//! 3. Inline data covers whole sectors, as in Linux: the rest of its sector reads as zeros, and is
//!    no hole.
//! 4. Pending extents are looked up before the tree, a few at a time: an extent that is moved to
//!    the tree meanwhile is then seen in one of the two. The tree is searched only if they do not
//!    cover the range.

use std::collections::VecDeque;

use userbtrfs_btree::{Cursor, ReadAhead};
use userbtrfs_format::{FileExtent, ItemKind, Key};

use crate::data::backing_extents::BackingExtents;
use crate::error::Result;
use crate::inode::{ExtentMap, ExtentMapKind, InlineData, TreeRoots};
use crate::units::SECTOR;

/// The number of pending extents that are looked up at a time.
const PENDING_MAX: usize = 64;

/// A few pending extents.
struct Pending {
    extents: VecDeque<ExtentMap>,
    /// The offset up to which `extents` has all that are pending.
    known: u64,
    /// Whether the tree had no extents of the file when they were looked up.
    is_all: bool,
}

/// The segments of a file, in order.
pub(crate) struct ExtentMaps<'a> {
    tree_roots: &'a TreeRoots,
    file: &'a BackingExtents,
    /// The position in the tree; `None` until it is searched.
    cursor: Option<Cursor<'a>>,
    /// Pending extents, which replace those in the tree.
    pending: Pending,
    at: u64,
    end: u64,
}

impl<'a> ExtentMaps<'a> {
    /// Returns the segments between two offsets of a file, up to its size.
    pub(crate) fn new(
        tree_roots: &'a TreeRoots,
        file: &'a BackingExtents,
        start: u64,
        end: u64,
    ) -> Self {
        let end = end.min(file.size);
        let pending = Pending::look_up(file, start, end);
        Self { tree_roots, file, cursor: None, pending, at: start, end }
    }

    /// Returns the next segment; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ExtentMap>> {
        if self.at >= self.end {
            return Ok(None);
        }
        if self.at >= self.pending.known {
            self.pending = Pending::look_up(self.file, self.at, self.end);
            self.cursor = None;
        }
        let until = match self.pending.extents.front() {
            Some(extent) if extent.start <= self.at => {
                let extent = self.pending.extents.pop_front().expect("just looked at");
                return Ok(Some(self.pass(&extent, extent.end)));
            }
            Some(extent) => extent.start,
            None => self.pending.known,
        };
        if self.pending.is_all {
            return Ok(Some(self.pass_hole(until)));
        }
        self.stored(until).map(Some)
    }

    /// Returns the next segment from the tree, which is valid up to `until`.
    fn stored(&mut self, until: u64) -> Result<ExtentMap> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => seek(self.tree_roots, self.file, self.at)?,
        };
        let segment = loop {
            let Some(extent) = extent_at(&cursor, self.file.id.number) else {
                break self.pass_hole(until);
            };
            if extent.end <= self.at {
                cursor.advance()?;
                continue;
            }
            break if extent.start > self.at {
                self.pass_hole(extent.start.min(until))
            } else {
                self.pass(&extent, extent.end.min(until))
            };
        };
        self.cursor = Some(cursor);
        Ok(segment)
    }

    /// Advances to `end`, or to the end of the whole range, and returns the part of the extent up
    /// to there.
    fn pass(&mut self, extent: &ExtentMap, end: u64) -> ExtentMap {
        let end = end.min(self.end);
        let start = std::mem::replace(&mut self.at, end);
        extent.part(start, end)
    }

    /// Like `pass`, for a hole.
    fn pass_hole(&mut self, end: u64) -> ExtentMap {
        let hole = ExtentMap { start: self.at, end, kind: ExtentMapKind::Hole };
        self.pass(&hole, end)
    }
}

/// Returns the extent item at a cursor. Items before the file's extents are returned as ending at
/// 0.
fn extent_at(cursor: &Cursor<'_>, inode: u64) -> Option<ExtentMap> {
    let (leaf, slot) = cursor.leaf()?;
    let item = leaf.item(slot);
    let first = Key::new(inode, ItemKind::EXTENT_DATA, 0);
    if item.key < first {
        return Some(ExtentMap { start: 0, end: 0, kind: ExtentMapKind::Hole });
    }
    if item.key.objectid != inode || item.key.kind != ItemKind::EXTENT_DATA {
        return None;
    }
    let start = item.key.offset;
    let extent = FileExtent::parse(start, item.data).expect("verified with its block");
    let end = start + extent.file_bytes();
    if let Some(kind) = ExtentMapKind::of_item(&extent) {
        return Some(ExtentMap { start, end, kind });
    }
    let end = end.next_multiple_of(SECTOR);
    Some(ExtentMap { start, end, kind: ExtentMapKind::Inline(InlineData::in_leaf(leaf, slot)) })
}

impl Pending {
    /// Looks up the pending extents from an offset on.
    fn look_up(file: &BackingExtents, start: u64, end: u64) -> Self {
        let above = file.arriving.as_deref();
        let (extents, known, is_all) =
            file.inode.pending_extents_under(above, start, end, PENDING_MAX);
        Self { extents: extents.into(), known, is_all }
    }
}

fn seek<'a>(
    tree_roots: &'a TreeRoots,
    file: &'a BackingExtents,
    offset: u64,
) -> Result<Cursor<'a>> {
    let key = Key::new(file.id.number, ItemKind::EXTENT_DATA, offset);
    Ok(Cursor::seek_back(tree_roots.store(), file.inode.tree(), &key, ReadAhead::Off)?)
}
