//! The content of a file of the model.
//!
//! 1. A content consists of runs, each with the bytes of one seed ([`pattern`]), and zeros between
//!    them. Runs are disjoint and not empty, none has the seed 0, and all end within the size.
//! 2. The cost depends on the number of runs, not on their lengths and distances.

use std::collections::BTreeMap;
use std::fmt;

use crate::manifest::ContentDigest;
use crate::pattern;

/// The number of bytes generated at once.
const PART: u64 = 64 << 10;

/// The bytes of a file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content {
    size: u64,
    /// By start offset.
    runs: BTreeMap<u64, Run>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Run {
    end: u64,
    seed: u32,
    /// How far the bytes are from where they were written first: a clone moves them. It wraps.
    moved: u64,
}

impl Run {
    /// Fills `target` with the bytes from `offset` on.
    fn fill(&self, offset: u64, target: &mut [u8]) {
        pattern::fill(self.seed, offset.wrapping_sub(self.moved), target);
    }
}

impl Content {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the ranges of non-zero bytes: start and end of each run, ascending. Neighbours may
    /// touch.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(start, run)| (*start, run.end))
    }

    /// Returns the number of non-zero bytes.
    pub fn filled(&self) -> u64 {
        self.runs().map(|(start, end)| end - start).sum()
    }

    /// Writes bytes of a seed at `offset`.
    pub fn write(&mut self, offset: u64, length: u64, seed: u32) {
        if length == 0 {
            return;
        }
        let end = offset + length;
        self.clear(offset, end);
        if seed != 0 {
            self.runs.insert(offset, Run { end, seed, moved: 0 });
        }
        self.size = self.size.max(end);
    }

    /// Replaces the bytes from `at` on by `length` bytes of `source` from `offset` on.
    pub fn clone_from(&mut self, at: u64, source: &Self, offset: u64, length: u64) {
        self.clear(at, at + length);
        for (start, end, run) in source.within(offset, offset + length) {
            let moved = run.moved.wrapping_add(at.wrapping_sub(offset));
            self.runs.insert(start - offset + at, Run { end: end - offset + at, moved, ..run });
        }
        self.size = self.size.max(at + length);
    }

    /// Truncates the content, or extends it with zeros.
    pub fn set_size(&mut self, size: u64) {
        self.clear(size, u64::MAX);
        self.size = size;
    }

    /// Zeroes the bytes between two offsets, up to the size.
    pub fn clear(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.split_at(start);
        self.split_at(end);
        let gone: Vec<u64> = self.runs.range(start..end).map(|(start, _)| *start).collect();
        for start in gone {
            self.runs.remove(&start);
        }
    }

    /// Splits the run that contains an offset, so that a run starts there.
    fn split_at(&mut self, offset: u64) {
        let Some((_, run)) = self.runs.range_mut(..offset).next_back() else { return };
        if run.end > offset {
            let rest = *run;
            run.end = offset;
            self.runs.insert(offset, rest);
        }
    }

    /// Returns the bytes between two offsets, up to the size.
    pub fn read(&self, start: u64, end: u64) -> Vec<u8> {
        let end = end.min(self.size).max(start);
        let mut bytes = vec![0; usize::try_from(end - start).expect("a length in memory")];
        for (from, to, run) in self.within(start, end) {
            let [first, last] = [from, to].map(|at| usize::try_from(at - start).expect("within"));
            run.fill(from, &mut bytes[first..last]);
        }
        bytes
    }

    /// Returns the parts of runs between two offsets.
    fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, Run)> + '_ {
        let first = self.runs.range(..start).next_back().map_or(start, |(first, _)| *first);
        let runs = self.runs.range(first..end.max(first));
        let cut = move |(from, run): (&u64, &Run)| (start.max(*from), end.min(run.end), *run);
        runs.map(cut).filter(|(from, to, _)| from < to)
    }

    /// Returns the digest.
    pub fn digest(&self) -> String {
        let mut digest = ContentDigest::default();
        let mut bytes = Vec::new();
        for (start, end, run) in self.within(0, self.size) {
            let mut at = start;
            while at < end {
                let length = PART.min(end - at);
                bytes.resize(usize::try_from(length).expect("a part"), 0);
                run.fill(at, &mut bytes);
                digest.update(at, &bytes);
                at += length;
            }
        }
        digest.finish()
    }

    /// Returns whether these may be the data segments of the content (offset and length,
    /// ascending): they contain all non-zero bytes, and end within the size.
    pub fn may_be_in(&self, segments: &[(u64, u64)]) -> bool {
        let is_within = segments.iter().all(|(start, length)| {
            start.checked_add(*length).is_some_and(|end| *length > 0 && end <= self.size)
        });
        let holds = |(start, end): (u64, u64)| {
            let after = segments.partition_point(|(offset, _)| *offset <= start);
            after > 0 && segments[after - 1].0 + segments[after - 1].1 >= end
        };
        is_within && segments.is_sorted_by(|a, b| a.0 + a.1 < b.0) && self.joined().all(holds)
    }

    /// Returns the runs, with touching neighbours joined.
    fn joined(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut runs = self.runs().peekable();
        std::iter::from_fn(move || {
            let (start, mut end) = runs.next()?;
            while let Some((_, next)) = runs.next_if(|(start, _)| *start == end) {
                end = next;
            }
            Some((start, end))
        })
    }

    /// Returns the smallest possible data segments.
    pub fn segments(&self) -> Vec<(u64, u64)> {
        self.joined().map(|(start, end)| (start, end - start)).collect()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content of {} bytes:", self.size)?;
        self.runs
            .iter()
            .try_for_each(|(start, run)| write!(f, " {start}..{} {}", run.end, run.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const LENGTH: u64 = 3000;

    fn index(offset: u64) -> usize {
        usize::try_from(offset).unwrap()
    }

    /// A content after random changes, and a plain buffer after the same.
    fn scribbled(random: &mut Random) -> (Content, Vec<u8>) {
        let mut content = Content::default();
        let mut plain = Vec::new();
        for seed in 1..40 {
            let start = random.below(LENGTH);
            let length = random.below(LENGTH / 3);
            let first = index(start);
            let last = index(start + length);
            match random.below(8) {
                0 => {
                    content.set_size(start);
                    plain.resize(first, 0);
                }
                2 if start + length / 2 <= content.size() => {
                    let at = random.below(LENGTH);
                    let length = length / 2;
                    let source = content.clone();
                    content.clone_from(at, &source, start, length);
                    let copied = plain[first..first + index(length)].to_vec();
                    plain.resize(plain.len().max(index(at + length)), 0);
                    plain[index(at)..][..copied.len()].copy_from_slice(&copied);
                }
                1 => {
                    content.clear(start, start + length);
                    let end = plain.len();
                    plain[first.min(end)..last.min(end)].fill(0);
                }
                _ => {
                    let seed = if random.one_in(6) { 0 } else { seed };
                    content.write(start, length, seed);
                    if length > 0 {
                        plain.resize(plain.len().max(last), 0);
                    }
                    let end = last.min(plain.len()).max(first);
                    pattern::fill(seed, start, plain.get_mut(first..end).unwrap_or_default());
                }
            }
        }
        (content, plain)
    }

    #[test]
    fn content_equals_plain_memory_after_the_same_changes() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let (content, plain) = scribbled(&mut random);
            assert_eq!(content.read(0, u64::MAX), plain);
            assert_eq!(content.size(), plain.len() as u64);
            let filled = plain.iter().filter(|byte| **byte != 0).count();
            assert_eq!(content.filled(), filled as u64);
            let start = random.below(LENGTH);
            let end = random.below(LENGTH);
            let part = |at: u64| index(at).min(plain.len());
            let expected = &plain[part(start)..part(end).max(part(start))];
            assert_eq!(content.read(start, end), expected);
            let mut digest = ContentDigest::default();
            digest.update(0, &plain);
            assert_eq!(content.digest(), digest.finish());
        }
    }

    #[test]
    fn segments_hold_all_that_is_not_zero() {
        let mut content = Content::default();
        content.write(10, 10, 1);
        content.write(20, 5, 2);
        content.write(100, 100, 3);
        content.write(1 << 62, 1, 4);
        content.set_size((1 << 62) + 2);
        assert_eq!(content.segments(), [(10, 15), (100, 100), (1 << 62, 1)]);
        let far = (1 << 62, 2);
        let may = |segments: &[_]| content.may_be_in(&[segments, &[far]].concat());
        assert!(content.may_be_in(&content.segments()));
        assert!(may(&[(0, 200)]) && may(&[(10, 30), (90, 1000)]));
        assert!(!may(&[(10, 15)]) && !may(&[(11, 14), (100, 100)]) && !may(&[(0, 199)]));
        assert!(!may(&[(0, 20), (20, 300)]), "two that are one");
        assert!(!content.may_be_in(&[(0, 200), (1 << 62, 3)]), "behind the end");
    }

    #[test]
    fn a_far_end_costs_nothing() {
        let end = i64::MAX as u64;
        let mut content = Content::default();
        content.write(0, end, 7);
        content.clear(5000, end - 5000);
        assert_eq!((content.filled(), content.size()), (10_000, end));
        assert_eq!(content.read(end - 3, u64::MAX), pattern::bytes(7, end - 3, 3));
    }
}
