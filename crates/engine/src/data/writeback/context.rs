//! What changes data of files in a filesystem that is open for writing.
//!
//! The locks of a file, in their order, and what each keeps:
//!
//! 1. its operation lock: its size, for those who change it;
//! 2. its writeback lock: what is beneath, that is its extents, pending or in the tree. Who puts
//!    extents or overwrites them in place holds it, over the I/O;
//! 3. its ranges: what is in memory, and so what readers find.
//!
//! Space is reserved before the second is taken: a reservation may write other files back, merge
//! and commit.

use std::sync::Weak;

use userbtrfs_format::SECTOR_SIZE;
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_transaction::{
    FlushScope, Handle, Reservation, TransactionHooks, TransactionManager,
};

use crate::data::ops::throttle::{DirtyPermit, DirtyThrottle};
use crate::data::writeback::EofBlock;
use crate::data::writeback::reservation::{DelallocCosts, DelallocReserved, SpaceNeeded};
use crate::data::writeback::worker::Worker;
use crate::data::{BackingExtents, Delta, FilePages, PageCache};
use crate::error::{Error, InodeId, Result};
use crate::inode::{FileChange, InodeEvents, Inodes};

/// Bytes in a sector.
pub(in crate::data) const SECTOR: u64 = SECTOR_SIZE as u64;

/// The largest size of a file: what a signed offset can name.
pub(in crate::data) const SIZE_MAX: u64 = i64::MAX as u64;

/// The part of the bound of unfinished data at which workers begin to write.
const EARLY: u64 = 4;

/// The most files that a writer over the bound writes before it looks again.
const FILES_AT_ONCE: usize = 64;

/// How data is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// Bytes of data in memory that may wait to be written, or be on their way.
    pub(crate) unfinished_max: u64,
    /// Seconds after which it is written though nobody asks; 0 for no limit.
    pub(crate) age_seconds: u64,
}

/// See the module's text.
pub(crate) struct WriteContext {
    pub(in crate::data) cache: Arc<PageCache>,
    pub(in crate::data) nodes: Arc<Inodes>,
    pub(in crate::data) transactions: Arc<TransactionManager>,
    pub(in crate::data) costs: DelallocCosts,
    options: WriteOptions,
    worker: Worker,
    throttle: DirtyThrottle,
    /// How often somebody waited for a file to be written.
    turns: AtomicUsize,
}

impl WriteContext {
    /// Returns the context of a filesystem, whose background writeback has started.
    ///
    /// # Errors
    /// [`Error::NoThread`] if no thread can be started.
    pub(crate) fn new(
        cache: Arc<PageCache>,
        nodes: Arc<Inodes>,
        transactions: Arc<TransactionManager>,
        options: WriteOptions,
    ) -> Result<Arc<Self>> {
        let geometry = transactions.volume().geometry();
        let costs = DelallocCosts {
            nodesize: geometry.nodesize,
            checksum: geometry.checksum_kind.size() as u64,
        };
        let worker = Worker::new();
        let (throttle, turns) = (DirtyThrottle::new(), AtomicUsize::new(0));
        let new = Self { cache, nodes, transactions, costs, options, worker, throttle, turns };
        let writer = Arc::new(new);
        let watch: Weak<dyn InodeEvents> = Arc::downgrade(&writer) as Weak<dyn InodeEvents>;
        writer.nodes.watch(watch);
        writer.worker.start(&writer, options.age_seconds).map_err(Error::NoThread)?;
        Ok(writer)
    }

    /// Bytes of data in memory that may be unfinished.
    pub(in crate::data) fn unfinished_max(&self) -> u64 {
        self.options.unfinished_max
    }

    /// Writes all data, to make it durable; gives a failure that nobody was told of.
    pub(crate) fn settle(&self) -> Result<()> {
        let written = self.write_back_all();
        let told = self.cache.failures().tell_of_all();
        written.and(told)
    }

    /// Ends the background work, after what it is doing.
    pub(crate) fn stop(&self) {
        self.worker.stop();
    }

    /// Waits until so many bytes more may become dirty; the caller writes, too. No lock is held but
    /// operation locks.
    pub(in crate::data) fn admit(&self, bytes: u64) -> Result<DirtyPermit<'_>> {
        if self.is_pressed() {
            self.worker.hurry();
        }
        let (max, unfinished) = (self.unfinished_max(), || self.waiting_bytes());
        loop {
            if let Some(admitted) = self.throttle.admit(bytes, max, unfinished) {
                return Ok(admitted);
            }
            self.transactions.check()?;
            match self.is_pressed() {
                true => self.write_oldest(),
                false => self.throttle.wait(bytes, max, unfinished),
            }
        }
    }

    /// Writes the files of which nothing was taken for the longest time.
    fn write_oldest(&self) {
        let files = self.cache.oldest_unfinished(FILES_AT_ONCE).into_iter();
        let files: Vec<_> = files.map(|file| file.pages).collect();
        // What fails is told to those who use the files.
        let (busy, _failed) = self.write_idle(&files, EofBlock::Left);
        // Where all are on their way, each is soon there; not all wait for the same one.
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        if let Some(one) = turn.checked_rem(busy.len()).map(|turn| &busy[turn]) {
            drop(one.writeback.lock());
        }
    }

    /// Whether so much is unfinished that it is written before it is old.
    pub(in crate::data) fn is_pressed(&self) -> bool {
        self.waiting_bytes() > self.options.unfinished_max / EARLY
    }

    /// The bytes of data that wait to be written; more where they keep so much memory besides that
    /// it comes nearer to its bound than they do to theirs.
    fn waiting_bytes(&self) -> u64 {
        let by_memory = u128::from(self.cache.pinned_bytes()) * u128::from(self.unfinished_max())
            / u128::from(self.cache.bytes_max().max(1));
        self.cache.unfinished_bytes().max(u64::try_from(by_memory).unwrap_or(u64::MAX))
    }

    /// Reserves room for so many bytes of data. No lock is held but operation locks.
    pub(in crate::data) fn reserve_bytes(&self, bytes: u64) -> Result<Option<Reservation>> {
        Ok(self.reserve_need(SpaceNeeded { data: bytes, items: 0 })?.data)
    }

    /// Reserves what is needed before so much more of a file becomes dirty. No lock is held but
    /// the file's operation lock.
    pub(in crate::data) fn reserve(
        &self,
        pages: &FilePages,
        delta: Delta,
    ) -> Result<DelallocReserved> {
        self.reserve_need(pages.account.more(delta, self.costs))
    }

    /// Reserves space. No lock is held but operation locks.
    pub(in crate::data) fn reserve_need(&self, need: SpaceNeeded) -> Result<DelallocReserved> {
        let SpaceNeeded { data, items } = need;
        let metadata = (items > 0).then(|| self.nodes.reserve(items)).transpose()?;
        let data = (data > 0).then(|| self.reserve_data(data)).transpose()?;
        Ok(DelallocReserved { data, metadata })
    }

    fn reserve_data(&self, bytes: u64) -> Result<Reservation> {
        match self.transactions.reserve_data(bytes) {
            // What dirty data takes the place of comes free once it is written.
            Err(userbtrfs_transaction::Error::NoSpace) if self.cache.unfinished_bytes() > 0 => {
                let _failed = self.write_back_all();
                Ok(self.transactions.reserve_data(bytes)?)
            }
            reserved => Ok(reserved?),
        }
    }

    /// Drops what is in memory of a deleted file, unless it is being written just now: then who
    /// writes it does that after.
    pub(in crate::data) fn purge(&self, pages: &FilePages) {
        let Some(_idle) = pages.writeback.try_lock() else { return };
        let dropped = pages.discard(0, u64::MAX);
        pages.account.settle(DelallocReserved::default(), dropped, self.costs);
        self.cache.forget(pages.id());
    }
}

impl FilePages {
    /// The file as it is beneath, as far as its extents go.
    pub(in crate::data) fn beneath(&self) -> BackingExtents {
        BackingExtents { size: u64::MAX, ..self.source() }
    }
}

impl Drop for WriteContext {
    fn drop(&mut self) {
        self.worker.stop();
    }
}

impl InodeEvents for WriteContext {
    fn gone(&self, id: InodeId) {
        if let Some(pages) = self.cache.get(id) {
            pages.account.die();
            self.purge(&pages);
        }
        self.cache.failures().deleted(id);
    }
}

/// What writes data back when the ledger is short of space; it does not keep the filesystem open.
pub(crate) struct WritebackHandle(pub(crate) Weak<WriteContext>);

impl TransactionHooks for WritebackHandle {
    fn is_clean(&self) -> bool {
        // What is dirty is in no transaction yet.
        true
    }

    fn merge(&self, _handle: &Handle<'_>, _what: FlushScope) -> userbtrfs_transaction::Result<()> {
        Ok(())
    }

    fn write_back(&self) -> userbtrfs_transaction::Result<()> {
        if let Some(writer) = self.0.upgrade() {
            // What fails is told to those who use the files.
            let _failed = writer.write_back_all();
        }
        Ok(())
    }

    fn aborted(&self) {}
}

/// The size of a file, as callers see it.
pub(in crate::data) fn size_of(pages: &FilePages) -> u64 {
    pages.inode().item().size
}

/// Where the sector begins in which an offset lies.
pub(in crate::data) fn sector_start(offset: u64) -> u64 {
    offset / SECTOR * SECTOR
}

/// Where the sectors end that hold what is before an offset.
pub(in crate::data) fn sector_end(offset: u64) -> u64 {
    offset.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX)
}

/// Checks that a range ends where a file may; gives its end.
pub(in crate::data) fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooLarge)
}

/// Lets the tree know as much of a file's size as it has data for: up to the first byte that is
/// not yet in an extent, and all that has `landed`. What landed may be unfinished again, since it
/// was written again on its way; but who had it made durable was promised what there was.
pub(in crate::data) fn advance_size(change: &mut FileChange<'_>, pages: &FilePages, landed: u64) {
    let (known, size) = (change.disk_size(), change.size());
    if known < size {
        let first = pages.unfinished_from(known).unwrap_or(size);
        change.set_disk_size(first.max(landed).clamp(known, size));
    }
}
