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
pub(in crate::data) mod context;
pub(in crate::data) mod nocow;
pub(in crate::data) mod ordered;
pub(in crate::data) mod repair;
pub(in crate::data) mod reservation;
pub(in crate::data) mod worker;
pub(in crate::data) mod write_extent;

use std::ops::Range;

use smallvec::SmallVec;
use userbtrfs_sync::Arc;
use userbtrfs_transaction::Reservation;

use super::writeback::batch::{Failed, FileJob, Origin, WritebackBatch};
use super::writeback::context::{WriteContext, size_of};
use super::writeback::reservation::DelallocReserved;
use super::{DirtyRuns, ExtentMaps, FilePages, OrderedExtents};
use crate::error::{Error, Result, Unwritten};
use crate::units::{SECTOR, sector_start};

/// The most files that are written in one batch.
const FILES_MAX: usize = 64;

/// Files that another thread is writing back.
type UnderWriteback = Vec<Arc<FilePages>>;

/// The treatment of the last sector of a file if the file fills only a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EofBlock {
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

impl WriteContext {
    /// Writes the dirty data of a file, and waits for it and for data in flight. Returns the first
    /// failure, which is also recorded for the file.
    pub(crate) fn write_back(&self, pages: &Arc<FilePages>) -> Result<()> {
        self.transactions.check()?;
        let done = {
            let _one = pages.writeback.lock();
            self.write_locked(&[pages], EofBlock::Written)
        };
        self.purge_if_dead(pages);
        done
    }

    /// Starts to write the dirty data of a file, after waiting for data in flight.
    pub(crate) fn submit<'a>(&'a self, pages: &'a Arc<FilePages>) -> Result<OrderedExtents<'a>> {
        self.transactions.check()?;
        let one = pages.writeback.lock();
        let taken = self.take(&[pages], EofBlock::Written);
        let size = taken.first().map_or(0, |taken| taken.size);
        let (transfer, _) = self.send(taken);
        Ok(OrderedExtents::new(self, pages, size, transfer, one))
    }

    /// Writes the dirty data of the files that are not under writeback, continuing after a failure.
    /// Returns the other files, and the first failure.
    pub(super) fn write_idle(
        &self,
        files: &[Arc<FilePages>],
        tail: EofBlock,
    ) -> (UnderWriteback, Result<()>) {
        let (mut busy, mut result) = (Vec::new(), Ok(()));
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
            let checked = self.transactions.check().map_err(Error::from);
            result = result.and(checked.and_then(|()| self.write_locked(&idle, tail)));
            drop(locked);
            for pages in idle {
                self.purge_if_dead(pages);
            }
        }
        (busy, result)
    }

    /// Writes all dirty data, and waits for data in flight; returns the first failure.
    pub(super) fn write_back_all(&self) -> Result<()> {
        let files = self.cache.unfinished_files().into_iter().map(|file| file.pages);
        let files: Vec<_> = files.collect();
        let (busy, mut result) = self.write_idle(&files, EofBlock::Written);
        for pages in busy {
            result = result.and(self.write_back(&pages));
        }
        result
    }

    /// Writes files whose writeback locks are held.
    fn write_locked(&self, files: &[&Arc<FilePages>], tail: EofBlock) -> Result<()> {
        let mut taken = self.take(files, tail);
        if taken.is_empty() && tail == EofBlock::Left && self.is_pressed() {
            taken = self.take(files, EofBlock::Written);
        }
        let (transfer, files) = self.send(taken);
        tell(files, transfer.arrive(None))
    }

    /// Starts to write the runs that were taken; returns their files.
    fn send<'a>(
        &'a self,
        taken: TakenAll<'a>,
    ) -> (WritebackBatch<'a>, SmallVec<[&'a Arc<FilePages>; 1]>) {
        let mut transfer = WritebackBatch::new(self);
        let (mut runs, mut files) = (SmallVec::<[_; 1]>::new(), SmallVec::new());
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
        let mut reserved = pages.account.withdraw(delta, self.costs);
        reserved.merge(DelallocReserved { data: None, metadata: cut });
        Taken { pages, runs, reserved, size: size_of(pages) }
    }

    /// Returns the start of the last sector if the file is open and fills only a part of it, with
    /// space for the items of a run that is cut there. Returns `u64::MAX` otherwise, or if that
    /// space is not available at once.
    fn before_tail(&self, pages: &FilePages) -> (u64, Option<Reservation>) {
        let size = size_of(pages);
        let grows = !size.is_multiple_of(SECTOR) && pages.inode().is_open();
        let cut = || self.transactions.space().reserve(self.costs.of_a_cut()).ok();
        match grows.then(cut).flatten() {
            Some(cut) => (sector_start(size), Some(cut)),
            None => (u64::MAX, None),
        }
    }

    pub(super) fn purge_if_dead(&self, pages: &FilePages) {
        if pages.account.is_dead() {
            self.purge(pages);
        }
    }

    /// Returns the bytes that the file counts for its extents on disk in a range.
    pub(super) fn bytes_of(&self, pages: &FilePages, range: Range<u64>) -> Result<u64> {
        let source = pages.beneath();
        let mut segments =
            ExtentMaps::new(self.nodes.tree_roots(), &source, range.start, range.end);
        let mut bytes = 0;
        while let Some(segment) = segments.next()? {
            bytes += segment.counted_bytes();
        }
        Ok(bytes)
    }
}

/// Records the failures for their files; returns the first one that matters.
pub(super) fn tell<'a>(
    files: impl IntoIterator<Item = &'a Arc<FilePages>>,
    failed: Failed,
) -> Result<()> {
    let mut result = Ok(());
    for (pages, failed) in files.into_iter().zip(failed) {
        if let Some(failed) = failed.filter(|failed| is_missed(pages, failed)) {
            pages.add_failure(failed.clone());
            result = result.and(Err(failed.into()));
        }
    }
    result
}

/// Returns true if a failed write matters, that is unless the file has been deleted.
fn is_missed(pages: &FilePages, failed: &Unwritten) -> bool {
    !pages.account.is_dead() && !matches!(*failed.why, Error::NoInode(_))
}
