//! Sets of numbers stored as ranges: indexes of a directory, bytes of a file, logical addresses.
//!
//! 1. Ranges are disjoint, not empty, and do not touch.
//! 2. A range has no value, and ranges are not ordered by size. A type that needs that keeps ranges
//!    of its own, as `FreeRanges` of the free space does.

use std::collections::BTreeMap;
use std::iter::once;
use std::ops::Range;

/// A set of numbers, stored as disjoint ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// The end of each range, by start.
    ranges: BTreeMap<u64, u64>,
}

/// How adding a range changed the ranges of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coalesced {
    /// The starts of the ranges that were merged into it.
    pub joined: Vec<u64>,
    /// The resulting range.
    pub run: Range<u64>,
}

impl RangeSet {
    /// Returns a set of all numbers except the last.
    pub fn all() -> Self {
        Self { ranges: BTreeMap::from([(0, u64::MAX)]) }
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Adds the numbers of a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.coalesce(range, |_| ());
        }
    }

    /// Adds the numbers of a range that is not empty; returns the ranges it was merged with.
    pub fn join(&mut self, range: Range<u64>) -> Coalesced {
        assert!(!range.is_empty(), "a joined range has numbers");
        let mut joined = Vec::new();
        let run = self.coalesce(range, |start| joined.push(start));
        Coalesced { joined, run }
    }

    /// Adds a range, and reports the starts of the ranges that are merged into it, the last first.
    fn coalesce(&mut self, range: Range<u64>, mut merged: impl FnMut(u64)) -> Range<u64> {
        let Range { mut start, mut end } = range;
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back() {
            if to < start {
                break;
            }
            start = start.min(from);
            end = end.max(to);
            self.ranges.remove(&from);
            merged(from);
        }
        self.ranges.insert(start, end);
        start..end
    }

    /// Removes the numbers of a range.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&from, &to)) = self.ranges.range(..range.end).next_back() {
            if to <= range.start {
                break;
            }
            self.ranges.remove(&from);
            if range.end < to {
                self.ranges.insert(range.end, to);
            }
            if from < range.start {
                self.ranges.insert(from, range.start);
                break;
            }
        }
    }

    /// Returns true if all numbers of a range are in the set.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        let before = self.ranges.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, &end)| range.end <= end)
    }

    /// Returns the parts of a range that are not in the set, in ascending order.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = range;
        let before = self.ranges.range(..start).next_back();
        let mut at = before.map_or(start, |(_, &to)| to.max(start));
        let within = self.ranges.range(start.min(end)..end).map(|(&from, &to)| from..to);
        within.chain(once(end..end)).filter_map(move |known| {
            let gap = at..known.start;
            at = known.end;
            (!gap.is_empty()).then_some(gap)
        })
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

impl Extend<Range<u64>> for RangeSet {
    fn extend<I: IntoIterator<Item = Range<u64>>>(&mut self, ranges: I) {
        ranges.into_iter().for_each(|range| self.insert(range));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ranges(numbers: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for number in numbers {
            match ranges.last_mut().filter(|range| range.end == number) {
                Some(range) => range.end += 1,
                None => ranges.push(number..number + 1),
            }
        }
        ranges
    }

    proptest! {
        #[test]
        fn set_behaves_as_a_set_of_numbers(
            steps in prop::collection::vec((any::<bool>(), 0..64_u64, 0..24_u64), 1..60),
        ) {
            let mut set = RangeSet::default();
            let mut numbers = BTreeSet::new();
            for (is_added, start, len) in steps {
                let range = start..start + len;
                let absent = range.clone().filter(|number| !numbers.contains(number));
                let absent: Vec<u64> = absent.collect();
                prop_assert_eq!(set.contains(&range), absent.is_empty());
                prop_assert_eq!(set.gaps(range.clone()).collect::<Vec<_>>(), ranges(absent));
                if is_added {
                    set.insert(range.clone());
                    numbers.extend(range);
                } else {
                    set.remove(range.clone());
                    numbers.retain(|number| !range.contains(number));
                }
                let expected = ranges(numbers.iter().copied());
                prop_assert_eq!(set.count(), expected.len());
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn touching_ranges_are_merged() {
        let mut set = RangeSet::default();
        set.extend([4..6, 10..11, 0..1, 6..7, 2..4, 3..5, 8..8]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..1, 2..7, 10..11]);
        assert_eq!(set.join(1..20), Coalesced { joined: vec![10, 2, 0], run: 0..20 });
        assert_eq!(set.join(3..4), Coalesced { joined: vec![0], run: 0..20 });
        assert!(set.iter().eq(once(0..20)));
        set.insert(30..u64::MAX);
        set.insert(19..31);
        assert_eq!(set, RangeSet::all());
    }

    #[test]
    fn remove_keeps_numbers_around_range() {
        let mut set = RangeSet::default();
        set.insert(2..10);
        set.insert(12..20);
        set.remove(5..6);
        assert_eq!(set.iter().collect::<Vec<_>>(), [2..5, 6..10, 12..20]);
        set.remove(4..14);
        assert_eq!(set.iter().collect::<Vec<_>>(), [2..4, 14..20]);
        set.remove(4..14);
        set.remove(20..30);
        assert_eq!(set.iter().collect::<Vec<_>>(), [2..4, 14..20]);
        set.remove(0..20);
        assert_eq!(set, RangeSet::default());
    }

    #[test]
    fn gaps_of_range_that_begins_and_ends_amid_ranges() {
        let mut set = RangeSet::default();
        set.extend([0..4, 6..8, 9..20]);
        assert!(set.gaps(2..12).eq([4..6, 8..9]));
        assert!(set.gaps(10..12).eq([]));
        assert!(set.gaps(19..30).eq(once(20..30)));
        assert!(set.gaps(30..30).eq([]));
        assert!(set.gaps(u64::MAX - 1..u64::MAX).eq(once(u64::MAX - 1..u64::MAX)));
        assert!(set.contains(&(9..20)) && set.contains(&(30..30)) && !set.contains(&(9..21)));
    }
}
