//! Checksums that are not in their tree yet.
//!
//! 1. They are those of the running transaction. Those that are being merged into the tree stay
//!    visible until they are there.
//! 2. If a sector is added twice, the later checksum counts.
//! 3. No call does I/O, except [`PendingChecksums::merge`]: the rest may be called with a handle,
//!    and with locks of files held.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;

use userbtrfs_format::{Logical, SECTOR_SIZE};
use userbtrfs_sync::{Arc, Class, Mutex, RwLock};

use super::form::{index, span};
use super::insert::insert;
use crate::editor::Editor;
use crate::error::Result;
use crate::units::SECTOR;

/// Bytes of checksums above which a merge is requested: those of 1 GiB of data, at 4 bytes each.
const WANTED_MERGE: usize = 1 << 20;

/// Checksums that are not in their tree yet.
pub(crate) struct PendingChecksums {
    /// The bytes of one checksum.
    size: usize,
    state: RwLock<State>,
    /// Held by the one merge at a time.
    merge: Mutex<()>,
}

#[derive(Default)]
struct State {
    running: ChecksumRuns,
    merging: Arc<ChecksumRuns>,
}

impl PendingChecksums {
    /// Returns an empty set, of checksums of `size` bytes each.
    pub(crate) fn new(size: usize) -> Self {
        let state = RwLock::new(Class::DelayedRefs, State::default());
        Self { size, state, merge: Mutex::new(Class::PendingMerge, ()) }
    }

    /// Adds the checksums of consecutive sectors; returns true if a merge should be requested.
    pub(crate) fn add(&self, logical: Logical, stored: &[u8]) -> bool {
        assert!(stored.len().is_multiple_of(self.size), "whole checksums are added");
        assert!(logical.is_aligned(SECTOR_SIZE), "checksums are those of whole sectors");
        let mut state = self.state.write();
        state.running.insert(logical.0, stored, self.size);
        state.running.bytes > WANTED_MERGE
    }

    /// Calls `see` with what there is of `sectors` sectors from `logical` on: the index of the
    /// sector, and its checksum. If a sector is visited twice, the later checksum counts.
    pub(crate) fn visit(&self, logical: Logical, sectors: u64, mut see: impl FnMut(u64, &[u8])) {
        let range = logical.0..logical.0.saturating_add(sectors.saturating_mul(SECTOR));
        let state = self.state.read();
        for runs in [&*state.merging, &state.running] {
            runs.visit(&range, self.size, &mut see);
        }
    }

    /// Drops the pending checksums of a range.
    pub(crate) fn forget(&self, range: &Range<u64>) {
        self.state.write().running.cut(range, self.size);
    }

    /// Returns the number of pending bytes.
    pub(crate) fn bytes(&self) -> usize {
        let state = self.state.read();
        state.running.bytes + state.merging.bytes
    }

    /// Prevents merges until the guard is dropped; `None` during a merge, when items of the tree
    /// may overlap.
    pub(crate) fn pause(&self) -> Option<impl Sized + '_> {
        self.merge.try_lock()
    }

    /// Merges all pending checksums into the tree.
    pub(crate) fn merge(&self, editor: &Editor<'_>) -> Result<()> {
        let _alone = self.merge.lock();
        let Some(runs) = self.state.write().begin_merge() else { return Ok(()) };
        insert(editor, &runs.by_start)?;
        self.state.write().merging = Arc::default();
        Ok(())
    }
}

impl State {
    /// Starts to merge the pending checksums; `None` after a merge that failed, which ends all
    /// writing and leaves its checksums visible.
    fn begin_merge(&mut self) -> Option<Arc<ChecksumRuns>> {
        if self.merging.bytes > 0 {
            return None;
        }
        self.merging = Arc::new(mem::take(&mut self.running));
        Some(Arc::clone(&self.merging))
    }
}

/// Checksums of runs of sectors, which do not overlap.
#[derive(Default)]
struct ChecksumRuns {
    by_start: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl ChecksumRuns {
    /// Adds a run, joined with its neighbours.
    fn insert(&mut self, start: u64, stored: &[u8], size: usize) {
        let end = start + span(stored.len(), size);
        self.cut(&(start..end), size);
        self.bytes += stored.len();
        let next = self.by_start.remove(&end).unwrap_or_default();
        let before = self.by_start.range_mut(..start).next_back();
        let before = before.filter(|(at, run)| **at + span(run.len(), size) == start);
        let run = match before {
            Some((_, run)) => run,
            None => self.by_start.entry(start).or_default(),
        };
        run.extend_from_slice(stored);
        run.extend_from_slice(&next);
    }

    /// Removes the checksums of a range.
    fn cut(&mut self, range: &Range<u64>, size: usize) {
        let starts: Vec<_> = self.over(range, size).map(|(start, _)| start).collect();
        for start in starts {
            let mut run = self.by_start.remove(&start).expect("just found");
            let end = start + span(run.len(), size);
            self.bytes -= index(range.end.min(end) - range.start.max(start), size);
            if end > range.end {
                self.by_start.insert(range.end, run.split_off(index(range.end - start, size)));
            }
            if start < range.start {
                run.truncate(index(range.start - start, size));
                self.by_start.insert(start, run);
            }
        }
    }

    fn visit(&self, range: &Range<u64>, size: usize, see: &mut impl FnMut(u64, &[u8])) {
        for (start, run) in self.over(range, size) {
            let first = start.max(range.start);
            let sectors = (first - range.start) / SECTOR..(range.end - range.start) / SECTOR;
            let checksums = run[index(first - start, size)..].chunks_exact(size);
            sectors.zip(checksums).for_each(|(sector, sum)| see(sector, sum));
        }
    }

    /// Returns the runs that overlap a range.
    fn over(&self, range: &Range<u64>, size: usize) -> impl Iterator<Item = (u64, &[u8])> {
        let start = range.start;
        let runs = self.by_start.range(..range.end).rev();
        let reaching = move |(at, run): &(&u64, &Vec<u8>)| **at + span(run.len(), size) > start;
        runs.take_while(reaching).map(|(at, run)| (*at, &run[..]))
    }
}
