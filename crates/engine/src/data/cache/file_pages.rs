//! A file in memory: its blocks, and the locks of those who read, write and write back.
//!
//! 1. Who fills blocks from beneath holds the range shared, who writes holds it exclusively. So
//!    what a reader finds missing stays missing until it brings it, and what is beneath such a
//!    place does not change meanwhile.
//! 2. What is here is read without locking a range: each block is as it was at one moment.
//! 3. Who puts something else beneath holds `writeback`. While nobody does, nothing is writing.
//! 4. The blocks are locked to copy at most 128 KiB, by who reads together with others; nothing is
//!    awaited, no other file is looked at.
//! 5. Beyond the size, the last sector holds zeros.

use std::ops::Range;
use std::sync::Weak;
use std::time::Instant;

use userbtrfs_device::{Buffer, Slice};
use userbtrfs_sync::atomic::{AtomicU32, Ordering};
use userbtrfs_sync::order::Identity;
use userbtrfs_sync::{Arc, Class, Mutex, RwLock};

use crate::data::BackingExtents;
use crate::data::cache::block::SECTOR;
use crate::data::cache::blocks::{CacheBlocks, Evicted, Usage};
use crate::data::cache::dirty::{Delta, DirtyRuns};
use crate::data::cache::page_cache::{Listed, Shared};
use crate::data::cache::range_lock::RangeLock;
use crate::data::cache::writeback_errors::ErrSeq;
use crate::data::writeback::reservation::DelallocReservation;
use crate::error::{InodeId, Result, Unwritten};
use crate::inode::Inode;

/// The most bytes that are copied while the blocks are locked.
pub(in crate::data) const BLOCK: usize = 128 << 10;

/// About what a file in memory takes beside its blocks: this, its inode, their places in tables.
const CONTENTS_BYTES: u64 = 1 << 10;

/// See the module's text.
pub(crate) struct FilePages {
    inode: Arc<Inode>,
    /// Ranges of bytes of the file.
    pub(crate) range: RangeLock,
    /// Held by who changes what is beneath.
    pub(in crate::data) writeback: Mutex<()>,
    /// What is promised to what is dirty.
    pub(in crate::data) account: DelallocReservation,
    /// How many let it grow just now over its end.
    growing: AtomicU32,
    state: RwLock<State>,
    cache: Arc<Shared>,
    me: Weak<FilePages>,
}

struct State {
    blocks: CacheBlocks,
    /// How often something came to be no longer in memory what is not beneath in the same way.
    finishes: u64,
    /// Under what the file stands among those that are unfinished.
    listed: Option<Listed>,
}

/// Whether a file stays in its place among those that are unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheListing {
    Kept,
    /// What is left of it counts from now on.
    Anew,
}

/// One who lets a file grow over its end: while he is there none of it goes into the tree.
pub(in crate::data) struct ExtendGuard<'a>(&'a FilePages);

impl Drop for ExtendGuard<'_> {
    fn drop(&mut self) {
        self.0.growing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Which content is beneath a file. As long as it stays the same, nothing beneath changes, and
/// nothing that was in memory alone comes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) struct Version(u64, u64);

impl FilePages {
    /// Nothing of a file yet.
    pub(in crate::data) fn new(inode: &Arc<Inode>, cache: &Arc<Shared>) -> Arc<Self> {
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

    /// Its inode.
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Which file it is.
    pub(crate) fn id(&self) -> InodeId {
        self.inode.id()
    }

    /// What is beneath, as it is now.
    pub(crate) fn source(&self) -> BackingExtents {
        BackingExtents::new(&self.inode, self.cache.transactions.as_ref())
    }

    /// The file is about to grow over its end.
    pub(in crate::data) fn grow(&self) -> ExtendGuard<'_> {
        self.growing.fetch_add(1, Ordering::SeqCst);
        ExtendGuard(self)
    }

    /// Whether it is.
    pub(in crate::data) fn is_growing(&self) -> bool {
        self.growing.load(Ordering::SeqCst) > 0
    }

    /// Somebody opens the file: of which failures of writing it he counts as told.
    pub(crate) fn opened(&self) -> ErrSeq {
        self.cache.failures.opened(self.id())
    }

    /// Tells a user of the file what could not be written after the failure of this number.
    pub(crate) fn tell_failure(&self, since: u64, told: &ErrSeq) -> Result<()> {
        self.cache.failures.tell(self.id(), since, told)
    }

    /// Something of the file could not be written.
    pub(in crate::data) fn add_failure(&self, what: Unwritten) {
        self.cache.failures.add(self.id(), what);
        // Who deletes the file says so first, then takes what there is of it.
        if self.account.is_dead() {
            self.cache.failures.deleted(self.id());
        }
    }

    /// Which content is beneath.
    pub(in crate::data) fn version(&self) -> Version {
        let extents = self.inode.extents_version();
        Version(extents, self.state.read().finishes)
    }

    /// How far from the start of a range what was fetched beneath it is what the file holds.
    /// `version` is from before the extents were looked at.
    pub(in crate::data) fn settled(&self, version: Version, range: Range<u64>) -> u64 {
        // What was finished after this look shows in the version.
        let unfinished = self.unfinished_from(range.start).unwrap_or(range.end);
        match self.version() == version {
            true => unfinished.clamp(range.start, range.end),
            false => range.start,
        }
    }

    /// The most blocks that one read may bring.
    pub(in crate::data) fn ahead_max(&self) -> u64 {
        self.cache.ahead_max
    }

    /// Keeps the bound of memory. No lock of a file in memory is held.
    pub(in crate::data) fn shrink(&self) {
        self.cache.shrink();
    }

    // What is here.

    /// Valid bytes from an offset on, as far as they are in one block; also beyond the size.
    pub(crate) fn held(&self, offset: u64) -> Option<Slice> {
        let (sector, skip) = (offset / SECTOR as u64, to_usize(offset % SECTOR as u64));
        let (buffer, range) = self.state.read().blocks.slice(sector)?.into_parts();
        Some(Slice::new(buffer, range.start + skip..range.end))
    }

    /// Copies valid bytes from an offset on, as far as they are in one block: how many; also beyond
    /// the size. What is copied under the lock needs no count of who holds it, and makes no writer
    /// take another buffer.
    pub(in crate::data) fn copy_out(&self, offset: u64, target: &mut [u8]) -> usize {
        self.state.read().blocks.copy_out(offset, target)
    }

    /// What is here of a range of sectors, where it starts, and which sectors are not: of one
    /// moment.
    pub(in crate::data) fn look(
        &self,
        sectors: Range<u64>,
    ) -> (Vec<(u64, Slice)>, Vec<Range<u64>>) {
        let (mut held, mut at) = (Vec::new(), sectors.start);
        let blocks = &self.state.read().blocks;
        let missing = blocks.missing(sectors.clone());
        let mut gaps = missing.iter();
        while at < sectors.end {
            let Some(slice) = blocks.slice(at) else {
                at = gaps.next().expect("it is here or missing").end;
                continue;
            };
            let start = at;
            at += (slice.len() / SECTOR) as u64;
            held.push((start * SECTOR as u64, slice));
        }
        (held, missing)
    }

    /// The sector where the first byte is that is unfinished at or after the sector of `offset`.
    pub(crate) fn unfinished_from(&self, offset: u64) -> Option<u64> {
        self.unfinished(offset, u64::MAX, 1).first().map(|range| range.start)
    }

    /// The runs of unfinished sectors that touch a range: clipped to it, ascending, at most `max`.
    pub(crate) fn unfinished(&self, start: u64, end: u64, max: usize) -> Vec<Range<u64>> {
        let runs = self.state.read().blocks.unfinished(sectors(start, end), max);
        let size = SECTOR as u64;
        let clip =
            |run: Range<u64>| (run.start * size).max(start)..run.end.saturating_mul(size).min(end);
        runs.into_iter().map(clip).collect()
    }

    /// What a write would newly dirty: the sectors, and at most so many runs.
    pub(crate) fn new_dirty(&self, start: u64, end: u64) -> Delta {
        self.state.read().blocks.new_dirty(sectors(start, end))
    }

    // Filling and writing: see `load` and `change`.

    /// Puts sectors in that are as beneath. The caller holds the range.
    pub(in crate::data) fn fill(&self, sector: u64, buffer: &Arc<Buffer>) {
        self.change(|state| state.blocks.fill(sector, buffer));
    }

    /// Puts sectors in that are zeros beneath. The caller holds the range.
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

    /// Writes at most a block, if nothing has to be brought for that: sectors that are written in
    /// part are valid.
    pub(in crate::data) fn copy_over(&self, offset: u64, bytes: &[u8]) -> Option<Delta> {
        let (block, sector) = (BLOCK as u64, SECTOR as u64);
        let end = offset + bytes.len() as u64;
        if offset / block != end.saturating_sub(1) / block {
            return None;
        }
        let mut partial = [offset, end].into_iter().filter(|at| !at.is_multiple_of(sector));
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

    /// The file is to end at `size`: drops what is behind, and makes zeros of the rest of the last
    /// sector where that is here, which does not make it dirty. The caller holds the range from
    /// that sector on exclusively, and `writeback`.
    pub(crate) fn truncate(&self, size: u64) -> Delta {
        self.change(|state| {
            state.finishes += 1;
            state.blocks.zero_tail(size);
            state.blocks.discard(size.div_ceil(SECTOR as u64)..sectors(0, u64::MAX).end)
        })
    }

    // Writing back. The caller holds `writeback`.

    /// Takes dirty sectors of a range that are not already being written, about `max` bytes at
    /// most: they are being written now. Runs are maximal, but for the length of an extent. The
    /// file stands behind others from now on; what is left of it is as old as it was.
    pub(crate) fn take_dirty(&self, range: Range<u64>, max: u64) -> (DirtyRuns, Delta) {
        let sectors = sectors(range.start, range.end);
        self.change_listed(CacheListing::Anew, |state| state.blocks.take_dirty(sectors, max))
    }

    /// What was being written in a range is beneath now.
    pub(crate) fn written(&self, start: u64, end: u64) {
        self.change(|state| {
            state.finishes += 1;
            state.blocks.written(sectors(start, end));
        });
    }

    /// What was being written in a range could not be: it is gone, unless it was written to again.
    pub(crate) fn failed(&self, start: u64, end: u64) {
        self.change(|state| {
            state.finishes += 1;
            state.blocks.failed(sectors(start, end));
        });
    }

    // Memory.

    /// Drops what is not unfinished.
    pub(crate) fn drop_clean(&self) {
        self.change(|state| state.blocks.drop_clean());
    }

    /// Drops the block with this ticket, if nobody needs it.
    pub(in crate::data) fn evict(&self, first: u64, ticket: u64) -> Evicted {
        self.change(|state| state.blocks.evict(first, ticket))
    }

    /// Changes the blocks, and tells the cache what they take now.
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
            self.inode.set_unfinished(after.unfinished * SECTOR as u64);
        }
        let newcomers = state.blocks.take_newcomers();
        if !newcomers.is_empty() {
            self.cache.enlist(&self.arc(), newcomers);
        }
        result
    }

    /// Keeps the file among those that are unfinished while it is, by the time since when some of
    /// it is dirty. It stands in its new place before it leaves the old one: who looks for what
    /// is unfinished meets it at any moment.
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

impl Drop for FilePages {
    fn drop(&mut self) {
        self.cache.removed(self.inode.id(), &self.me);
    }
}

/// What a file takes, with all that goes with its first block.
fn with_contents(usage: Usage) -> Usage {
    let own = if usage.blocks > 0 { CONTENTS_BYTES } else { 0 };
    Usage { bytes: usage.bytes + own, ..usage }
}

/// The sectors that a range of bytes touches.
pub(in crate::data) fn sectors(start: u64, end: u64) -> Range<u64> {
    start / SECTOR as u64..end.div_ceil(SECTOR as u64)
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).expect("within a sector")
}
