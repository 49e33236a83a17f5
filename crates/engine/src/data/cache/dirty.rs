//! The dirty sectors of a file: their number, and the runs of them that are written back.

use smallvec::SmallVec;
use userbtrfs_device::Slice;
use userbtrfs_sync::Arc;

use crate::units::SECTOR;

/// A number of dirty sectors and of maximal runs of them, or a change of it. Extending a run adds
/// no run; cleaning sectors in the middle of a run adds one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Sectors.
    pub(crate) sectors: i64,
    /// Runs.
    pub(crate) runs: i64,
}

/// Consecutive sectors that were dirty and are now being written, as they were at that time. They
/// are at most [`EXTENT_MAX`](crate::data::units::EXTENT_MAX) bytes.
#[derive(Debug)]
pub(crate) struct DirtyRun {
    /// The start in the file, in bytes: whole sectors.
    pub(crate) start: u64,
    /// The end in the file, in bytes.
    pub(crate) end: u64,
    /// The bytes, in order.
    pub(crate) parts: SmallVec<[Slice; 1]>,
}

/// The runs of a file, usually one.
pub(crate) type DirtyRuns = SmallVec<[DirtyRun; 1]>;

impl Delta {
    /// Returns the sum.
    pub(in crate::data) fn plus(self, more: Self) -> Self {
        Self { sectors: self.sectors + more.sectors, runs: self.runs + more.runs }
    }

    /// Returns the change since `before`.
    pub(in crate::data) fn since(self, before: Self) -> Self {
        Self { sectors: self.sectors - before.sectors, runs: self.runs - before.runs }
    }
}

impl DirtyRun {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Appends the run that follows this one.
    pub(crate) fn append(&mut self, next: Self) {
        assert_eq!(self.end, next.start, "the runs are adjacent");
        self.end = next.end;
        self.parts.extend(next.parts);
    }

    /// Splits the run at a sector boundary inside it, and returns the part after that.
    pub(crate) fn split_off(&mut self, at: u64) -> Self {
        assert!(self.start < at && at < self.end && at.is_multiple_of(SECTOR));
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
