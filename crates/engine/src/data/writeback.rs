//! Writeback of dirty data: of one file, of the files that are not under writeback, of all files.
//!
//! An fsync gets the batch while it is in flight, and logs its extents meanwhile: see `ordered`.
//!
//! 1. A thread that holds the writeback lock of a file never waits for that of another one: further
//!    files are locked only with `try_lock`.
//! 2. A write error is reported to the open files of its file, and to syncs of the filesystem: see
//!    `writeback_errors`.
//! 3. The dirty data of a deleted file is dropped.
//! 4. Unless a caller asks for it, the last, partial sector of an open file stays dirty while other
//!    data can be written instead: the file may be about to grow in that sector.

pub(in crate::data) mod batch;
pub(in crate::data) mod compress;
pub(crate) mod context;
pub(in crate::data) mod nocow;
pub(in crate::data) mod ordered;
pub(in crate::data) mod repair;
pub(in crate::data) mod worker;
pub(in crate::data) mod write_extent;

use std::sync::Weak;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use userbtrfs_transaction::{FlushScope, Handle, Reservation, TransactionHooks};

use crate::data::cache::dirty::DirtyRuns;
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::page_cache::UnfinishedFile;
use crate::data::cache::reservation::DelallocReserved;
use crate::data::writeback::batch::{FileJob, Origin, WritebackBatch, record_failures};
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::ordered::OrderedExtents;
use crate::error::{Error, Result};
use crate::units::{SECTOR, sector_start};

/// The most files that are written in one batch.
const FILES_MAX: usize = 64;

/// The most files that are written between two checks for excess dirty data.
const FILES_AT_ONCE: usize = 64;

/// Files that another thread is writing back.
type UnderWriteback = Vec<Arc<FilePages>>;

/// The treatment of the last sector of a file if the file fills only a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EofBlock {
    /// It is written.
    Written,
    /// It stays dirty, as rule 4 of the module says.
    Left,
}

/// The dirty runs taken from a file to be written, and the space reserved for them.
struct Taken<'a> {
    pages: &'a Arc<FilePages>,
    runs: DirtyRuns,
    reserved: DelallocReserved,
    /// The size of the file when the runs were taken.
    size: u64,
}

/// The runs taken from several files, usually from one.
type TakenAll<'a> = SmallVec<[Taken<'a>; 1]>;

/// The writeback of a filesystem.
pub(crate) struct Writeback {
    context: Arc<WriteContext>,
    /// Counts waits for a file under writeback.
    turns: AtomicUsize,
}

impl Writeback {
    /// Returns the writeback of a filesystem.
    pub(in crate::data) fn new(context: Arc<WriteContext>) -> Self {
        Self { context, turns: AtomicUsize::new(0) }
    }

    /// Writes the dirty data of a file, and waits for it and for data in flight. Returns the first
    /// failure, which is also recorded for the file.
    pub(crate) fn write_back(&self, pages: &Arc<FilePages>) -> Result<()> {
        self.context.transactions.check()?;
        let done = {
            let _one = pages.writeback.lock();
            self.write_locked(&[pages], EofBlock::Written)
        };
        self.context.purge_if_dead(pages);
        done
    }

    /// Writes the dirty data of a file, and waits for it. The caller holds the writeback lock, and
    /// all of the range, so that no data is dirty afterwards.
    pub(in crate::data) fn write_locked_range(&self, pages: &Arc<FilePages>) -> Result<()> {
        let (runs, delta) = pages.take_dirty(0..u64::MAX, u64::MAX);
        if runs.is_empty() {
            return Ok(());
        }
        let reserved = pages.account.withdraw(delta, self.context.costs);
        let (transfer, files) =
            self.send(smallvec![Taken { pages, runs, reserved, size: pages.size() }]);
        record_failures(files, transfer.arrive(None))
    }

    /// Starts to write the dirty data of a file, after waiting for data in flight.
    pub(crate) fn submit<'a>(&'a self, pages: &'a Arc<FilePages>) -> Result<OrderedExtents<'a>> {
        self.context.transactions.check()?;
        let one = pages.writeback.lock();
        let taken = self.take(&[pages], EofBlock::Written);
        let size = taken.first().map_or(0, |taken| taken.size);
        let (transfer, _) = self.send(taken);
        Ok(OrderedExtents::new(&self.context, pages, size, transfer, one))
    }

    /// Writes the dirty data of the files that are not under writeback, continuing after a failure.
    /// Returns the other files, and the first failure.
    fn write_idle(&self, files: &[Arc<FilePages>], tail: EofBlock) -> (UnderWriteback, Result<()>) {
        let mut busy = Vec::new();
        let mut result = Ok(());
        for some in files.chunks(FILES_MAX) {
            let mut idle = Vec::new();
            let mut locked = Vec::new();
            for pages in some {
                match pages.writeback.try_lock() {
                    Some(guard) => {
                        idle.push(pages);
                        locked.push(guard);
                    }
                    None => busy.push(Arc::clone(pages)),
                }
            }
            let checked = self.context.transactions.check().map_err(Error::from);
            result = result.and(checked.and_then(|()| self.write_locked(&idle, tail)));
            drop(locked);
            for pages in idle {
                self.context.purge_if_dead(pages);
            }
        }
        (busy, result)
    }

    /// Writes all dirty data, and waits for data in flight; returns the first failure.
    pub(in crate::data) fn write_back_all(&self) -> Result<()> {
        let files = self.context.cache.unfinished_files().into_iter().map(|file| file.pages);
        let files: Vec<_> = files.collect();
        let (busy, mut result) = self.write_idle(&files, EofBlock::Written);
        for pages in busy {
            result = result.and(self.write_back(&pages));
        }
        result
    }

    /// Writes all of the files that are dirty for longer than `age`, then others while there is
    /// excess dirty data; first those from which nothing was taken for the longest time. Skips
    /// files that are under writeback. Failures are recorded for the users of the files.
    pub(in crate::data) fn write_due(&self, age: Option<Duration>) {
        let is_old = |file: &UnfinishedFile| age.is_some_and(|age| file.since.elapsed() >= age);
        let (old, others): (Vec<_>, Vec<_>) =
            self.context.cache.unfinished_files().into_iter().partition(is_old);
        self.write_while(|| true, old, EofBlock::Written);
        self.write_while(|| self.context.is_pressed(), others, EofBlock::Left);
    }

    fn write_while(&self, wanted: impl Fn() -> bool, files: Vec<UnfinishedFile>, tail: EofBlock) {
        let mut files = files.into_iter().map(|file| file.pages).peekable();
        while files.peek().is_some() && wanted() && self.context.transactions.check().is_ok() {
            let some: Vec<_> = files.by_ref().take(FILES_AT_ONCE).collect();
            let _recorded = self.write_idle(&some, tail);
        }
    }

    /// Writes the files from which nothing was taken for the longest time.
    pub(in crate::data) fn write_oldest(&self) {
        let files = self.context.cache.oldest_unfinished(FILES_AT_ONCE).into_iter();
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

    /// Writes files whose writeback locks are held.
    fn write_locked(&self, files: &[&Arc<FilePages>], tail: EofBlock) -> Result<()> {
        let mut taken = self.take(files, tail);
        if taken.is_empty() && tail == EofBlock::Left && self.context.is_pressed() {
            taken = self.take(files, EofBlock::Written);
        }
        let (transfer, files) = self.send(taken);
        record_failures(files, transfer.arrive(None))
    }

    /// Starts to write the runs that were taken; returns their files.
    fn send<'a>(
        &'a self,
        taken: TakenAll<'a>,
    ) -> (WritebackBatch<'a>, SmallVec<[&'a Arc<FilePages>; 1]>) {
        let mut transfer = WritebackBatch::new(&self.context);
        let mut runs = SmallVec::<[_; 1]>::new();
        let mut files = SmallVec::new();
        for Taken { pages, runs: more, reserved, size } in taken {
            let job = transfer.add(FileJob::new(pages, Origin::Memory { size }, reserved));
            runs.extend(more.into_iter().map(|run| (job, run)));
            files.push(pages);
        }
        transfer.send(runs);
        (transfer, files)
    }

    /// Takes the dirty runs of the files that have some.
    fn take<'a>(&self, files: &[&'a Arc<FilePages>], tail: EofBlock) -> TakenAll<'a> {
        let alive = files.iter().copied().filter(|pages| !pages.account.is_dead());
        alive.map(|pages| self.take_of(pages, tail)).filter(|t| !t.runs.is_empty()).collect()
    }

    fn take_of<'a>(&self, pages: &'a Arc<FilePages>, tail: EofBlock) -> Taken<'a> {
        // A writer settles the reservation of what it dirtied before it unlocks the range.
        let _range = pages.range.lock_shared(0..u64::MAX);
        let (end, cut) = match tail {
            EofBlock::Written => (u64::MAX, None),
            EofBlock::Left => self.before_tail(pages),
        };
        let (runs, delta) = pages.take_dirty(0..end, u64::MAX);
        let mut reserved = pages.account.withdraw(delta, self.context.costs);
        reserved.merge(DelallocReserved { data: None, metadata: cut });
        Taken { pages, runs, reserved, size: pages.size() }
    }

    /// Returns the start of the last sector if the file is open and fills only a part of it, with
    /// space for the items of a run that is cut there. Returns `u64::MAX` otherwise, or if that
    /// space is not available at once.
    fn before_tail(&self, pages: &FilePages) -> (u64, Option<Reservation>) {
        let size = pages.size();
        let grows = !size.is_multiple_of(SECTOR) && pages.inode().is_open();
        let cut = || self.context.transactions.space().reserve(self.context.costs.of_a_cut()).ok();
        match grows.then(cut).flatten() {
            Some(cut) => (sector_start(size), Some(cut)),
            None => (u64::MAX, None),
        }
    }
}

/// Writes data back when the transaction manager is short of space; does not keep the filesystem
/// open.
pub(crate) struct WritebackHandle(pub(crate) Weak<Writeback>);

impl TransactionHooks for WritebackHandle {
    fn is_clean(&self) -> bool {
        // Dirty data is in no transaction yet.
        true
    }

    fn merge(&self, _handle: &Handle<'_>, _what: FlushScope) -> userbtrfs_transaction::Result<()> {
        Ok(())
    }

    fn write_back(&self) -> userbtrfs_transaction::Result<()> {
        if let Some(writeback) = self.0.upgrade() {
            // Failures are recorded for the users of the files.
            let _failed = writeback.write_back_all();
        }
        Ok(())
    }

    fn aborted(&self) {}
}
