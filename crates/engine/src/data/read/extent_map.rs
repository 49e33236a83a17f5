//! The extent map of a file: a gapless sequence of segments, one for each extent, pending or in the
//! tree, and for each hole.
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

use userbtrfs_btree::{Cursor, NodeRef, ReadAhead};
use userbtrfs_codec::compress::Compression;
use userbtrfs_format::{FileExtent, FileExtentKind, ItemKind, Key, RegularExtent, SECTOR_SIZE};

use crate::data::BackingExtents;
use crate::error::Result;
use crate::inode::{Inline, PendingExtent, PendingExtentKind, TreeRoots};

/// The number of pending extents that are looked up at a time.
const PENDING_MAX: usize = 64;

/// A range of a file that is in one extent or hole.
#[derive(Clone, Debug)]
pub(crate) struct ExtentMap {
    /// The start in the file, in bytes.
    pub(crate) start: u64,
    /// The end in the file, in bytes.
    pub(crate) end: u64,
    /// The extent or hole.
    pub(crate) kind: ExtentMapKind,
}

/// The extent or hole of a segment.
#[derive(Clone, Debug)]
pub(crate) enum ExtentMapKind {
    /// No extent.
    Hole,
    /// A preallocated extent: the part of it from the segment's start on.
    Prealloc(RegularExtent),
    /// Inline data, in the tree or pending.
    Inline(InlineData),
    /// A regular extent. The segment starts `skip` bytes after the start of the item's range.
    Regular { extent: RegularExtent, compression: Option<Compression>, skip: u64 },
}

/// The location of inline data.
#[derive(Clone, Debug)]
pub(crate) enum InlineData {
    /// In the item in this slot of this leaf.
    Item(NodeRef, usize),
    /// In memory.
    Memory(Inline),
}

impl InlineData {
    /// Returns the number of bytes of the file.
    pub(crate) fn ram_bytes(&self) -> u64 {
        match self {
            Self::Memory(inline) => inline.ram_bytes,
            Self::Item(leaf, slot) => {
                let item = leaf.item(*slot);
                let extent = FileExtent::parse(item.key.offset, item.data);
                extent.expect("verified with its block").file_bytes()
            }
        }
    }
}

/// A few pending extents.
struct Pending {
    extents: VecDeque<PendingExtent>,
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
                let kind = ExtentMapKind::of_pending(extent.kind);
                return Ok(Some(self.pass(extent.end, skip_into(kind, self.at - extent.start))));
            }
            Some(extent) => extent.start,
            None => self.pending.known,
        };
        if self.pending.is_all {
            return Ok(Some(self.pass(until, ExtentMapKind::Hole)));
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
            let Some((start, end, kind)) = extent_at(&cursor, self.file.id.number) else {
                break self.pass(until, ExtentMapKind::Hole);
            };
            if end <= self.at {
                cursor.advance()?;
                continue;
            }
            if start > self.at {
                break self.pass(start.min(until), ExtentMapKind::Hole);
            }
            let kind = skip_into(kind, self.at - start);
            break self.pass(end.min(until), kind);
        };
        self.cursor = Some(cursor);
        Ok(segment)
    }

    /// Advances to `end`, or to the end of the whole range, and returns the segment up to there.
    fn pass(&mut self, end: u64, kind: ExtentMapKind) -> ExtentMap {
        let end = end.min(self.end);
        let start = std::mem::replace(&mut self.at, end);
        ExtentMap { start, end, kind }
    }
}

/// Returns the extent item at a cursor: its start and end in the file, and its kind. Items before
/// the file's extents are returned as ending at 0.
fn extent_at(cursor: &Cursor<'_>, inode: u64) -> Option<(u64, u64, ExtentMapKind)> {
    let (leaf, slot) = cursor.leaf()?;
    let item = leaf.item(slot);
    let first = Key::new(inode, ItemKind::EXTENT_DATA, 0);
    if item.key < first {
        return Some((0, 0, ExtentMapKind::Hole));
    }
    if item.key.objectid != inode || item.key.kind != ItemKind::EXTENT_DATA {
        return None;
    }
    let start = item.key.offset;
    let extent = FileExtent::parse(start, item.data).expect("verified with its block");
    let mut end = start + extent.file_bytes();
    let kind = match extent.kind {
        FileExtentKind::Hole(_) => ExtentMapKind::Hole,
        FileExtentKind::Prealloc(extent) => ExtentMapKind::Prealloc(extent),
        FileExtentKind::Inline(_) => {
            end = end.next_multiple_of(u64::from(SECTOR_SIZE));
            ExtentMapKind::Inline(InlineData::Item(NodeRef::clone(leaf), slot))
        }
        FileExtentKind::Regular(regular) => {
            ExtentMapKind::Regular { extent: regular, compression: extent.compression, skip: 0 }
        }
    };
    Some((start, end, kind))
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

impl ExtentMapKind {
    fn of_pending(kind: PendingExtentKind) -> Self {
        match kind {
            PendingExtentKind::Hole => Self::Hole,
            PendingExtentKind::Inline(inline) => Self::Inline(InlineData::Memory(inline)),
            PendingExtentKind::Prealloc(extent) => Self::Prealloc(extent),
            PendingExtentKind::Regular(extent, compression) => {
                Self::Regular { extent, compression, skip: 0 }
            }
        }
    }
}

fn skip_into(kind: ExtentMapKind, bytes: u64) -> ExtentMapKind {
    match kind {
        ExtentMapKind::Regular { extent, compression, skip } => {
            ExtentMapKind::Regular { extent, compression, skip: skip + bytes }
        }
        ExtentMapKind::Prealloc(extent) => {
            let (offset, bytes) = (extent.offset + bytes, extent.bytes - bytes);
            ExtentMapKind::Prealloc(RegularExtent { offset, bytes, ..extent })
        }
        other => other,
    }
}
