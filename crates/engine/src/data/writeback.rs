//! Writing dirty data back: of one file, of those that nobody else is busy with, of all.
//!
//! 1. Who holds the writeback lock of a file waits for no other one: more files are locked
//!    together only where that needs no waiting.
//! 2. What fails is told once to those who use its file; if nobody was, to who makes all durable.
//! 3. What is dirty of a deleted file is dropped.

use std::ops::Range;

use userbtrfs_sync::Arc;

use super::transfer::{Job, Origin, Transfer};
use super::writer::Writer;
use super::{Contents, SegmentKind, Segments};
use crate::error::{Error, Result, Unwritten};

/// The most files that are written together.
const FILES_MAX: usize = 64;

/// Files that somebody else is busy with.
type Busy = Vec<Arc<Contents>>;

impl Writer {
    /// Writes what is dirty of a file, and waits for it and for what is on its way; gives the
    /// first failure, which the file remembers, too.
    pub(crate) fn write_back(&self, contents: &Arc<Contents>) -> Result<()> {
        self.ledger.check()?;
        let written = {
            let _one = contents.writeback.lock();
            self.write_locked(&[contents])
        };
        self.purge_if_dead(contents);
        written
    }

    /// Writes what is dirty of files that nobody else is busy with; gives the others, and the
    /// first failure.
    pub(super) fn write_idle(&self, files: &[Arc<Contents>]) -> (Busy, Result<()>) {
        let (mut busy, mut result) = (Vec::new(), self.ledger.check().map_err(Error::from));
        for some in files.chunks(FILES_MAX) {
            let mut idle = Vec::new();
            let mut locked = Vec::new();
            for contents in some {
                match contents.writeback.try_lock() {
                    Some(guard) => {
                        idle.push(contents);
                        locked.push(guard);
                    }
                    None => busy.push(Arc::clone(contents)),
                }
            }
            if result.is_ok() {
                result = self.write_locked(&idle);
            }
            drop(locked);
            for contents in idle {
                self.purge_if_dead(contents);
            }
        }
        (busy, result)
    }

    /// Writes all that is dirty, and waits for what is on its way; gives the first failure.
    pub(super) fn write_back_all(&self) -> Result<()> {
        let files = self.cache.unfinished_files().into_iter().map(|file| file.contents);
        let (busy, mut result) = self.write_idle(&files.collect::<Vec<_>>());
        for contents in busy {
            result = result.and(self.write_back(&contents));
        }
        result
    }

    /// Writes files whose writeback locks are held.
    fn write_locked(&self, files: &[&Arc<Contents>]) -> Result<()> {
        let mut transfer = Transfer::new(self);
        let (mut runs, mut written) = (Vec::new(), Vec::new());
        for contents in files.iter().copied().filter(|contents| !contents.account.is_dead()) {
            // Who made something dirty has settled that before the range is free.
            let range = contents.range.lock_shared(0..u64::MAX);
            let (taken, delta) = contents.take_dirty(0..u64::MAX, u64::MAX);
            let reserved = contents.account.withdraw(delta, self.prices);
            drop(range);
            if !taken.is_empty() {
                let job = transfer.add(Job::new(contents, Origin::Memory, reserved));
                runs.extend(taken.into_iter().map(|run| (job, run)));
                written.push(contents);
            }
        }
        let mut result = Ok(());
        for (contents, failed) in written.into_iter().zip(transfer.run(runs)) {
            if let Some(failed) = failed.filter(is_missed) {
                self.fail(contents, failed.clone());
                result = result.and(Err(failed.into()));
            }
        }
        result
    }

    fn purge_if_dead(&self, contents: &Contents) {
        if contents.account.is_dead() {
            self.purge(contents);
        }
    }

    /// Writes what is dirty of a file, makes it durable, and tells what could not be written.
    pub(crate) fn sync(&self, contents: &Arc<Contents>) -> Result<()> {
        let written = self.write_back(contents);
        self.take_failure(contents)?;
        written?;
        Ok(self.ledger.commit()?)
    }

    /// Bytes that a file counts for what is beneath a range.
    pub(super) fn bytes_of(&self, contents: &Contents, range: Range<u64>) -> Result<u64> {
        let source = contents.beneath();
        let mut segments = Segments::new(self.nodes.forest(), &source, range.start, range.end)?;
        let mut bytes = 0;
        while let Some(segment) = segments.next()? {
            bytes += match &segment.kind {
                SegmentKind::Hole => 0,
                SegmentKind::Inline(data) => data.ram_bytes(),
                SegmentKind::Prealloc(_) | SegmentKind::Regular { .. } => {
                    segment.end - segment.start
                }
            };
        }
        Ok(bytes)
    }
}

/// Whether somebody misses what could not be written: not where the file was deleted meanwhile.
fn is_missed(failed: &Unwritten) -> bool {
    !matches!(*failed.why, Error::NoInode(_))
}
