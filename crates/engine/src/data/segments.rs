//! A file as a gapless sequence of segments, one for each extent item and each hole.
//!
//! 1. Segments follow each other without gap or overlap, from the start asked for to the end of
//!    the file.
//! 2. A gap between extent items is a hole, whether the filesystem has NO_HOLES or not.
//! 3. Inline data covers whole sectors, as to Linux: what follows it there reads as zeros, and
//!    is no hole.

use userbtrfs_btree::{Cursor, NodeRef, ReadAhead};
use userbtrfs_codec::compress::Compression;
use userbtrfs_format::{FileExtent, FileExtentKind, ItemKind, Key, RegularExtent, SECTOR_SIZE};
use userbtrfs_sync::Arc;

use super::FileSource;
use crate::error::Result;
use crate::node::{Content, Forest};

/// A range of a file that one extent item holds, or none.
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
    /// An extent that was not written yet.
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

/// The segments of a file, in order.
pub(crate) struct Segments<'a> {
    cursor: Cursor<'a>,
    /// The content that takes the place of what the tree has.
    content: Option<&'a Content>,
    inode: u64,
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
        let key = Key::new(file.id.number, ItemKind::EXTENT_DATA, start);
        let cursor = Cursor::seek_back(forest.store(), &file.tree, &key, ReadAhead::Off)?;
        let end = end.min(file.size);
        let (content, inode) = (file.content.as_ref(), file.id.number);
        Ok(Self { cursor, content, inode, at: start, end })
    }

    /// The next segment, or nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Segment>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let segment = loop {
            let Some((start, end, kind)) = self.extent_here() else {
                break Segment { start: self.at, end: self.end, kind: SegmentKind::Hole };
            };
            if end <= self.at {
                self.cursor.advance()?;
                continue;
            }
            if start > self.at {
                let end = start.min(self.end);
                break Segment { start: self.at, end, kind: SegmentKind::Hole };
            }
            let kind = skip_into(kind, self.at - start);
            break Segment { start: self.at, end: end.min(self.end), kind };
        };
        self.at = segment.end;
        Ok(Some(segment))
    }

    /// The extent item at the cursor: where it starts and ends in the file, and what it holds.
    /// Items before the file's extents are passed as if they ended at 0.
    fn extent_here(&self) -> Option<(u64, u64, SegmentKind)> {
        if let Some(content) = self.content {
            return in_memory(content).filter(|(_, end, _)| self.at < *end);
        }
        let (leaf, slot) = self.cursor.leaf()?;
        let item = leaf.item(slot);
        let first = Key::new(self.inode, ItemKind::EXTENT_DATA, 0);
        if item.key < first {
            return Some((0, 0, SegmentKind::Hole));
        }
        if item.key.objectid != self.inode || item.key.kind != ItemKind::EXTENT_DATA {
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

/// The extent of a file whose content is in memory.
fn in_memory(content: &Content) -> Option<(u64, u64, SegmentKind)> {
    let Content::Inline(bytes) = content else { return None };
    let end = (bytes.len() as u64).next_multiple_of(u64::from(SECTOR_SIZE));
    Some((0, end, SegmentKind::Inline(InlineData::Memory(Arc::clone(bytes)))))
}

fn skip_into(kind: SegmentKind, bytes: u64) -> SegmentKind {
    match kind {
        SegmentKind::Regular { extent, compression, skip } => {
            SegmentKind::Regular { extent, compression, skip: skip + bytes }
        }
        other => other,
    }
}
