//! Buffered reads: from the page cache, and from disk for what is not cached.
//!
//! 1. A read fails only for the bytes it asked for: if fetching more fails, only those are fetched.
//! 2. It waits only for writers of the bytes it asked for.
//! 3. A window of a long read is fetched at once, and bounds its memory.
//! 4. What was read while data was relocated is not used: it is looked up and read again.
//! 5. Of a compressed extent all bytes are kept that are in the blocks of those asked for: they had
//!    to be decompressed anyway.

use std::ops::Range;

use userbtrfs_device::{Buffer, Slice};
use userbtrfs_sync::Arc;

use crate::data::backing_extents::BackingExtents;
use crate::data::cache::file_pages::FilePages;
use crate::data::read::extent_reader::{ExtentReader, ReadExtents};
use crate::data::read::requests::{ReadRequest, pieces};
use crate::data::units::{BLOCK, sectors};
use crate::error::{Error, Result};
use crate::inode::TreeRoots;
use crate::units::{SECTOR, SECTOR_LEN, to_usize};

/// The most bytes that are in flight for one read.
const WINDOW: usize = 2 << 20;

impl FilePages {
    /// Copies bytes of the file; those beyond its size are zeros. `ahead` is the number of
    /// following blocks that will be needed soon. The caller holds no range of the file.
    pub(crate) fn read(
        &self,
        tree_roots: &TreeRoots,
        offset: u64,
        target: &mut [u8],
        ahead: u64,
    ) -> Result<()> {
        let mut done = self.copy_held(offset, target);
        while done < target.len() {
            let at = offset + done as u64;
            let len = (target.len() - done).min(WINDOW);
            let last = done + len == target.len();
            self.load(tree_roots, at, &mut target[done..][..len], if last { ahead } else { 0 })?;
            done += len;
            done += self.copy_held(offset + done as u64, &mut target[done..]);
        }
        Ok(())
    }

    /// Like [`FilePages::read`], for a caller that holds the range.
    pub(crate) fn read_locked(
        &self,
        tree_roots: &TreeRoots,
        offset: u64,
        target: &mut [u8],
    ) -> Result<()> {
        for (part, at) in target.chunks_mut(WINDOW).zip((offset..).step_by(WINDOW)) {
            let wanted = at..at + part.len() as u64;
            Load { pages: self, tree_roots, wanted, target: part }.run(&Reach::Wanted)?;
        }
        self.shrink();
        Ok(())
    }

    /// Returns the bytes from `offset` on, without a copy: as far as they are in one buffer, and
    /// below the size; `None` at or beyond the size. The caller holds no range of the file.
    pub(crate) fn slice(&self, tree_roots: &TreeRoots, offset: u64) -> Result<Option<Slice>> {
        let left = self.inode().size().saturating_sub(offset);
        if left == 0 {
            return Ok(None);
        }
        let shared = match self.held(offset) {
            Some(slice) => slice,
            None => self.read_slice(tree_roots, offset, left)?,
        };
        Ok(Some(shared.first(left)))
    }

    /// Reads the rest of the sector of an offset, `left` bytes before the end, and reads ahead.
    fn read_slice(&self, tree_roots: &TreeRoots, offset: u64, left: u64) -> Result<Slice> {
        let len = SECTOR_LEN - to_usize(offset % SECTOR);
        let mut bytes = Buffer::zeroed(usize::try_from(left).map_or(len, |left| len.min(left)));
        self.read(tree_roots, offset, &mut bytes, 1)?;
        // If the block has been evicted already, return the copy.
        Ok(self.held(offset).unwrap_or_else(|| Slice::from(bytes)))
    }

    /// Copies cached bytes, up to the first byte that is missing; returns how many.
    fn copy_held(&self, offset: u64, target: &mut [u8]) -> usize {
        let mut done = 0;
        while done < target.len() {
            match self.copy_out(offset + done as u64, &mut target[done..]) {
                0 => break,
                len => done += len,
            }
        }
        done
    }

    /// Reads and copies at most a window.
    fn load(
        &self,
        tree_roots: &TreeRoots,
        offset: u64,
        target: &mut [u8],
        ahead: u64,
    ) -> Result<()> {
        let wanted = offset..offset + target.len() as u64;
        let mut load = Load { pages: self, tree_roots, wanted, target };
        let more = load.more(ahead);
        let loaded = self.range.try_lock_shared(more.clone()).map(|_guard| {
            load.run(&if ahead > 0 { Reach::All(more) } else { Reach::Compressed(more) })
        });
        if !matches!(loaded, Some(Ok(()))) {
            let touched = sectors(load.wanted.start, load.wanted.end);
            let _guard = self.range.lock_shared(to_place(touched.start)..to_place(touched.end));
            load.run(&Reach::Wanted).map_err(|error| not_before(error, offset))?;
        }
        self.shrink();
        Ok(())
    }

    /// Adds a piece to the page cache. The caller holds its range.
    fn keep(&self, file: &BackingExtents, piece: &ReadRequest, fetched: ReadExtents) {
        let aligned = |offset: u64| offset.is_multiple_of(SECTOR);
        if !aligned(piece.start) || !(aligned(piece.end()) || piece.end() == file.size) {
            return;
        }
        let sectors = sectors(piece.start, piece.end());
        let bytes = to_usize(sectors.end - sectors.start) * SECTOR_LEN;
        match fetched {
            ReadExtents::Zeros(_) => self.fill_zeros(sectors),
            ReadExtents::Bytes { buffer, skip, len } => {
                self.fill(sectors.start, &whole_sectors(buffer, skip, len, bytes));
            }
        }
    }
}

/// Returns `bytes` bytes, of which the first `len` come from a buffer, and the others are zeros.
fn whole_sectors(mut buffer: Arc<Buffer>, skip: usize, len: usize, bytes: usize) -> Arc<Buffer> {
    let whole = skip == 0 && buffer.len() == bytes;
    if whole && let Some(own) = Arc::get_mut(&mut buffer) {
        own[len..].fill(0);
        return buffer;
    }
    let mut own = Buffer::unspecified(bytes);
    own[..len].copy_from_slice(&buffer[skip..][..len]);
    own[len..].fill(0);
    Arc::new(own)
}

/// The range that is fetched for a read.
enum Reach {
    /// The sectors that the read asks for.
    Wanted,
    /// All of this range, which includes those.
    All(Range<u64>),
    /// All of this range if some of those sectors are in compressed extents, else only those.
    Compressed(Range<u64>),
}

/// A read of at most a window. The caller holds the range of what is fetched.
struct Load<'a> {
    pages: &'a FilePages,
    tree_roots: &'a TreeRoots,
    wanted: Range<u64>,
    target: &'a mut [u8],
}

impl Load<'_> {
    /// Returns the range that is best to fetch: whole blocks, and `ahead` blocks after them.
    fn more(&self, ahead: u64) -> Range<u64> {
        let block = BLOCK as u64;
        let ahead_max = self.pages.ahead_max();
        let start = match ahead {
            0 => self.wanted.start / block * block,
            _ => self.wanted.start / SECTOR * SECTOR,
        };
        let first = self.wanted.start / block;
        let last = self.wanted.end.div_ceil(block);
        let end = last.max((last + ahead).min(first + ahead_max));
        start..end.saturating_mul(block)
    }

    fn run(&mut self, reach: &Reach) -> Result<()> {
        loop {
            let file = self.pages.source();
            let done = self.run_once(&file, reach);
            if file.is_current() {
                return done;
            }
            file.wait_for_epoch()?;
        }
    }

    fn run_once(&mut self, file: &BackingExtents, reach: &Reach) -> Result<()> {
        let wanted = sectors(self.wanted.start, self.wanted.end);
        let end = file.size.div_ceil(SECTOR);
        let wider = |range: &Range<u64>| {
            let range = sectors(range.start, range.end);
            range.start..range.end.min(end).max(wanted.end)
        };
        let groups = match reach {
            Reach::Wanted => self.find(file, wanted)?,
            Reach::All(range) => self.find(file, wider(range))?,
            Reach::Compressed(range) => {
                let found = self.find(file, wanted.clone())?;
                let compressed = found.iter().flatten().any(ReadRequest::is_compressed);
                if compressed { self.find(file, wider(range))? } else { found }
            }
        };
        groups.into_iter().try_for_each(|group| self.fetch(file, group))
    }

    /// Copies cached data, and finds the pieces of missing data: in groups that are fetched at
    /// once.
    fn find(
        &mut self,
        file: &BackingExtents,
        sectors: Range<u64>,
    ) -> Result<Vec<Vec<ReadRequest>>> {
        let (held, missing) = self.pages.look(sectors);
        for (start, slice) in held {
            self.copy(start, slice.len() as u64, Some(&slice));
        }
        let mut groups: Vec<Vec<ReadRequest>> = Vec::new();
        let mut cost = 0;
        for run in missing {
            let mut at = to_place(run.start);
            let end = to_place(run.end);
            while at < end.min(file.size) {
                let found = pieces(self.tree_roots, file, at, end, BLOCK as u64, WINDOW as u64)?;
                at = found.last().map_or(end, ReadRequest::end);
                if groups.is_empty() || cost >= WINDOW as u64 {
                    groups.push(Vec::new());
                    cost = 0;
                }
                cost += found.iter().map(ReadRequest::cost).sum::<u64>();
                groups.last_mut().expect("just made").extend(found);
            }
            self.copy(at, end.saturating_sub(at), None);
        }
        Ok(groups)
    }

    fn fetch(&mut self, file: &BackingExtents, group: Vec<ReadRequest>) -> Result<()> {
        let mut arrived = ExtentReader::submit(self.tree_roots, group).wait(self.tree_roots, file);
        arrived.decompress(self.tree_roots, file, self.pages.helpers());
        while let Some(next) = arrived.next(self.tree_roots, file) {
            let (piece, fetched) = next?;
            self.copy(piece.start, piece.len, fetched.bytes());
            if file.is_current() {
                self.pages.keep(file, &piece, fetched);
            }
        }
        Ok(())
    }

    /// Copies the wanted part of a range of the file: from these bytes, or zeros.
    fn copy(&mut self, start: u64, len: u64, bytes: Option<&[u8]>) {
        let from = start.max(self.wanted.start);
        let until = start.saturating_add(len).min(self.wanted.end);
        if from >= until {
            return;
        }
        let len = to_usize(until - from);
        let target = &mut self.target[to_usize(from - self.wanted.start)..][..len];
        match bytes {
            Some(bytes) => target.copy_from_slice(&bytes[to_usize(from - start)..][..len]),
            None => target.fill(0),
        }
    }
}

/// Reports damage of a sector at the first byte that was asked for.
fn not_before(error: Error, start: u64) -> Error {
    match error {
        Error::Data { file, offset, error } => {
            Error::Data { file, offset: offset.max(start), error }
        }
        other => other,
    }
}

fn to_place(sector: u64) -> u64 {
    sector.saturating_mul(SECTOR)
}
