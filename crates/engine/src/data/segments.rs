//! A file as a gapless sequence of segments: one for each extent, pending or in the tree, and for
//! each hole.
//!
//! 1. Segments follow each other without gap or overlap, from the start asked for to the end of
//!    the file.
//! 2. A gap between extent items is a hole, whether the filesystem has NO_HOLES or not.
//! 3. Inline data covers whole sectors, as to Linux: what follows it there reads as zeros, and
//!    is no hole.
//! 4. What is pending is looked up before the tree is, a few extents at a time: what is merged
//!    meanwhile is then seen in one of both.

use std::collections::VecDeque;

use userbtrfs_btree::{Cursor, NodeRef, ReadAhead};
use userbtrfs_codec::compress::Compression;
use userbtrfs_format::{FileExtent, FileExtentKind, ItemKind, Key, RegularExtent, SECTOR_SIZE};
use userbtrfs_sync::Arc;

use super::FileSource;
use crate::error::Result;
use crate::node::{Forest, Kind, PendingExtent};

/// How many pending extents are looked up at a time.
const PENDING_MAX: usize = 64;

/// A range of a file that one extent holds, or none.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Where it starts in the file, in bytes.
    pub(crate) start: u64,
    /// Where it ends.
    pub(crate) end: u64,
    /// What holds it.
    pub(crate) kind: SegmentKind,
}

/// What holds a segment.
#[derive(Clone, Debug)]
pub(crate) enum SegmentKind {
    /// Nothing.
    Hole,
    /// An extent that was not written yet: the part of it from the segment's start on.
    Prealloc(RegularExtent),
    /// The tree, or what waits to come into it.
    Inline(InlineData),
    /// An extent. The segment may start inside what the item covers: `skip` bytes further on.
    Regular { extent: RegularExtent, compression: Option<Compression>, skip: u64 },
}

/// Where the bytes of inline data are.
#[derive(Clone, Debug)]
pub(crate) enum InlineData {
    /// In the item in this slot of this leaf.
    Item(NodeRef, usize),
    /// In memory: all bytes of the file.
    Memory(Arc<[u8]>),
}

impl InlineData {
    /// How many bytes of the file it is.
    pub(crate) fn ram_bytes(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Item(leaf, slot) => {
                let item = leaf.item(*slot);
                let extent = FileExtent::parse(item.key.offset, item.data);
                extent.expect("verified with its block").file_bytes()
            }
        }
    }
}

/// The segments of a file, in order.
pub(crate) struct Segments<'a> {
    forest: &'a Forest,
    file: &'a FileSource,
    cursor: Cursor<'a>,
    /// What takes the place of what the tree has.
    pending: VecDeque<PendingExtent>,
    /// How far that is all there is of it.
    known: u64,
    at: u64,
    end: u64,
}

impl<'a> Segments<'a> {
    /// The segments between two offsets of a file, as far as the file goes.
    pub(crate) fn new(
        forest: &'a Forest,
        file: &'a FileSource,
        start: u64,
        end: u64,
    ) -> Result<Self> {
        let end = end.min(file.size);
        let (pending, known) = look_up_pending(file, start, end);
        let cursor = seek(forest, file, start)?;
        Ok(Self { forest, file, cursor, pending, known, at: start, end })
    }

    /// The next segment, or nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Segment>> {
        if self.at >= self.end {
            return Ok(None);
        }
        if self.at >= self.known {
            (self.pending, self.known) = look_up_pending(self.file, self.at, self.end);
            self.cursor = seek(self.forest, self.file, self.at)?;
        }
        let until = match self.pending.front() {
            Some(extent) if extent.start <= self.at => {
                let extent = self.pending.pop_front().expect("just looked at");
                let kind = SegmentKind::of_pending(extent.kind);
                return Ok(Some(self.pass(extent.end, skip_into(kind, self.at - extent.start))));
            }
            Some(extent) => extent.start,
            None => self.known,
        };
        loop {
            let Some((start, end, kind)) = self.extent_here() else {
                return Ok(Some(self.pass(until, SegmentKind::Hole)));
            };
            if end <= self.at {
                self.cursor.advance()?;
                continue;
            }
            if start > self.at {
                return Ok(Some(self.pass(start.min(until), SegmentKind::Hole)));
            }
            let kind = skip_into(kind, self.at - start);
            return Ok(Some(self.pass(end.min(until), kind)));
        }
    }

    /// The segment from here to `end`, but not beyond that of all.
    fn pass(&mut self, end: u64, kind: SegmentKind) -> Segment {
        let end = end.min(self.end);
        let start = std::mem::replace(&mut self.at, end);
        Segment { start, end, kind }
    }

    /// The extent item at the cursor: where it starts and ends in the file, and what it holds.
    /// Items before the file's extents are passed as if they ended at 0.
    fn extent_here(&self) -> Option<(u64, u64, SegmentKind)> {
        let (leaf, slot) = self.cursor.leaf()?;
        let item = leaf.item(slot);
        let inode = self.file.id.number;
        let first = Key::new(inode, ItemKind::EXTENT_DATA, 0);
        if item.key < first {
            return Some((0, 0, SegmentKind::Hole));
        }
        if item.key.objectid != inode || item.key.kind != ItemKind::EXTENT_DATA {
            return None;
        }
        let start = item.key.offset;
        let extent = FileExtent::parse(start, item.data).expect("verified with its block");
        let mut end = start + extent.file_bytes();
        let kind = match extent.kind {
            FileExtentKind::Hole(_) => SegmentKind::Hole,
            FileExtentKind::Prealloc(extent) => SegmentKind::Prealloc(extent),
            FileExtentKind::Inline(_) => {
                end = end.next_multiple_of(u64::from(SECTOR_SIZE));
                SegmentKind::Inline(InlineData::Item(NodeRef::clone(leaf), slot))
            }
            FileExtentKind::Regular(regular) => {
                SegmentKind::Regular { extent: regular, compression: extent.compression, skip: 0 }
            }
        };
        Some((start, end, kind))
    }
}

/// A few pending extents from an offset on, and the offset up to which they are all.
fn look_up_pending(file: &FileSource, start: u64, end: u64) -> (VecDeque<PendingExtent>, u64) {
    let above = file.arriving.as_deref();
    let (pending, known) = file.inode.pending_extents_under(above, start, end, PENDING_MAX);
    (pending.into(), known)
}

fn seek<'a>(forest: &'a Forest, file: &'a FileSource, offset: u64) -> Result<Cursor<'a>> {
    let key = Key::new(file.id.number, ItemKind::EXTENT_DATA, offset);
    Ok(Cursor::seek_back(forest.store(), file.inode.tree(), &key, ReadAhead::Off)?)
}

impl SegmentKind {
    fn of_pending(kind: Kind) -> Self {
        match kind {
            Kind::Hole => Self::Hole,
            Kind::Inline(bytes) => Self::Inline(InlineData::Memory(bytes)),
            Kind::Prealloc(extent) => Self::Prealloc(extent),
            Kind::Regular(extent, compression) => Self::Regular { extent, compression, skip: 0 },
        }
    }
}

fn skip_into(kind: SegmentKind, bytes: u64) -> SegmentKind {
    match kind {
        SegmentKind::Regular { extent, compression, skip } => {
            SegmentKind::Regular { extent, compression, skip: skip + bytes }
        }
        SegmentKind::Prealloc(extent) => {
            let (offset, bytes) = (extent.offset + bytes, extent.bytes - bytes);
            SegmentKind::Prealloc(RegularExtent { offset, bytes, ..extent })
        }
        other => other,
    }
}
