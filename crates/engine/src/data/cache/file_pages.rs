//! A file in the page cache (Linux: `address_space`): its blocks, and its locks for reading,
//! writing and writeback.
//!
//! 1. A thread that fills blocks from disk holds the range shared, a writer holds it exclusively.
//!    So sectors that a reader finds missing stay missing until the reader fills them, and their
//!    data on disk does not change meanwhile.
//! 2. Cached data is read without locking a range: each block is consistent at one moment.
//! 3. A thread that changes the data on disk holds `writeback`. While nobody holds it, no sector is
//!    being written.
//! 4. The lock of the blocks is held to copy at most 128 KiB, shared by readers. Its holder does
//!    not wait for anything, and looks at no other file.
//! 5. Beyond the size, the last sector holds zeros.

use std::ops::Range;
use std::sync::Weak;
use std::time::Instant;

use userbtrfs_device::{Buffer, Slice};
use userbtrfs_sync::atomic::{AtomicU32, Ordering};
use userbtrfs_sync::order::Identity;
use userbtrfs_sync::{Arc, Class, Mutex, RwLock};

use crate::data::backing_extents::BackingExtents;
use crate::data::cache::blocks::{CacheBlocks, Evicted, Usage};
use crate::data::cache::dirty::{Delta, DirtyRuns};
use crate::data::cache::range_lock::RangeLock;
use crate::data::cache::reservation::DelallocReservation;
use crate::data::cache::shared::{CacheShared, CachedFile, Listed};
use crate::data::cache::writeback_errors::ErrSeq;
use crate::data::helpers::Helpers;
use crate::data::units::{BLOCK, sectors};
use crate::error::{InodeId, Result, Unwritten};
use crate::inode::{FileChange, Inode};
use crate::units::{SECTOR, SECTOR_LEN, to_usize};

/// About the memory of a file besides its blocks: this struct, its inode, their entries in tables.
const CONTENTS_BYTES: u64 = 1 << 10;

/// A file in the page cache: its blocks, and its locks for reading, writing and writeback.
pub(crate) struct FilePages {
    inode: Arc<Inode>,
    /// Locks ranges of bytes of the file.
    pub(crate) range: RangeLock,
    /// Held to change the extents, or the data in them.
    pub(in crate::data) writeback: Mutex<()>,
    /// The space reserved for dirty data.
    pub(in crate::data) account: DelallocReservation,
    /// The number of threads that are extending the file.
    growing: AtomicU32,
    state: RwLock<State>,
    cache: Arc<CacheShared<Self>>,
    me: Weak<FilePages>,
}

struct State {
    blocks: CacheBlocks,
    /// The number of times that unfinished data was written to disk, failed or was dropped.
    finishes: u64,
    /// The position of the file in the list of unfinished files.
    listed: Option<Listed>,
}

/// Whether a file keeps its position in the list of unfinished files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheListing {
    Kept,
    /// It moves to the end of the list.
    Anew,
}

/// Marks that a thread extends the file: while it lives, the file is not written inline.
pub(in crate::data) struct ExtendGuard<'a>(&'a FilePages);

impl Drop for ExtendGuard<'_> {
    fn drop(&mut self) {
        self.0.growing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A version of the file's data on disk. While it is unchanged, nothing on disk changes, and no
/// data that was only in memory is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) struct Version(u64, u64);

impl FilePages {
    /// Returns the file with no blocks.
    pub(in crate::data) fn new(inode: &Arc<Inode>, cache: &Arc<CacheShared<Self>>) -> Arc<Self> {
        let InodeId { subvolume, number } = inode.id();
        let identity = |class| Identity::of_inode(class, subvolume.0, number);
        let blocks = CacheBlocks::new(Arc::clone(&cache.zeros));
        let state = State { blocks, finishes: 0, listed: None };
        Arc::new_cyclic(|me| Self {
            inode: Arc::clone(inode),
            range: RangeLock::new(inode.id()),
            writeback: Mutex::with_identity(identity(Class::Writeback), ()),
            account: DelallocReservation::default(),
            growing: AtomicU32::new(0),
            state: RwLock::with_identity(identity(Class::FileContents), state),
            cache: Arc::clone(cache),
            me: Weak::clone(me),
        })
    }

    /// Returns the inode.
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Returns which file this is.
    pub(crate) fn id(&self) -> InodeId {
        self.inode.id()
    }

    /// Returns the present state of the file on disk.
    pub(crate) fn source(&self) -> BackingExtents {
        BackingExtents::new(&self.inode, self.cache.transactions.as_ref())
    }

    /// Returns the file as it is on disk, as far as its extents go.
    pub(in crate::data) fn backing_extents(&self) -> BackingExtents {
        BackingExtents { size: u64::MAX, ..self.source() }
    }

    /// Returns the size, as callers see it.
    pub(in crate::data) fn size(&self) -> u64 {
        self.inode.item().size
    }

    /// Advances the size on disk to what the file has data for: up to the first byte that is not
    /// yet in an extent, and all that has `landed`. Landed data may be dirty again, if it was
    /// written to while it was in flight; but a sync may have reported the landed data as durable.
    pub(in crate::data) fn advance_size(&self, change: &mut FileChange<'_>, landed: u64) {
        let known = change.disk_size();
        let size = change.size();
        if known < size {
            let first = self.unfinished_from(known).unwrap_or(size);
            change.set_disk_size(first.max(landed).clamp(known, size));
        }
    }

    /// Marks that the caller is about to extend the file.
    pub(in crate::data) fn grow(&self) -> ExtendGuard<'_> {
        self.growing.fetch_add(1, Ordering::SeqCst);
        ExtendGuard(self)
    }

    /// Returns true if a thread is extending the file.
    pub(in crate::data) fn is_growing(&self) -> bool {
        self.growing.load(Ordering::SeqCst) > 0
    }

    /// Opens the file; returns the point up to which errors count as reported.
    pub(crate) fn opened(&self) -> ErrSeq {
        self.cache.failures.opened(self.id())
    }

    /// Fails if there is a write error of the file after the failure numbered `since`, and marks
    /// it as reported.
    pub(crate) fn check_and_advance_error(&self, since: u64, reported: &ErrSeq) -> Result<()> {
        self.cache.failures.check_and_advance(self.id(), since, reported)
    }

    /// Records a write error of the file.
    pub(in crate::data) fn add_failure(&self, what: Unwritten) {
        self.cache.failures.add(self.id(), what);
        // The thread that deletes the file marks it first, then removes its errors.
        if self.account.is_dead() {
            self.cache.failures.deleted(self.id());
        }
    }

    /// Returns the version of the data on disk.
    pub(in crate::data) fn version(&self) -> Version {
        let extents = self.inode.extents_version();
        Version(extents, self.state.read().finishes)
    }

    /// Returns up to where in a range the data that was read from disk is what the file holds.
    /// `version` was taken before the extents were looked at.
    pub(in crate::data) fn settled(&self, version: Version, range: Range<u64>) -> u64 {
        // Sectors that are finished after this look change the version.
        let unfinished = self.unfinished_from(range.start).unwrap_or(range.end);
        if self.version() == version {
            unfinished.clamp(range.start, range.end)
        } else {
            range.start
        }
    }

    /// Returns the most blocks that one read may bring in.
    pub(in crate::data) fn ahead_max(&self) -> u64 {
        self.cache.ahead_max
    }

    /// Returns the threads that may help to decompress.
    pub(in crate::data) fn helpers(&self) -> &Helpers {
        &self.cache.helpers
    }

    /// Evicts blocks until the memory bound is met. The caller holds no lock of a file in memory.
    pub(in crate::data) fn shrink(&self) {
        self.cache.shrink();
    }

    // Lookup.

    /// Returns the valid bytes from `offset` on, as far as they are in one block; also beyond the
    /// size.
    pub(crate) fn held(&self, offset: u64) -> Option<Slice> {
        let sector = offset / SECTOR;
        let skip = to_usize(offset % SECTOR);
        let (buffer, range) = self.state.read().blocks.slice(sector)?.into_parts();
        Some(Slice::new(buffer, range.start + skip..range.end))
    }

    /// Copies valid bytes from `offset` on, as far as they are in one block, also beyond the size;
    /// returns how many. Copying under the lock needs no reference to the buffer, so it does not
    /// force a writer to copy the buffer.
    pub(in crate::data) fn copy_out(&self, offset: u64, target: &mut [u8]) -> usize {
        self.state.read().blocks.copy_out(offset, target)
    }

    /// Returns the cached parts of a range of sectors with their offsets, and the sectors that are
    /// missing, at one moment.
    pub(in crate::data) fn look(
        &self,
        sectors: Range<u64>,
    ) -> (Vec<(u64, Slice)>, Vec<Range<u64>>) {
        let mut held = Vec::new();
        let mut at = sectors.start;
        let blocks = &self.state.read().blocks;
        let missing = blocks.missing(sectors.clone());
        let mut gaps = missing.iter();
        while at < sectors.end {
            let Some(slice) = blocks.slice(at) else {
                at = gaps.next().expect("it is here or missing").end;
                continue;
            };
            let start = at;
            at += (slice.len() / SECTOR_LEN) as u64;
            held.push((start * SECTOR, slice));
        }
        (held, missing)
    }

    /// Returns the offset of the first unfinished sector at or after the sector of `offset`.
    pub(crate) fn unfinished_from(&self, offset: u64) -> Option<u64> {
        self.unfinished(offset, u64::MAX, 1).first().map(|range| range.start)
    }

    /// Returns the runs of unfinished sectors in a byte range: clipped to it, ascending, at most
    /// `max`.
    pub(crate) fn unfinished(&self, start: u64, end: u64, max: usize) -> Vec<Range<u64>> {
        let runs = self.state.read().blocks.unfinished(sectors(start, end), max);
        let clip = |run: Range<u64>| {
            (run.start * SECTOR).max(start)..run.end.saturating_mul(SECTOR).min(end)
        };
        runs.into_iter().map(clip).collect()
    }

    /// Returns the sectors and runs that a write would newly make dirty.
    pub(crate) fn new_dirty(&self, start: u64, end: u64) -> Delta {
        self.state.read().blocks.new_dirty(sectors(start, end))
    }

    // Filling and writing: see `buffered_read` and `buffered_write`.

    /// Fills in sectors as they are on disk. The caller holds the range.
    pub(in crate::data) fn fill(&self, sector: u64, buffer: &Arc<Buffer>) {
        self.change(|state| state.blocks.fill(sector, buffer));
    }

    /// Fills in sectors that are zeros on disk. The caller holds the range.
    pub(in crate::data) fn fill_zeros(&self, sectors: Range<u64>) {
        self.change(|state| state.blocks.fill_zeros(sectors));
    }

    /// Writes at most a block. Sectors that are written in part are valid, or among `edges`.
    pub(in crate::data) fn copy_in(
        &self,
        offset: u64,
        bytes: &[u8],
        edges: &[(u64, Buffer)],
    ) -> Delta {
        assert!(bytes.len() <= BLOCK, "blocks are not locked for longer");
        let touched = sectors(offset, offset + bytes.len() as u64);
        self.change(|state| {
            for (sector, edge) in edges.iter().filter(|(sector, _)| touched.contains(sector)) {
                state.blocks.fill_from(*sector, edge);
            }
            state.blocks.write(offset, bytes)
        })
    }

    /// Writes at most a block, if the sectors that are written in part are valid; returns `None` if
    /// some must be read first.
    pub(in crate::data) fn copy_over(&self, offset: u64, bytes: &[u8]) -> Option<Delta> {
        let block = BLOCK as u64;
        let end = offset + bytes.len() as u64;
        if offset / block != end.saturating_sub(1) / block {
            return None;
        }
        let mut partial = [offset, end].into_iter().filter(|at| !at.is_multiple_of(SECTOR));
        self.change(|state| {
            let is_here = |at: u64| state.blocks.missing(sectors(at, at + 1)).is_empty();
            partial.all(is_here).then(|| state.blocks.write(offset, bytes))
        })
    }

    /// Drops the sectors that a range touches, dirty or not. The caller holds the range
    /// exclusively, and `writeback`.
    pub(crate) fn discard(&self, start: u64, end: u64) -> Delta {
        self.change(|state| {
            state.finishes += 1;
            state.blocks.discard(sectors(start, end))
        })
    }

    /// Drops the sectors after `size`, and zeros the rest of the last sector if it is cached,
    /// without making it dirty. The caller holds the range from that sector on exclusively, and
    /// `writeback`.
    pub(crate) fn truncate(&self, size: u64) -> Delta {
        self.change(|state| {
            state.finishes += 1;
            state.blocks.zero_tail(size);
            state.blocks.discard(size.div_ceil(SECTOR)..sectors(0, u64::MAX).end)
        })
    }

    // Writing back. The caller holds `writeback`.

    /// Takes dirty sectors of a range that are not already being written, about `max` bytes at
    /// most, and marks them as being written. Runs are maximal, up to the length of an extent.
    /// Moves the file to the end of the list of unfinished files, with the age that it had.
    pub(crate) fn take_dirty(&self, range: Range<u64>, max: u64) -> (DirtyRuns, Delta) {
        let sectors = sectors(range.start, range.end);
        self.change_listed(CacheListing::Anew, |state| state.blocks.take_dirty(sectors, max))
    }

    /// Fills in a range of whole sectors of one block, which are on disk like this, and marks them
    /// as being written. The caller holds the range, and none of it is unfinished.
    pub(crate) fn take_clean(&self, offset: u64, bytes: &[u8]) -> DirtyRuns {
        let sectors = sectors(offset, offset + bytes.len() as u64);
        self.change(|state| {
            let dirtied = state.blocks.write(offset, bytes);
            let (runs, taken) = state.blocks.take_dirty(sectors, u64::MAX);
            // So the space that is reserved for dirty data stays right.
            assert_eq!(dirtied.plus(taken), Delta::default(), "no sector was dirty");
            runs
        })
    }

    /// Ends the writing of a range that is on disk now.
    pub(crate) fn written(&self, start: u64, end: u64) {
        self.change(|state| {
            state.finishes += 1;
            state.blocks.written(sectors(start, end));
        });
    }

    /// Ends the writing of a range that failed: its data is dropped, unless it was written to
    /// again.
    pub(crate) fn failed(&self, start: u64, end: u64) {
        self.change(|state| {
            state.finishes += 1;
            state.blocks.failed(sectors(start, end));
        });
    }

    // Memory.

    /// Drops the sectors that are neither dirty nor being written.
    pub(crate) fn drop_clean(&self) {
        self.change(|state| state.blocks.drop_clean());
    }

    /// Changes the blocks, and updates the counts of the cache.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        self.change_listed(CacheListing::Kept, change)
    }

    fn change_listed<R>(&self, listing: CacheListing, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.write();
        let before = state.blocks.usage();
        let result = change(&mut state);
        let after = state.blocks.usage();
        self.cache.account(with_contents(before), with_contents(after));
        self.list(&mut state, listing, before, after);
        if before.unfinished != after.unfinished {
            self.inode.set_unfinished(after.unfinished * SECTOR);
        }
        let newcomers = state.blocks.take_newcomers();
        if !newcomers.is_empty() {
            self.cache.enlist(&self.arc(), newcomers);
        }
        result
    }

    /// Keeps the file in the list of unfinished files while it is unfinished, with the time since
    /// which it has been dirty. The new entry is added before the old one is removed, so that a
    /// thread that looks for unfinished files finds the file at any moment.
    fn list(&self, state: &mut State, listing: CacheListing, before: Usage, after: Usage) {
        let newly_dirty = before.dirty == 0 && after.dirty > 0;
        let leaves = after.unfinished == 0 || newly_dirty || listing == CacheListing::Anew;
        let left = leaves.then(|| state.listed.take()).flatten();
        if after.unfinished > 0 && state.listed.is_none() {
            let was_dirty = left.filter(|_| before.dirty > 0 && after.dirty > 0);
            let since = was_dirty.map_or_else(Instant::now, |left| left.since);
            state.listed = Some(self.cache.list(self.arc(), since));
        }
        if let Some(place) = left {
            self.cache.unlist(place);
        }
    }

    fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls holds it")
    }
}

impl CachedFile for FilePages {
    fn evict(&self, first: u64, ticket: u64) -> Evicted {
        self.change(|state| state.blocks.evict(first, ticket))
    }
}

impl Drop for FilePages {
    fn drop(&mut self) {
        self.cache.removed(self.inode.id(), &self.me);
    }
}

/// Adds the memory of the file itself to that of its blocks, if it has any.
fn with_contents(usage: Usage) -> Usage {
    let own = if usage.blocks > 0 { CONTENTS_BYTES } else { 0 };
    Usage { bytes: usage.bytes + own, ..usage }
}
