//! Regular files: reading, and their extents.

use std::fmt;

use userbtrfs_codec::compress::Compression;
use userbtrfs_device::{Buffer, Slice};
use userbtrfs_format::FileKind;
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{FileReader, Inode};
use crate::data::{BackingExtents, ErrSeq, ExtentMaps, FilePages, Stream, Times};
use crate::error::{Error, Result};
use crate::inode::ops;
use crate::inode::{EMPTY_DIR, ExtentMapKind, InodeRef};
use crate::units::{SECTOR, SECTOR_LEN, to_usize};

/// An open regular file. Every call may be made from any thread.
///
/// Written data is visible at once to every call, and stays dirty in memory; it is written to the
/// device after a time, under memory pressure, and before a commit. [`File::sync_all`] makes it
/// durable. Dropping a file loses no dirty data; to learn of errors call [`File::close`] or sync.
pub struct File {
    pub(super) pages: Arc<FilePages>,
    /// The write errors that this file has reported.
    pub(super) reported: ErrSeq,
    /// Dropped before the inode, and with it the filesystem, which it needs for that.
    opened: InodeRef,
    inode: Inode,
    /// The end of the last read, and the number of blocks that the next one reads ahead if it
    /// starts there. Only a heuristic: threads may overwrite each other's values.
    last_end: AtomicU64,
    ahead: AtomicU64,
    /// Whether a check found that the file may be written.
    pub(super) is_writable: AtomicBool,
    /// How changes set its times.
    pub(super) times: Times,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("inode", &self.inode)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A range of a file in one extent or hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The start in the file, in bytes.
    pub start: u64,
    /// The length in bytes.
    pub len: u64,
    /// The extent or hole.
    pub kind: ExtentKind,
}

/// The extent or hole of a range of a file.
///
/// The kinds are those of an EXTENT_DATA item ([`userbtrfs_format::FileExtentKind`]). An extent
/// that is not in a tree yet has the same kinds. Inline data is without its bytes: read the file
/// for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// No extent: it reads as zeros.
    Hole,
    /// A preallocated extent: it reads as zeros.
    Prealloc {
        /// The logical address of the extent.
        logical: u64,
    },
    /// Inline data in the tree.
    Inline,
    /// An extent on disk.
    Data {
        /// The logical address of the extent.
        logical: u64,
        /// The length of the whole extent on disk, in bytes.
        disk_bytes: u64,
        /// The start of the range in the (decompressed) extent, in bytes.
        offset: u64,
        /// The compression.
        compression: Option<Compression>,
    },
}

/// The most blocks that a sequential reader reads ahead.
const AHEAD_MAX: u64 = 15;

impl File {
    pub(crate) fn open(inode: &Inode) -> Result<Self> {
        if inode.id().number == EMPTY_DIR {
            return Err(Error::IsADirectory);
        }
        let inner = inode.inner();
        let opened = ops::open(&inner.namespace, inode.id())?;
        match opened.inode().kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        let pages = inner.files.pages(opened.inode());
        let reported = pages.opened();
        let last_end = AtomicU64::new(u64::MAX);
        let ahead = AtomicU64::new(0);
        let is_writable = AtomicBool::new(false);
        let inode = inode.clone();
        let times = Times::Now;
        Ok(Self { pages, reported, opened, inode, last_end, ahead, is_writable, times })
    }

    /// Returns the file so that [`File::write_at`], [`File::copy_from`] and [`File::allocate`]
    /// leave its times alone: the caller knows when it was changed, and sets them.
    #[must_use]
    pub fn keeping_times(self) -> Self {
        Self { times: Times::Kept, ..self }
    }

    /// Returns the present state of the file on disk.
    fn source(&self) -> BackingExtents {
        self.pages.source()
    }

    /// Returns the handle on its inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.opened.inode().size()
    }

    /// Returns true if the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads bytes from `offset` on into `target`, and returns how many: fewer than asked for only
    /// at the end of the file.
    pub fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize> {
        let left = self.len().saturating_sub(offset);
        let len = usize::try_from(left).map_or(target.len(), |left| left.min(target.len()));
        if len == 0 {
            return Ok(0);
        }
        let ahead = self.guess_ahead(offset, len as u64);
        let tree_roots = self.inode.inner().tree_roots();
        self.pages.read(tree_roots, offset, &mut target[..len], ahead)?;
        Ok(len)
    }

    /// Returns the blocks to read ahead: about doubled by each read that starts where the last one
    /// ended.
    fn guess_ahead(&self, offset: u64, len: u64) -> u64 {
        let last_end = self.last_end.load(Ordering::Relaxed);
        self.last_end.store(offset + len, Ordering::Relaxed);
        let sequential = last_end == offset || (last_end == u64::MAX && offset == 0);
        let ahead = if sequential {
            (self.ahead.load(Ordering::Relaxed) * 2 + 1).min(AHEAD_MAX)
        } else {
            0
        };
        self.ahead.store(ahead, Ordering::Relaxed);
        ahead
    }

    /// Returns bytes from `offset` on without a copy: at least one, unless the file ends there.
    /// Later writes do not change them.
    pub fn slice(&self, offset: u64) -> Result<Option<Slice>> {
        self.pages.slice(self.inode.inner().tree_roots(), offset)
    }

    /// Returns bytes from `offset` on without a copy, if they are cached: as far as they are in one
    /// buffer. Later writes do not change them.
    pub fn held(&self, offset: u64) -> Option<Slice> {
        let left = self.len().checked_sub(offset).filter(|left| *left > 0)?;
        Some(self.pages.held(offset)?.first(left))
    }

    /// Reads whole sectors, bypassing the page cache except for dirty data: as many bytes as asked
    /// for, with zeros beyond the end of the file. Returns [`Error::Invalid`] if the range is not
    /// of whole sectors.
    pub fn read_direct(&self, offset: u64, len: usize) -> Result<Buffer> {
        if !offset.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR_LEN) {
            return Err(Error::Invalid("direct I/O that is not of whole sectors"));
        }
        let mut buffer = Buffer::zeroed(len);
        let mut reader = self.reader_of(offset, offset.saturating_add(len as u64));
        while let Some(chunk) = reader.next_chunk()? {
            if let Some(bytes) = chunk.bytes() {
                buffer[to_usize(chunk.offset() - offset)..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(buffer)
    }

    /// Reads the whole content, holes as zeros. Allocates the memory for all of it at once; returns
    /// [`Error::OutOfMemory`] if there is not enough.
    pub fn read_all(&self) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let bytes = self.len();
        let reserved =
            usize::try_from(bytes).is_ok_and(|len| content.try_reserve_exact(len).is_ok());
        if !reserved {
            return Err(Error::OutOfMemory { bytes });
        }
        let mut reader = self.reader();
        while let Some(chunk) = reader.next_chunk()? {
            match chunk.bytes() {
                Some(bytes) => content.extend_from_slice(bytes),
                None => content.resize(content.len() + to_usize(chunk.len()), 0),
            }
        }
        Ok(content)
    }

    /// Returns a reader of the content from start to end, which reads ahead.
    pub fn reader(&self) -> FileReader {
        self.reader_of(0, u64::MAX)
    }

    /// Returns a reader of the bytes between two offsets, up to the end of the file.
    pub fn reader_of(&self, start: u64, end: u64) -> FileReader {
        let inner = self.inode.inner();
        let tree_roots = inner.tree_roots().clone();
        let pages = Arc::clone(&self.pages);
        let stream = Stream::new(tree_roots, pages, start, end, inner.window);
        FileReader::new(stream, start..end, self.inode.clone())
    }

    /// Returns the extents of the file, from start to end, without gap, after writing dirty data.
    pub fn extents(&self) -> Result<Vec<Extent>> {
        if let Some(writer) = &self.inode.inner().writer {
            writer.write_back(&self.pages)?;
        }
        let mut extents = Vec::new();
        self.each_segment(0, |extent| {
            extents.push(extent);
            true
        })?;
        Ok(extents)
    }

    /// Returns the first offset from `offset` on that holds data (`SEEK_DATA`);
    /// [`Error::NoMoreData`] if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        let size = self.len();
        if offset >= size {
            return Err(Error::NoMoreData);
        }
        let dirty = self.pages.unfinished(offset, size, 1);
        let dirty = dirty.first().map(|range| range.start.max(offset));
        let on_disk = self.seek(offset, is_data)?;
        dirty.into_iter().chain(on_disk).min().ok_or(Error::NoMoreData)
    }

    /// Returns the first offset from `offset` on that is in a hole (`SEEK_HOLE`); the end of the
    /// file counts as one. [`Error::NoMoreData`] at or past the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        let size = self.len();
        if offset >= size {
            return Err(Error::NoMoreData);
        }
        let mut at = offset;
        while at < size {
            // Unfinished data first: what lands meanwhile is found on disk.
            match self.pages.unfinished(at, size, 1).first() {
                Some(dirty) if dirty.start <= at => at = dirty.end,
                _ => match self.seek(at, |kind| !is_data(kind))? {
                    Some(hole) if hole > at => at = hole,
                    Some(hole) => return Ok(hole),
                    None => return Ok(size),
                },
            }
        }
        Ok(size)
    }

    fn seek(&self, offset: u64, wanted: impl Fn(&ExtentKind) -> bool) -> Result<Option<u64>> {
        let mut found = None;
        self.each_segment(offset, |extent| {
            found = wanted(&extent.kind).then_some(extent.start);
            found.is_none()
        })?;
        Ok(found)
    }

    /// Calls `each` for the extents from `start` on, until it returns false.
    fn each_segment(&self, start: u64, mut each: impl FnMut(Extent) -> bool) -> Result<()> {
        let tree_roots = self.inode.inner().tree_roots();
        let source = self.source();
        let mut segments = ExtentMaps::new(tree_roots, &source, start, u64::MAX);
        while let Some(segment) = segments.next()? {
            let kind = match segment.kind {
                ExtentMapKind::Hole => ExtentKind::Hole,
                ExtentMapKind::Prealloc(extent) => ExtentKind::Prealloc { logical: extent.disk.0 },
                ExtentMapKind::Inline(..) => ExtentKind::Inline,
                ExtentMapKind::Regular(extent, compression) => ExtentKind::Data {
                    logical: extent.disk.0,
                    disk_bytes: extent.disk_bytes,
                    offset: extent.offset,
                    compression,
                },
            };
            let start = segment.start;
            let len = segment.end - segment.start;
            if !each(Extent { start, len, kind }) {
                break;
            }
        }
        Ok(())
    }
}

fn is_data(kind: &ExtentKind) -> bool {
    matches!(kind, ExtentKind::Inline | ExtentKind::Data { .. })
}
