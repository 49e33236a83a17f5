//! The ranges of a file that the running transaction changed.

use std::ops::Range;

use userbtrfs_transaction::RangeSet;

/// The most extents of a file that are logged at once.
pub(crate) const EXTENTS_MAX: usize = 1 << 15;

/// Ranges of a file, in bytes, whose extents a transaction changed. If there are more than
/// [`EXTENTS_MAX`], the whole file counts as changed.
#[derive(Default)]
pub(in crate::inode) struct ChangedRanges {
    transaction: u64,
    ranges: RangeSet,
}

impl ChangedRanges {
    /// Returns the transaction that changed the ranges last.
    pub(in crate::inode) fn transaction(&self) -> u64 {
        self.transaction
    }

    /// Adds a range that transaction `transaction` changed.
    pub(in crate::inode) fn insert(&mut self, transaction: u64, range: Range<u64>) {
        self.turn_to(transaction);
        self.ranges.insert(range);
        if self.ranges.count() > EXTENTS_MAX {
            self.ranges = RangeSet::all();
        }
    }

    /// Removes a range, such as one that is logged.
    pub(in crate::inode) fn remove(&mut self, transaction: u64, range: Range<u64>) {
        self.turn_to(transaction);
        self.ranges.remove(range);
    }

    /// Takes the ranges that transaction `running` changed.
    pub(in crate::inode) fn take(&mut self, running: u64) -> RangeSet {
        self.turn_to(running);
        std::mem::take(&mut self.ranges)
    }

    /// Discards the ranges of an earlier transaction.
    pub(in crate::inode) fn turn_to(&mut self, running: u64) {
        if self.transaction != running {
            *self = Self { transaction: running, ranges: RangeSet::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_ranges_beyond_log_limit_cover_whole_file() {
        let mut changed = ChangedRanges::default();
        let most = EXTENTS_MAX as u64;
        (0..most).for_each(|at| changed.insert(7, 2 * at..2 * at + 1));
        assert_eq!(changed.ranges.count(), EXTENTS_MAX);
        changed.insert(7, 2 * most..2 * most + 1);
        assert_eq!(changed.take(7), RangeSet::all());
        changed.insert(7, 0..1);
        assert_eq!(changed.ranges.count(), 1);
        assert_eq!(changed.take(8), RangeSet::default());
    }
}
