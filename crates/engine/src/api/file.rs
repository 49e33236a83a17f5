//! Regular files: reading, and what holds them.

use userbtrfs_codec::compress::Compression;
use userbtrfs_device::{Buffer, Slice};
use userbtrfs_format::{FileKind, SECTOR_SIZE};
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{FileReader, Inode};
use crate::data::{BackingExtents, ErrSeq, ExtentMapKind, ExtentMaps, FilePages, Stream, Times};
use crate::error::{Error, Result};
use crate::inode::{EMPTY_DIR, InodeRef};

/// An open regular file. Every call may be made from any thread.
///
/// What is written is seen at once by everybody, and waits in memory; it is written to the device
/// in time, where too much waits, and before a commit. [`File::sync_all`] makes it durable. A
/// file that is dropped stays dirty, and loses nothing; who wants to know of an error calls
/// [`File::close`] or syncs.
pub struct File {
    pub(super) pages: Arc<FilePages>,
    /// Of which failures of writing it told.
    pub(super) told: ErrSeq,
    /// Before the inode, and with it the filesystem, which it needs while it is dropped.
    opened: InodeRef,
    inode: Inode,
    /// Where the last read ended, and how many blocks the next one gets in advance if it
    /// starts there. Only a guess hangs on them: threads may overwrite each other's.
    last_end: AtomicU64,
    ahead: AtomicU64,
    /// Whether it was found that the file may be written.
    pub(super) is_writable: AtomicBool,
    /// What is done to its times.
    pub(super) times: Times,
}

/// What holds a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where the range starts in the file, in bytes.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// What holds it.
    pub kind: ExtentKind,
}

/// What holds a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Nothing: it reads as zeros.
    Hole,
    /// Space that was allocated and not written: it reads as zeros.
    Prealloc {
        /// The logical address of the extent.
        logical: u64,
    },
    /// The tree itself.
    Inline,
    /// An extent on disk.
    Data {
        /// The logical address of the extent.
        logical: u64,
        /// Bytes of the whole extent on disk.
        disk_bytes: u64,
        /// Where in the (decompressed) extent the range starts, in bytes.
        offset: u64,
        /// How it is compressed.
        compression: Option<Compression>,
    },
}

/// The most blocks that a sequential reader gets in advance.
const AHEAD_MAX: u64 = 15;

impl File {
    pub(crate) fn open(inode: &Inode) -> Result<Self> {
        if inode.id().number == EMPTY_DIR {
            return Err(Error::IsADirectory);
        }
        let inner = inode.inner();
        let opened = inner.nodes.open(inode.id())?;
        match opened.inode().kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        let pages = inner.files.pages(opened.inode());
        let told = pages.opened();
        let (last_end, ahead) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let is_writable = AtomicBool::new(false);
        let inode = inode.clone();
        let times = Times::Now;
        Ok(Self { pages, told, opened, inode, last_end, ahead, is_writable, times })
    }

    /// The file, whose times [`File::write_at`], [`File::copy_from`] and [`File::allocate`] leave
    /// as they are: somebody else knows when it was changed, and sets that.
    #[must_use]
    pub fn keeping_times(self) -> Self {
        Self { times: Times::Kept, ..self }
    }

    /// The file as it is now.
    fn source(&self) -> BackingExtents {
        self.pages.source()
    }

    /// The handle on its inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.opened.inode().size()
    }

    /// Whether its size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads bytes from `offset` on into `target`, and gives how many: fewer than asked for
    /// only where the file ends.
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

    /// Each read that starts where the last one ended doubles what is read ahead.
    fn guess_ahead(&self, offset: u64, len: u64) -> u64 {
        let last_end = self.last_end.load(Ordering::Relaxed);
        self.last_end.store(offset + len, Ordering::Relaxed);
        let sequential = last_end == offset || (last_end == u64::MAX && offset == 0);
        let ahead = match sequential {
            true => (self.ahead.load(Ordering::Relaxed) * 2 + 1).min(AHEAD_MAX),
            false => 0,
        };
        self.ahead.store(ahead, Ordering::Relaxed);
        ahead
    }

    /// Bytes from `offset` on without a copy: some at least, unless the file ends there. They stay
    /// as they are now, whatever is written after.
    pub fn slice(&self, offset: u64) -> Result<Option<Slice>> {
        self.pages.slice(self.inode.inner().tree_roots(), offset)
    }

    /// Bytes from `offset` on without a copy, if they are in memory: as far as in one buffer. They
    /// stay as they are now, whatever is written after.
    pub fn held(&self, offset: u64) -> Option<Slice> {
        let left = self.len().checked_sub(offset).filter(|left| *left > 0)?;
        Some(self.pages.held(offset)?.first(left))
    }

    /// Reads whole sectors past the memory that is kept for files, but sees what is dirty there:
    /// as many bytes as asked for, zeros behind the end of the file. [`Error::Invalid`] where the
    /// range is not of whole sectors.
    pub fn read_direct(&self, offset: u64, len: usize) -> Result<Buffer> {
        let sector = SECTOR_SIZE as usize;
        if !offset.is_multiple_of(sector as u64) || !len.is_multiple_of(sector) {
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

    /// Its whole content, holes as zeros. Memory for all of it is taken at once;
    /// [`Error::OutOfMemory`] where there is not so much.
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

    /// A reader of its content from start to end, which fetches ahead of what is asked for.
    pub fn reader(&self) -> FileReader {
        self.reader_of(0, u64::MAX)
    }

    /// A reader of the bytes between two offsets, as far as the file goes.
    pub fn reader_of(&self, start: u64, end: u64) -> FileReader {
        let inner = self.inode.inner();
        let tree_roots = inner.tree_roots().clone();
        let pages = Arc::clone(&self.pages);
        let stream = Stream::new(tree_roots, pages, start, end, inner.window);
        FileReader::new(stream, self.inode.clone())
    }

    /// What holds its content, from start to end, without gap. What is dirty is written first.
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

    /// The first offset from `offset` on that holds data (`SEEK_DATA`);
    /// [`Error::NoMoreData`] where none follows.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        let size = self.len();
        if offset >= size {
            return Err(Error::NoMoreData);
        }
        let dirty = self.pages.unfinished(offset, size, 1);
        let dirty = dirty.first().map(|range| range.start.max(offset));
        let beneath = self.seek(offset, is_data)?;
        dirty.into_iter().chain(beneath).min().ok_or(Error::NoMoreData)
    }

    /// The first offset from `offset` on that is in a hole (`SEEK_HOLE`); the end of the file
    /// counts as one. [`Error::NoMoreData`] at or past the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        let size = self.len();
        if offset >= size {
            return Err(Error::NoMoreData);
        }
        let mut at = offset;
        while at < size {
            // First what is unfinished: what lands meanwhile is found beneath.
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

    /// Calls `each` for the extents from `start` on, until it says no.
    fn each_segment(&self, start: u64, mut each: impl FnMut(Extent) -> bool) -> Result<()> {
        let (tree_roots, source) = (self.inode.inner().tree_roots(), self.source());
        let mut segments = ExtentMaps::new(tree_roots, &source, start, u64::MAX);
        while let Some(segment) = segments.next()? {
            let kind = match segment.kind {
                ExtentMapKind::Hole => ExtentKind::Hole,
                ExtentMapKind::Prealloc(extent) => ExtentKind::Prealloc { logical: extent.disk.0 },
                ExtentMapKind::Inline(..) => ExtentKind::Inline,
                ExtentMapKind::Regular { extent, compression, skip } => ExtentKind::Data {
                    logical: extent.disk.0,
                    disk_bytes: extent.disk_bytes,
                    offset: extent.offset + skip,
                    compression,
                },
            };
            let (start, len) = (segment.start, segment.end - segment.start);
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

fn to_usize(len: u64) -> usize {
    usize::try_from(len).expect("a length in memory")
}
