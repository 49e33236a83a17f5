//! Pending ranges of a file, which will replace what is on disk.
//!
//! 1. Ranges are whole sectors, and disjoint; a hole may end at `u64::MAX`.
//! 2. An extent is as long as its range. Inline data is only in the first sector, whatever follows
//!    it, and is never split.
//! 3. Each range of an extent is one reference to it. Adjacent ranges that continue the same extent
//!    are one range.
//! 4. [`Replaced`] describes how a change affects references: a removed range drops its reference,
//!    a range that is split in two adds one.

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};
use userbtrfs_format::{FileExtent, RegularExtent};
use userbtrfs_transaction::{FileExtentRef, Handle};

use crate::error::InodeId;
use crate::inode::incore::extent_map::{ExtentMap, ExtentMapKind};
use crate::units::{sector_end, sector_start};

/// A set of pending ranges.
#[derive(Default)]
pub(crate) struct ExtentChanges {
    /// The end and the kind of each range, by start.
    ranges: BTreeMap<u64, (u64, ExtentMapKind)>,
}

/// Gaps between ranges; usually few.
type Gaps = SmallVec<[(u64, u64); 4]>;

/// A range of an extent that was replaced, in whole or in part.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::inode) struct Replaced {
    /// The start of the range in the file.
    start: u64,
    extent: RegularExtent,
    /// The number of ranges that are left of it.
    remnants: usize,
}

impl ExtentChanges {
    /// Puts a range over the existing ones. The caller counts the reference of the range itself.
    pub(in crate::inode) fn insert(&mut self, extent: ExtentMap) -> Vec<Replaced> {
        assert!(extent.is_sound(), "whole sectors of one extent");
        let mut replaced = self.clear(extent.start, extent.end);
        let extent = self.join(extent, &mut replaced);
        self.ranges.insert(extent.start, (extent.end, extent.kind));
        replaced
    }

    /// Removes what is pending between two offsets.
    pub(in crate::inode) fn clear(&mut self, start: u64, end: u64) -> Vec<Replaced> {
        let overlapped: Vec<_> = self.overlapped(start, end).collect();
        let mut replaced = Vec::new();
        for old in overlapped {
            self.ranges.remove(&old.start);
            let around = [(old.start, start), (end, old.end)];
            let left = || around.iter().filter(|(from, to)| from < to);
            for (from, to) in left() {
                let rest = old.part(*from, *to);
                let is_inline = matches!(rest.kind, ExtentMapKind::Inline(_));
                assert!(!is_inline, "inline data is never cut");
                self.ranges.insert(rest.start, (rest.end, rest.kind));
            }
            replaced.extend(Replaced::new(old.start, &old.kind, left().count()));
        }
        replaced
    }

    /// Merges the extent with adjacent ranges that continue it.
    fn join(&mut self, mut extent: ExtentMap, replaced: &mut Vec<Replaced>) -> ExtentMap {
        let left = self.ranges.range(..extent.start).next_back();
        let left = left.filter(|(_, (end, _))| *end == extent.start);
        let left = left.and_then(|(start, (_, kind))| Some((*start, kind.joined(&extent.kind)?)));
        if let Some((start, kind)) = left {
            replaced.extend(Replaced::new(extent.start, &extent.kind, 0));
            self.ranges.remove(&start);
            (extent.start, extent.kind) = (start, kind);
        }
        let right = self.ranges.get(&extent.end);
        let right = right.and_then(|(end, kind)| Some((*end, extent.kind.joined(kind)?)));
        if let Some((end, kind)) = right {
            let (_, old) = self.ranges.remove(&extent.end).expect("just found");
            replaced.extend(Replaced::new(extent.end, &old, 0));
            (extent.end, extent.kind) = (end, kind);
        }
        extent
    }

    /// Returns true if nothing is pending.
    pub(in crate::inode) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the ranges that overlap the given range, ascending and not clipped; none if `end <=
    /// start`, as may happen at the end of a file that is truncated while it is read.
    fn overlapped(&self, start: u64, end: u64) -> impl Iterator<Item = ExtentMap> {
        let before = self.ranges.range(..start).next_back();
        let before = before.filter(|(_, (to, _))| start < end && *to > start);
        let before =
            before.map(|(&start, &(end, ref kind))| ExtentMap { start, end, kind: kind.clone() });
        before.into_iter().chain(self.starting(start, end))
    }

    /// Returns the pending ranges between two offsets, which are multiples of the sector size:
    /// ascending and clipped.
    pub(in crate::inode) fn between(
        &self,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = ExtentMap> {
        self.overlapped(start, end)
            .map(move |extent| extent.part(extent.start.max(start), extent.end.min(end)))
    }

    /// Returns the gaps between two offsets in which nothing is pending, ascending.
    pub(in crate::inode) fn gaps(&self, start: u64, end: u64) -> Gaps {
        let mut gaps = Gaps::new();
        let mut at = start;
        for extent in self.overlapped(start, end) {
            if extent.start > at {
                gaps.push((at, extent.start));
            }
            at = extent.end;
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Returns the start of the first range that ends after an offset.
    pub(in crate::inode) fn next_from(&self, offset: u64) -> Option<u64> {
        let before = self.ranges.range(..=offset).next_back().filter(|(_, (to, _))| *to > offset);
        before.or_else(|| self.ranges.range(offset..).next()).map(|(start, _)| *start)
    }

    /// Returns the start of the range `n` positions after the first one that starts at or after an
    /// offset.
    fn nth_from(&self, offset: u64, n: usize) -> Option<u64> {
        self.ranges.range(offset..).nth(n).map(|(start, _)| *start)
    }

    /// Returns the ranges that start between two offsets, ascending and not clipped.
    pub(in crate::inode) fn starting(&self, from: u64, to: u64) -> impl Iterator<Item = ExtentMap> {
        let ranges = self.ranges.range(from..to.max(from));
        ranges.map(|(&start, &(end, ref kind))| ExtentMap { start, end, kind: kind.clone() })
    }

    /// Returns the content of the range that starts at an offset.
    pub(in crate::inode) fn at(&self, start: u64) -> Option<&ExtentMapKind> {
        self.ranges.get(&start).map(|(_, kind)| kind)
    }

    /// Removes all ranges.
    pub(in crate::inode) fn drain(&mut self) -> Vec<Replaced> {
        self.clear(0, u64::MAX)
    }
}

impl FromIterator<ExtentMap> for ExtentChanges {
    /// Puts later extents over earlier ones. No references are counted.
    fn from_iter<T: IntoIterator<Item = ExtentMap>>(extents: T) -> Self {
        let mut changes = Self::default();
        for extent in extents {
            changes.insert(extent);
        }
        changes
    }
}

/// Returns the pending ranges of several sets, newest first, between two offsets, widened to whole
/// sectors.
pub(in crate::inode) fn flattened<'a>(
    sets: impl Iterator<Item = &'a ExtentChanges>,
    start: u64,
    end: u64,
) -> Vec<ExtentMap> {
    let start = sector_start(start);
    let end = sector_end(end);
    let mut found = Vec::new();
    let mut gaps: Gaps = smallvec![(start, end)];
    for set in sets {
        found.extend(gaps.iter().flat_map(|(from, to)| set.between(*from, *to)));
        gaps = gaps.iter().flat_map(|(from, to)| set.gaps(*from, *to)).collect();
    }
    found.sort_unstable_by_key(|extent| extent.start);
    found
}

/// Returns an end for [`flattened`] such that it returns a few times `max` ranges at most.
pub(in crate::inode) fn few_until<'a>(
    sets: impl Iterator<Item = &'a ExtentChanges>,
    start: u64,
    end: u64,
    max: usize,
) -> u64 {
    let next = start.saturating_add(1);
    sets.filter_map(|set| set.nth_from(next, max)).fold(end, u64::min)
}

impl Replaced {
    /// Returns the replaced range, with `remnants` ranges left, or `None` if it is not of an
    /// extent.
    pub(in crate::inode) fn new(start: u64, kind: &ExtentMapKind, remnants: usize) -> Option<Self> {
        let extent = *kind.on_disk()?;
        Some(Self { start, extent, remnants })
    }

    /// Returns the range of an EXTENT_DATA that is removed, or `None` if it is not of an extent.
    pub(in crate::inode) fn stored(offset: u64, data: &[u8]) -> Option<Self> {
        let item = FileExtent::parse(offset, data).expect("verified with its block");
        Self::new(offset, &ExtentMapKind::of_item(&item)?, 0)
    }

    /// Returns its length in the file, in bytes.
    pub(in crate::inode) fn bytes(&self) -> u64 {
        self.extent.bytes
    }

    /// Counts the references that were added and dropped with it.
    pub(in crate::inode) fn count(&self, handle: &Handle<'_>, inode: InodeId) {
        let reference = reference(inode, self.start, &self.extent);
        if self.remnants == 0 {
            handle.drop_file_extent(&reference);
        }
        for _ in 1..self.remnants {
            handle.add_file_extent(&reference);
        }
    }
}

/// Returns the reference to an extent that a part of it, starting at `start` in a file, is.
pub(crate) fn reference(inode: InodeId, start: u64, part: &RegularExtent) -> FileExtentRef {
    let InodeId { subvolume: root, number: inode } = inode;
    let offset = start.wrapping_sub(part.offset);
    FileExtentRef { root, inode, offset, logical: part.disk, len: part.disk_bytes }
}

#[cfg(test)]
mod tests;
