//! The contents of files that a damaged log does not have.
//!
//! 1. A block that cannot be read is known by the range of its keys, which its parent has. Whatever
//!    items of that range the log had may be missing.
//! 2. All damage that concerns contents is known before the first inode changes.

use std::collections::BTreeMap;
use std::ops::Range;

use userbtrfs_format::{ItemKind, Key};
use userbtrfs_transaction::RangeSet;

use crate::log::items::KeyRange;

/// The contents in a log that cannot be read.
#[derive(Default)]
pub(super) struct Missing {
    /// Keys of blocks that cannot be read.
    gaps: Vec<KeyRange>,
    /// By inode: the ranges of damaged items.
    ranges: BTreeMap<u64, RangeSet>,
}

impl Missing {
    pub(super) fn of(gaps: &[KeyRange]) -> Self {
        Self { gaps: gaps.to_vec(), ranges: BTreeMap::new() }
    }

    pub(super) fn add_gap(&mut self, gap: KeyRange) {
        self.gaps.push(gap);
    }

    pub(super) fn add_range(&mut self, inode: u64, range: Range<u64>) {
        self.ranges.entry(inode).or_default().insert(range);
    }

    /// Returns what is missing of a file of this size, in order and without overlaps.
    pub(super) fn in_file(&self, inode: u64, size: u64) -> Vec<Range<u64>> {
        let gaps = self.gaps.iter().filter_map(|gap| in_gap(gap, inode));
        let mut missing = self.ranges.get(&inode).cloned().unwrap_or_default();
        missing.extend(gaps);
        missing.remove(size..u64::MAX);
        missing.iter().collect()
    }
}

/// Returns the offsets of the extents of an inode whose keys lie in a gap.
fn in_gap(gap: &KeyRange, inode: u64) -> Option<Range<u64>> {
    let extent = |offset| Key::new(inode, ItemKind::EXTENT_DATA, offset);
    let first = extent(0);
    let last = extent(u64::MAX);
    if gap.first > last || gap.end.is_some_and(|end| end <= first) {
        return None;
    }
    let start = if gap.first < first { 0 } else { gap.first.offset };
    let end = gap.end.filter(|end| *end <= last).map_or(u64::MAX, |end| end.offset);
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(objectid: u64, kind: ItemKind, offset: u64) -> Key {
        Key::new(objectid, kind, offset)
    }

    #[test]
    fn gap_covers_the_extents_whose_keys_lie_in_it() {
        let gap = |first, end| in_gap(&KeyRange { first, end }, 300);
        let extent = |offset| key(300, ItemKind::EXTENT_DATA, offset);
        let before = key(300, ItemKind::XATTR_ITEM, 7);
        let after = key(301, ItemKind::INODE_ITEM, 0);
        assert_eq!(gap(Key::MIN, None), Some(0..u64::MAX));
        assert_eq!(gap(before, Some(extent(8192))), Some(0..8192));
        assert_eq!(gap(extent(4096), Some(after)), Some(4096..u64::MAX));
        assert_eq!(gap(extent(4096), Some(extent(8192))), Some(4096..8192));
        assert_eq!(gap(after, None), None);
        assert_eq!(gap(before, Some(extent(0))), None);
    }

    #[test]
    fn missing_ranges_of_a_file_are_joined_and_end_with_it() {
        let mut missing = Missing::default();
        for range in [8192..12288, 0..4096, 4096..6000, 20_000..u64::MAX] {
            missing.add_range(300, range);
        }
        assert_eq!(missing.in_file(300, 30_000), [0..6000, 8192..12288, 20_000..30_000]);
        assert_eq!(missing.in_file(300, 9000), [0..6000, 8192..9000]);
        assert_eq!(missing.in_file(300, 0), []);
        assert_eq!(missing.in_file(301, 30_000), []);
    }
}
