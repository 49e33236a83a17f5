//! Rewrites the small extents of a file together, so that it has fewer (Linux:
//! BTRFS_IOC_DEFRAG_RANGE).
//!
//! 1. Content, size and times stay. Dirty data is written back first; what becomes dirty meanwhile
//!    is skipped, since it gets new extents anyway.
//! 2. An extent is rewritten if it is smaller than the threshold and can become one with the extent
//!    before or after it. Inline data is written again, as inline data if that is possible. If the
//!    compression is to change, all extents are rewritten. Holes and preallocated extents stay.
//! 3. The new extents belong to this file alone: an extent that it shared stays that of the others.
//!    Data is never overwritten in place.
//! 4. The file is rewritten in batches. Their data counts as unfinished, and so is bounded. Each
//!    batch is on the device before the next one begins; if it fails, the file keeps its extents.
//! 5. During a batch the writeback lock is held, so that no other thread changes the extents. A
//!    range is locked only while its data is read.

use std::ops::Range;

use userbtrfs_device::Buffer;
use userbtrfs_sync::Arc;

use crate::compression::Recompress;
use crate::data::cache::dirty::{Delta, DirtyRun};
use crate::data::cache::file_pages::FilePages;
use crate::data::ops::file_ops::FileOps;
use crate::data::read::get_extent::ExtentMaps;
use crate::data::units::{BLOCK, EXTENT_MAX};
use crate::data::writeback::batch::{FileJob, Origin, WritebackBatch};
use crate::error::{Error, Result};
use crate::inode::{ExtentMap, ExtentMapKind};
use crate::units::{SECTOR, sector_end, sector_start, to_usize};

/// The threshold if none is given, as in Linux.
const THRESHOLD: u64 = 256 << 10;

/// The most bytes that are rewritten in one batch, and the largest extent that is made.
const BATCH_MAX: u64 = 32 << 20;
/// Nor are they more than one part in `PARTS` of the bound of unfinished data.
const PARTS: u64 = 2;

/// The most runs of a batch.
const RUNS_MAX: usize = 1024;

/// The bytes that are read at a time.
const WINDOW: u64 = 1 << 20;

/// The bytes of the largest compressed extent, before compression.
const COMPRESSED_MAX: u64 = userbtrfs_codec::MAX_CONTENT as u64;

/// A request to defragment a file. The default is all of the file, with the threshold of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defragment {
    /// The start of the range, in bytes.
    pub start: u64,
    /// The length of the range, in bytes.
    pub len: u64,
    /// The length from which on extents are large enough; 0 for that of Linux, 256 KiB.
    pub threshold: u64,
    /// The compression of the data that is rewritten. Unless it is [`Recompress::Usual`], extents
    /// of any length are rewritten.
    pub compression: Recompress,
}

impl Default for Defragment {
    fn default() -> Self {
        Self { start: 0, len: u64::MAX, threshold: 0, compression: Recompress::Usual }
    }
}

/// The rules by which extents are chosen.
#[derive(Clone, Copy)]
struct Rules {
    threshold: u64,
    /// The largest extent that can be made.
    extent_max: u64,
    recompresses: bool,
}

/// The most that a plan may contain.
#[derive(Clone, Copy)]
struct Budget {
    bytes: u64,
    runs: usize,
}

/// The ranges of a file that are rewritten in one batch.
struct Plan {
    /// Ascending ranges of whole sectors, which do not touch.
    runs: Vec<Range<u64>>,
    /// The bytes of all of them.
    bytes: u64,
    /// The offset up to which the file was looked at.
    end: u64,
}

impl FileOps {
    /// Rewrites the small extents of a file together; returns the number of bytes rewritten.
    pub(crate) fn defragment(&self, pages: &Arc<FilePages>, request: &Defragment) -> Result<u64> {
        self.context.transactions.check()?;
        let size = pages.size();
        if size == 0 {
            return Ok(0);
        }
        if request.start >= size {
            return Err(Error::Invalid("a start beyond the end"));
        }
        self.write_back(pages)?;
        let end = sector_end(request.start.saturating_add(request.len).min(size));
        let bytes = self.batch_max();
        let rules = Rules {
            threshold: if request.threshold == 0 { THRESHOLD } else { request.threshold },
            extent_max: bytes.min(EXTENT_MAX),
            recompresses: request.compression != Recompress::Usual,
        };
        let budget = Budget { bytes, runs: RUNS_MAX };
        let mut at = sector_start(request.start);
        let mut done = 0;
        while at < end {
            let plan = self.plan(pages, at..end, rules, budget)?;
            at = plan.end;
            if !plan.runs.is_empty() {
                done += self.rewrite(pages, &plan, rules, request.compression)?;
            }
        }
        Ok(done)
    }

    /// Returns the most bytes of a batch: a power of two.
    fn batch_max(&self) -> u64 {
        let share = (self.context.unfinished_max / PARTS).clamp(COMPRESSED_MAX, BATCH_MAX);
        1 << share.ilog2()
    }

    /// Finds the first extents of a range that are to be rewritten.
    fn plan(
        &self,
        pages: &FilePages,
        range: Range<u64>,
        rules: Rules,
        budget: Budget,
    ) -> Result<Plan> {
        let source = pages.backing_extents();
        // The extent after the range counts, too: the last one of the range may join it.
        let mut extents =
            ExtentMaps::new(self.context.tree_roots(), &source, range.start, u64::MAX);
        let size = pages.size();
        let mut plan = Plan { runs: Vec::new(), bytes: 0, end: range.end };
        let mut next = extents.next()?;
        while let Some(extent) = next.take().filter(|extent| extent.start < range.end) {
            next = extents.next()?;
            let follower = next.as_ref().filter(|next| next.start < size);
            if rules.rewrites(&extent, follower, plan.ends_at(extent.start))
                && !plan.add(extent.start..extent.end.min(range.end), budget)
            {
                break;
            }
        }
        Ok(plan)
    }

    /// Rewrites the extents of a plan that are still to be rewritten; returns their bytes.
    fn rewrite(
        &self,
        pages: &Arc<FilePages>,
        plan: &Plan,
        rules: Rules,
        compression: Recompress,
    ) -> Result<u64> {
        let budget = Budget { bytes: plan.bytes, runs: plan.runs.len() };
        let admitted = self.delalloc.admit(budget.bytes)?;
        let reserved = self.delalloc.reserve_need(self.context.costs.need(plan.delta()))?;
        let one = pages.writeback.lock();
        // The extents may have changed before they were locked.
        let plan = self.plan(pages, plan.runs[0].start..plan.end, rules, budget)?;
        let mut runs = Vec::new();
        let taken = plan.runs.into_iter().try_for_each(|run| self.take(pages, run, &mut runs));
        drop(admitted);
        if let Err(error) = taken {
            for DirtyRun { start, end, .. } in runs {
                pages.written(start, end);
            }
            return Err(error);
        }
        let bytes = runs.iter().map(DirtyRun::len).sum();
        let mut batch = WritebackBatch::new(&self.context);
        let job = batch.add(FileJob::new(pages, Origin::Rewritten(compression), reserved));
        let failed = batch.run(runs.into_iter().map(|run| (job, run))).pop().flatten();
        drop(one);
        self.context.purge_if_dead(pages);
        failed.map_or(Ok(bytes), |failed| Err(failed.into()))
    }

    /// Reads a range, and marks as being written what of it is not dirty. The caller holds the
    /// writeback lock.
    fn take(&self, pages: &FilePages, range: Range<u64>, runs: &mut Vec<DirtyRun>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + WINDOW);
            let _range = pages.range.lock_shared(at..end);
            let mut bytes = Buffer::unspecified(to_usize(end - at));
            pages.read_locked(self.context.tree_roots(), at, &mut bytes)?;
            for clean in clean_parts(pages, at..end) {
                let part = &bytes[to_usize(clean.start - at)..to_usize(clean.end - at)];
                take_clean(pages, clean.start, part, runs);
            }
            at = end;
        }
        Ok(())
    }
}

impl Rules {
    /// Returns true if an extent is to be rewritten. `follows` tells that the one before it is.
    fn rewrites(self, extent: &ExtentMap, next: Option<&ExtentMap>, follows: bool) -> bool {
        match extent.kind {
            ExtentMapKind::Hole | ExtentMapKind::Prealloc(_) => false,
            ExtentMapKind::Inline(_) => true,
            ExtentMapKind::Regular(..) if self.recompresses => true,
            ExtentMapKind::Regular(..) => {
                self.is_small(extent) && (follows || next.is_some_and(|next| self.is_small(next)))
            }
        }
    }

    /// Returns true for a written extent that can become part of a larger one.
    fn is_small(self, extent: &ExtentMap) -> bool {
        let extent_max = match extent.kind {
            ExtentMapKind::Regular(_, None) => self.extent_max,
            ExtentMapKind::Regular(_, Some(_)) => COMPRESSED_MAX,
            ExtentMapKind::Hole | ExtentMapKind::Inline(_) | ExtentMapKind::Prealloc(_) => 0,
        };
        extent.end - extent.start < self.threshold.min(extent_max)
    }
}

impl Plan {
    /// Returns true if the last range ends at this offset.
    fn ends_at(&self, at: u64) -> bool {
        self.runs.last().is_some_and(|run| run.end == at)
    }

    /// Adds an extent if it fits; if it is the first one, at least the start of it. Returns false
    /// if nothing may be added after it: then the plan ends here.
    fn add(&mut self, extent: Range<u64>, budget: Budget) -> bool {
        let left = budget.bytes - self.bytes;
        let is_full = !self.ends_at(extent.start) && self.runs.len() == budget.runs;
        let is_too_long = extent.end - extent.start > left;
        if is_full || (is_too_long && !self.runs.is_empty()) {
            self.end = extent.start;
            return false;
        }
        let end = extent.end.min(extent.start + left);
        match self.runs.last_mut() {
            Some(last) if last.end == extent.start => last.end = end,
            _ => self.runs.push(extent.start..end),
        }
        self.bytes += end - extent.start;
        if is_too_long {
            self.end = end;
        }
        !is_too_long
    }

    /// Returns the sectors and the runs, as if they were dirty.
    fn delta(&self) -> Delta {
        let sectors = i64::try_from(self.bytes / SECTOR).expect("of one batch");
        Delta { sectors, runs: i64::try_from(self.runs.len()).expect("of one batch") }
    }
}

/// Returns the parts of a range that are not dirty. The caller holds the range.
fn clean_parts(pages: &FilePages, range: Range<u64>) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut at = range.start;
    for dirty in pages.unfinished(range.start, range.end, usize::MAX) {
        parts.push(at..dirty.start);
        at = dirty.end;
    }
    parts.push(at..range.end);
    parts.retain(|part| !part.is_empty());
    parts
}

/// Marks sectors that hold these bytes on disk as being written, and adds them to the runs.
fn take_clean(pages: &FilePages, start: u64, bytes: &[u8], runs: &mut Vec<DirtyRun>) {
    let mut at = start;
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = (BLOCK - to_usize(at % BLOCK as u64)).min(rest.len());
        for run in pages.take_clean(at, &rest[..len]) {
            match runs.last_mut() {
                Some(last) if last.end == run.start && run.end - last.start <= EXTENT_MAX => {
                    last.append(run);
                }
                _ => runs.push(run),
            }
        }
        rest = &rest[len..];
        at += len as u64;
    }
}
