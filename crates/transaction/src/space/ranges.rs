//! Free ranges: disjoint, coalesced, indexed by address and by size.
//!
//! 1. Ranges neither overlap nor touch: neighbours are one range.
//! 2. Allocated ranges start on a multiple of the unit. The usable bytes of a range are the whole
//!    units in it; the bytes beside them are free, but of no use.
//! 3. `take` continues where the last one ended, so that ranges taken one after the other are
//!    contiguous.
//! 4. Each call costs a bounded number of look-ups, however many ranges there are.

use std::collections::{BTreeMap, BTreeSet};

/// The number of ranges after the cursor that are tried before the largest is taken.
const TRIES: usize = 32;

/// A set of disjoint ranges of numbers.
#[derive(Clone, Debug)]
pub(super) struct FreeRanges {
    unit: u64,
    /// The start of each range, and its end.
    ranges: BTreeMap<u64, u64>,
    /// The ranges with usable bytes: how many, and the start.
    by_usable: BTreeSet<(u64, u64)>,
    total: u64,
    usable: u64,
    cursor: u64,
}

/// A range overlaps one in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap;

impl FreeRanges {
    /// Returns an empty set with units of `unit` bytes.
    pub(super) fn new(unit: u64) -> Self {
        assert!(unit > 0, "a unit has bytes");
        let ranges = BTreeMap::new();
        let by_usable = BTreeSet::new();
        Self { unit, ranges, by_usable, total: 0, usable: 0, cursor: 0 }
    }

    /// Returns the unit of allocation.
    pub(super) fn unit(&self) -> u64 {
        self.unit
    }

    /// Returns the number of all bytes.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of bytes that can be allocated.
    pub(super) fn usable(&self) -> u64 {
        self.usable
    }

    /// Returns the most usable bytes in one range.
    pub(super) fn largest_free(&self) -> u64 {
        self.by_usable.last().map_or(0, |&(usable, _)| usable)
    }

    /// Returns the usable bytes of the second of the two largest ranges.
    pub(super) fn second_largest(&self) -> u64 {
        self.by_usable.iter().nth_back(1).map_or(0, |&(usable, _)| usable)
    }

    /// Returns the number of ranges.
    pub(super) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the ranges, start and length, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|(&start, &end)| (start, end - start))
    }

    /// Adds a range, joining it with its neighbours.
    pub(super) fn insert(&mut self, start: u64, len: u64) -> Result<(), Overlap> {
        let end = start.checked_add(len).ok_or(Overlap)?;
        if len == 0 {
            return Ok(());
        }
        let before = self.ranges.range(..end).next_back().map(|(&s, &e)| (s, e));
        if before.is_some_and(|(_, e)| e > start) {
            return Err(Overlap);
        }
        let mut from = start;
        let mut to = end;
        if let Some((s, e)) = before.filter(|&(_, e)| e == start) {
            self.unlink(s, e);
            from = s;
        }
        if let Some(&e) = self.ranges.get(&end) {
            self.unlink(end, e);
            to = e;
        }
        self.link(from, to);
        Ok(())
    }

    /// Returns true if any byte of a range is in the set.
    pub(super) fn overlaps(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        self.ranges.range(..end).next_back().is_some_and(|(_, &e)| e > start)
    }

    /// Returns true if all bytes of a range are in the set.
    pub(super) fn contains(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len);
        let before = self.ranges.range(..=start).next_back();
        before.is_some_and(|(_, &e)| end.is_some_and(|end| end <= e))
    }

    /// Removes a range, as far as it is in the set; returns how many bytes that was.
    pub(super) fn subtract(&mut self, start: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let end = start.saturating_add(len);
        let before = self.total;
        while let Some((&s, &e)) = self.ranges.range(..end).next_back().filter(|(_, e)| **e > start)
        {
            self.unlink(s, e);
            self.link(s, s.max(start));
            self.link(e.min(end), e);
        }
        before - self.total
    }

    /// Removes other ranges, as far as they are in the set.
    pub(super) fn subtract_all(&mut self, others: &Self) {
        for (start, len) in others.iter() {
            self.subtract(start, len);
        }
    }

    /// Takes a range of `len` bytes, a multiple of the unit: after the last one taken, if there is
    /// space not far from it, or else from the largest range.
    pub(super) fn take(&mut self, len: u64) -> Option<u64> {
        assert!(len > 0 && len.is_multiple_of(self.unit), "whole units are taken");
        let start = self.find(len)?;
        self.subtract(start, len);
        self.cursor = start + len;
        Some(start)
    }

    /// Returns the start and the number of usable bytes right behind the last one taken.
    pub(super) fn behind(&self) -> Option<(u64, u64)> {
        let (_, &end) = self.ranges.range(..=self.cursor).next_back()?;
        let usable = self.usable_in(self.cursor, end.max(self.cursor));
        (usable > 0).then_some((self.cursor, usable))
    }

    /// Takes the first bytes of what [`Self::behind`] returns.
    pub(super) fn take_behind(&mut self, len: u64) -> Option<u64> {
        let (start, _) = self.behind().filter(|&(_, usable)| usable >= len)?;
        self.subtract(start, len);
        self.cursor = start + len;
        Some(start)
    }

    /// Makes the next `take` begin at the first range.
    pub(super) fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// Takes a range of at most `max` and at least `min` bytes, both multiples of the unit: as
    /// many as possible.
    pub(super) fn take_run(&mut self, max: u64, min: u64) -> Option<(u64, u64)> {
        let len = max.min(self.largest_free());
        if len == 0 || len < min {
            return None;
        }
        self.take(len).map(|start| (start, len))
    }

    fn find(&self, len: u64) -> Option<u64> {
        let fit = |(start, end): (u64, u64)| {
            let at = start.checked_next_multiple_of(self.unit)?;
            (end.checked_sub(at)? >= len).then_some(at)
        };
        let cursor = self.cursor;
        let here = self.ranges.range(..cursor).next_back();
        let here = here.map(|(_, &end)| (cursor, end)).filter(|&(_, end)| end > cursor);
        let after = self.ranges.range(cursor..).map(|(&s, &e)| (s, e));
        let near = here.into_iter().chain(after).take(TRIES).find_map(fit);
        near.or_else(|| {
            let &(_, start) = self.by_usable.last().filter(|&&(usable, _)| usable >= len)?;
            fit((start, self.ranges[&start]))
        })
    }

    fn link(&mut self, start: u64, end: u64) {
        if start == end {
            return;
        }
        let usable = self.usable_in(start, end);
        self.ranges.insert(start, end);
        if usable > 0 {
            self.by_usable.insert((usable, start));
        }
        self.total += end - start;
        self.usable += usable;
    }

    fn unlink(&mut self, start: u64, end: u64) {
        let usable = self.usable_in(start, end);
        self.ranges.remove(&start);
        self.by_usable.remove(&(usable, start));
        self.total -= end - start;
        self.usable -= usable;
    }

    fn usable_in(&self, start: u64, end: u64) -> u64 {
        let whole = |at: u64| end.saturating_sub(at) / self.unit * self.unit;
        start.checked_next_multiple_of(self.unit).map_or(0, whole)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;

    const LAST: u64 = 256;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Subtract(u64, u64),
        Take(u64),
        Run(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0..LAST, 1..24_u64);
        prop_oneof![
            range.clone().prop_map(|(start, len)| Step::Insert(start, len)),
            range.prop_map(|(start, len)| Step::Subtract(start, len)),
            (1..4_u64).prop_map(Step::Take),
            (1..6_u64, 1..3_u64).prop_map(|(max, min)| Step::Run(max.max(min), min)),
        ]
    }

    /// A model of the set, byte by byte.
    #[derive(Default)]
    struct Naive(BTreeSet<u64>);

    impl Naive {
        fn add(&mut self, start: u64, len: u64) {
            self.0.extend(start..start + len);
        }

        fn remove(&mut self, start: u64, len: u64) {
            self.0.retain(|at| !(start..start + len).contains(at));
        }

        fn free(&self, start: u64, len: u64) -> u64 {
            self.0.range(start..start + len).count() as u64
        }

        fn runs(&self) -> Vec<(u64, u64)> {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for &at in &self.0 {
                match runs.last_mut().filter(|(start, len)| start + len == at) {
                    Some((_, len)) => *len += 1,
                    None => runs.push((at, 1)),
                }
            }
            runs
        }

        fn usable(&self, unit: u64) -> Vec<u64> {
            let whole = |(start, len): (u64, u64)| {
                (start + len).saturating_sub(start.next_multiple_of(unit)) / unit * unit
            };
            self.runs().into_iter().map(whole).collect()
        }
    }

    fn run(unit: u64, step: &Step, ranges: &mut FreeRanges, naive: &mut Naive) {
        match *step {
            Step::Insert(start, len) => {
                let free = naive.free(start, len);
                assert_eq!(ranges.insert(start, len).is_ok(), free == 0);
                if free == 0 {
                    naive.add(start, len);
                }
            }
            Step::Subtract(start, len) => {
                assert_eq!(ranges.overlaps(start, len), naive.free(start, len) > 0);
                assert_eq!(ranges.subtract(start, len), naive.free(start, len));
                naive.remove(start, len);
            }
            Step::Take(units) => {
                let len = units * unit;
                let possible = naive.usable(unit).into_iter().any(|usable| usable >= len);
                let taken = ranges.take(len);
                assert_eq!(taken.is_some(), possible);
                if let Some(start) = taken {
                    hand_out(unit, naive, start, len);
                }
            }
            Step::Run(max, min) => {
                let max = max * unit;
                let min = min * unit;
                let largest = naive.usable(unit).into_iter().max().unwrap_or(0);
                let taken = ranges.take_run(max, min);
                let expected = Some(max.min(largest)).filter(|&len| len >= min);
                assert_eq!(taken.map(|(_, len)| len), expected);
                if let Some((start, len)) = taken {
                    hand_out(unit, naive, start, len);
                }
            }
        }
    }

    fn hand_out(unit: u64, naive: &mut Naive, start: u64, len: u64) {
        assert!(start.is_multiple_of(unit) && naive.free(start, len) == len);
        naive.remove(start, len);
    }

    proptest! {
        #[test]
        fn ranges_behave_as_a_set_of_bytes(
            unit in prop_oneof![Just(1_u64), Just(4), Just(8)],
            steps in prop::collection::vec(step(), 1..80),
        ) {
            let mut ranges = FreeRanges::new(unit);
            let mut naive = Naive::default();
            for step in &steps {
                run(unit, step, &mut ranges, &mut naive);
                prop_assert_eq!(ranges.iter().collect::<Vec<_>>(), naive.runs());
                prop_assert_eq!(ranges.total(), naive.0.len() as u64);
                let mut usable = naive.usable(unit);
                prop_assert_eq!(ranges.usable(), usable.iter().sum::<u64>());
                usable.sort_unstable_by(|a, b| b.cmp(a));
                prop_assert_eq!(ranges.largest_free(), usable.first().copied().unwrap_or(0));
                let second = usable.get(1).copied().unwrap_or(0);
                prop_assert_eq!(ranges.second_largest(), second);
            }
        }
    }

    #[test]
    fn consecutive_takes_are_contiguous() {
        let mut ranges = FreeRanges::new(16);
        ranges.insert(0, 16).unwrap();
        ranges.insert(100, 200).unwrap();
        ranges.insert(400, 64).unwrap();
        assert_eq!(ranges.take(16), Some(0));
        let taken: Vec<_> = (0..3).filter_map(|_| ranges.take(16)).collect();
        assert_eq!(taken, [112, 128, 144]);
        ranges.insert(0, 16).unwrap();
        assert_eq!(ranges.take(16), Some(160), "goes on, though there is room before");
    }

    #[test]
    fn ranges_at_the_end_of_the_number_space() {
        let mut ranges = FreeRanges::new(1 << 16);
        assert_eq!(ranges.insert(u64::MAX - 10, 20), Err(Overlap));
        ranges.insert(u64::MAX - 10, 10).unwrap();
        assert_eq!((ranges.total(), ranges.usable(), ranges.take(1 << 16)), (10, 0, None));
    }

    #[test]
    fn a_hundred_thousand_ranges_are_no_burden() {
        let mut ranges = FreeRanges::new(4096);
        for at in 0..100_000_u64 {
            ranges.insert(at * 3 * 4096, 4096).unwrap();
        }
        let begun = Instant::now();
        assert_eq!(ranges.take(8192), None);
        for _ in 0..100_000 {
            ranges.take(4096).unwrap();
        }
        assert_eq!(ranges.total(), 0);
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }
}
