//! The context of all changes of file data in a filesystem that is open for writing.
//!
//! The locks of a file, in their order, and what each protects:
//!
//! 1. its operation lock: the size, against other changes of it;
//! 2. its writeback lock: the file on disk, that is its extents, pending or in the tree. A thread
//!    that adds extents or overwrites them in place holds it, over the I/O;
//! 3. its range lock: the page cache, and so what readers find.
//!
//! Space is reserved before the second is taken: a reservation may write other files back, run
//! delayed items and commit.

use std::sync::Weak;

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

/// The largest size of a file: the largest signed offset.
pub(in crate::data) const SIZE_MAX: u64 = i64::MAX as u64;

/// Workers begin to write when one part in `EARLY` of the bound is unfinished.
const EARLY: u64 = 4;

/// The most files that a writer over the bound writes before it checks again.
const FILES_AT_ONCE: usize = 64;

/// The limits of writeback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// The most bytes of data in memory that may be dirty or in flight.
    pub(crate) unfinished_max: u64,
    /// The age in seconds at which data is written back; 0 for no limit.
    pub(crate) age_seconds: u64,
}

/// The context of all changes of file data.
pub(crate) struct WriteContext {
    pub(in crate::data) cache: Arc<PageCache>,
    pub(in crate::data) nodes: Arc<Inodes>,
    pub(in crate::data) transactions: Arc<TransactionManager>,
    pub(in crate::data) costs: DelallocCosts,
    options: WriteOptions,
    worker: Worker,
    throttle: DirtyThrottle,
    /// Counts waits for a file under writeback.
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

    /// Returns the most bytes of data in memory that may be unfinished.
    pub(in crate::data) fn unfinished_max(&self) -> u64 {
        self.options.unfinished_max
    }

    /// Writes all data, to make it durable; returns a failure that was not reported yet.
    pub(crate) fn settle(&self) -> Result<()> {
        let written = self.write_back_all();
        let told = self.cache.failures().tell_of_all();
        written.and(told)
    }

    /// Stops the background threads after their present work.
    pub(crate) fn stop(&self) {
        self.worker.stop();
    }

    /// Waits until `bytes` more may become dirty; the caller helps to write data back. The caller
    /// holds no lock but operation locks.
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

    /// Writes the files from which nothing was taken for the longest time.
    fn write_oldest(&self) {
        let files = self.cache.oldest_unfinished(FILES_AT_ONCE).into_iter();
        let files: Vec<_> = files.map(|file| file.pages).collect();
        // Failures are recorded for the users of the files.
        let (busy, _failed) = self.write_idle(&files, EofBlock::Left);
        // If all are under writeback, wait for one, which is soon done; threads wait for different
        // ones.
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        if let Some(one) = turn.checked_rem(busy.len()).map(|turn| &busy[turn]) {
            drop(one.writeback.lock());
        }
    }

    /// Returns true if there is so much unfinished data that it is written before it is old.
    pub(in crate::data) fn is_pressed(&self) -> bool {
        self.waiting_bytes() > self.options.unfinished_max / EARLY
    }

    /// Returns the bytes of unfinished data; more if the memory that it pins is nearer to its own
    /// bound.
    fn waiting_bytes(&self) -> u64 {
        let by_memory = u128::from(self.cache.pinned_bytes()) * u128::from(self.unfinished_max())
            / u128::from(self.cache.bytes_max().max(1));
        self.cache.unfinished_bytes().max(u64::try_from(by_memory).unwrap_or(u64::MAX))
    }

    /// Reserves `bytes` bytes of data. The caller holds no lock but operation locks.
    pub(in crate::data) fn reserve_bytes(&self, bytes: u64) -> Result<Option<Reservation>> {
        Ok(self.reserve_need(SpaceNeeded { data: bytes, items: 0 })?.data)
    }

    /// Reserves what is needed before `delta` more of a file becomes dirty. The caller holds no
    /// lock but the file's operation lock.
    pub(in crate::data) fn reserve(
        &self,
        pages: &FilePages,
        delta: Delta,
    ) -> Result<DelallocReserved> {
        self.reserve_need(pages.account.more(delta, self.costs))
    }

    /// Reserves space. The caller holds no lock but operation locks.
    pub(in crate::data) fn reserve_need(&self, need: SpaceNeeded) -> Result<DelallocReserved> {
        let SpaceNeeded { data, items } = need;
        let metadata = (items > 0).then(|| self.nodes.reserve(items)).transpose()?;
        let data = (data > 0).then(|| self.reserve_data(data)).transpose()?;
        Ok(DelallocReserved { data, metadata })
    }

    fn reserve_data(&self, bytes: u64) -> Result<Reservation> {
        match self.transactions.reserve_data(bytes) {
            // Writing dirty data frees the extents that it replaces.
            Err(userbtrfs_transaction::Error::NoSpace) if self.cache.unfinished_bytes() > 0 => {
                let _failed = self.write_back_all();
                Ok(self.transactions.reserve_data(bytes)?)
            }
            reserved => Ok(reserved?),
        }
    }

    /// Drops the cached data of a deleted file. If it is under writeback, the thread that writes it
    /// does that afterwards.
    pub(in crate::data) fn purge(&self, pages: &FilePages) {
        let Some(_idle) = pages.writeback.try_lock() else { return };
        let dropped = pages.discard(0, u64::MAX);
        pages.account.settle(DelallocReserved::default(), dropped, self.costs);
        self.cache.forget(pages.id());
    }
}

impl FilePages {
    /// Returns the file as it is on disk, as far as its extents go.
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

/// Writes data back when the transaction manager is short of space; does not keep the filesystem
/// open.
pub(crate) struct WritebackHandle(pub(crate) Weak<WriteContext>);

impl TransactionHooks for WritebackHandle {
    fn is_clean(&self) -> bool {
        // Dirty data is in no transaction yet.
        true
    }

    fn merge(&self, _handle: &Handle<'_>, _what: FlushScope) -> userbtrfs_transaction::Result<()> {
        Ok(())
    }

    fn write_back(&self) -> userbtrfs_transaction::Result<()> {
        if let Some(writer) = self.0.upgrade() {
            // Failures are recorded for the users of the files.
            let _failed = writer.write_back_all();
        }
        Ok(())
    }

    fn aborted(&self) {}
}

/// Returns the size of a file, as callers see it.
pub(in crate::data) fn size_of(pages: &FilePages) -> u64 {
    pages.inode().item().size
}

/// Checks that a range ends within the largest file size; returns its end.
pub(in crate::data) fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooLarge)
}

/// Advances the size on disk to what the file has data for: up to the first byte that is not yet in
/// an extent, and all that has `landed`. Landed data may be dirty again, if it was written to while
/// it was in flight; but a sync may have reported the landed data as durable.
pub(in crate::data) fn advance_size(change: &mut FileChange<'_>, pages: &FilePages, landed: u64) {
    let (known, size) = (change.disk_size(), change.size());
    if known < size {
        let first = pages.unfinished_from(known).unwrap_or(size);
        change.set_disk_size(first.max(landed).clamp(known, size));
    }
}
