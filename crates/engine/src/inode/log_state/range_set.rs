//! Sets of numbers stored as ranges: indexes of a directory, bytes of a file.
//!
//! 1. Ranges are disjoint, not empty, and do not touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, stored as disjoint ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// The end of each range, by start.
    runs: BTreeMap<u64, u64>,
}

/// How adding a range changed the ranges of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coalesced {
    /// The starts of the ranges that were merged into it.
    pub(crate) joined: Vec<u64>,
    /// The resulting range.
    pub(crate) run: Range<u64>,
}

impl RangeSet {
    /// Returns a set of all numbers except the last.
    pub(crate) fn all() -> Self {
        Self { runs: BTreeMap::from([(0, u64::MAX)]) }
    }

    /// Returns the number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Adds the numbers of a range.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.join(range);
        }
    }

    /// Adds the numbers of a range that is not empty; returns the ranges it was merged with.
    pub(crate) fn join(&mut self, range: Range<u64>) -> Coalesced {
        let Range { mut start, mut end } = range;
        let mut joined = Vec::new();
        while let Some((&from, &to)) = self.runs.range(..=end).next_back() {
            if to < start {
                break;
            }
            (start, end) = (start.min(from), end.max(to));
            self.runs.remove(&from);
            joined.push(from);
        }
        self.runs.insert(start, end);
        Coalesced { joined, run: start..end }
    }

    /// Removes the numbers of a range.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        while let Some((&from, &to)) = self.runs.range(..range.end).next_back() {
            if to <= range.start {
                break;
            }
            self.runs.remove(&from);
            self.insert(range.end..to);
            if from < range.start {
                self.runs.insert(from, range.start);
                break;
            }
        }
    }

    /// Returns the ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use super::*;

    #[test]
    fn touching_ranges_are_merged() {
        let mut runs = RangeSet::default();
        for range in [4..6, 10..11, 0..1, 6..7, 2..4, 3..5, 8..8] {
            runs.insert(range);
        }
        assert_eq!(runs.iter().collect::<Vec<_>>(), [0..1, 2..7, 10..11]);
        assert_eq!(runs.join(1..20), Coalesced { joined: vec![10, 2, 0], run: 0..20 });
        assert_eq!(runs.join(3..4), Coalesced { joined: vec![0], run: 0..20 });
        assert!(runs.iter().eq(once(0..20)));
        runs.insert(30..u64::MAX);
        let mut other = RangeSet::default();
        other.insert(19..31);
        other.iter().for_each(|run| runs.insert(run));
        assert!(runs.iter().eq(once(0..u64::MAX)));
    }

    #[test]
    fn remove_keeps_numbers_around_range() {
        let mut runs = RangeSet::default();
        runs.insert(2..10);
        runs.insert(12..20);
        runs.remove(5..6);
        assert_eq!(runs.iter().collect::<Vec<_>>(), [2..5, 6..10, 12..20]);
        runs.remove(4..14);
        assert_eq!(runs.iter().collect::<Vec<_>>(), [2..4, 14..20]);
        runs.remove(4..14);
        runs.remove(20..30);
        assert_eq!(runs.iter().collect::<Vec<_>>(), [2..4, 14..20]);
        runs.remove(0..20);
        assert_eq!(runs, RangeSet::default());
    }
}
