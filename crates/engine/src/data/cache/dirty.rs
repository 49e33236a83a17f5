//! What is dirty of a file: how much, and the runs of it that are written back.

use smallvec::SmallVec;
use userbtrfs_device::Slice;
use userbtrfs_sync::Arc;

use crate::data::cache::block::SECTOR;

/// The most bytes of a run that is written back: what an extent may have.
pub(in crate::data) const RUN_MAX: u64 = 128 << 20;

/// How many sectors, and maximal runs of them, are dirty; or by how much more than before. A run
/// that grows counts nothing, one in whose middle others are no longer dirty counts one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Sectors.
    pub(crate) sectors: i64,
    /// Runs.
    pub(crate) runs: i64,
}

/// Consecutive sectors that were dirty and are now being written, shared as they were then.
#[derive(Debug)]
pub(crate) struct DirtyRun {
    /// Where it starts in the file, in bytes: whole sectors.
    pub(crate) start: u64,
    /// Where it ends.
    pub(crate) end: u64,
    /// All of its bytes, in order.
    pub(crate) parts: SmallVec<[Slice; 1]>,
}

/// Runs of a file, mostly one.
pub(crate) type DirtyRuns = SmallVec<[DirtyRun; 1]>;

impl Delta {
    /// Both together.
    pub(in crate::data) fn plus(self, more: Self) -> Self {
        Self { sectors: self.sectors + more.sectors, runs: self.runs + more.runs }
    }

    /// What changed since then.
    pub(in crate::data) fn since(self, before: Self) -> Self {
        Self { sectors: self.sectors - before.sectors, runs: self.runs - before.runs }
    }
}

impl DirtyRun {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Cuts it at a sector of the file inside it, and gives what comes after.
    pub(crate) fn split_off(&mut self, at: u64) -> Self {
        assert!(self.start < at && at < self.end && at.is_multiple_of(SECTOR as u64));
        let mut from = self.start;
        let inside = |part: &Slice| {
            let end = from + part.len() as u64;
            let cut = end > at;
            from = if cut { from } else { end };
            cut
        };
        let first = self.parts.iter().position(inside).expect("parts cover the run");
        let mut parts: SmallVec<[Slice; 1]> = self.parts.drain(first..).collect();
        if from < at {
            let (buffer, range) = parts[0].clone().into_parts();
            let middle = range.start + usize::try_from(at - from).expect("within a part");
            self.parts.push(Slice::new(Arc::clone(&buffer), range.start..middle));
            parts[0] = Slice::new(buffer, middle..range.end);
        }
        let end = std::mem::replace(&mut self.end, at);
        Self { start: at, end, parts }
    }
}
