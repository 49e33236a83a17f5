//! Ranges against a model: a list with the content of each sector.

use proptest::prelude::*;
use userbtrfs_codec::compress::Compression;
use userbtrfs_format::Logical;

use super::*;
use crate::inode::InlineData;
use crate::units::SECTOR;

/// The number of sectors of a file.
const SECTORS: u64 = 24;
/// The size of an extent in bytes.
const EXTENT: u64 = SECTORS * SECTOR;

/// Returns a range of the extent of this number, which starts `ahead` sectors before the file.
fn extent(number: u64, ahead: u64, start: u64, end: u64) -> RegularExtent {
    RegularExtent {
        disk: Logical(number << 20),
        disk_bytes: 2 * EXTENT,
        offset: (start + ahead) * SECTOR,
        bytes: (end - start) * SECTOR,
        ram_bytes: 2 * EXTENT,
    }
}

fn range(start: u64, end: u64, kind: ExtentMapKind) -> ExtentMap {
    ExtentMap { start: start * SECTOR, end: end * SECTOR, kind }
}

/// Ranges, and a count of their references.
#[derive(Default)]
struct Counted {
    changes: ExtentChanges,
    references: i64,
}

impl Counted {
    fn insert(&mut self, extent: ExtentMap) {
        self.references += i64::from(extent.kind.on_disk().is_some());
        let replaced = self.changes.insert(extent);
        self.count(&replaced);
    }

    fn count(&mut self, replaced: &[Replaced]) {
        for replaced in replaced {
            self.references += i64::try_from(replaced.remnants).unwrap() - 1;
        }
    }

    fn ranges(&self) -> Vec<ExtentMap> {
        self.changes.starting(0, u64::MAX).collect()
    }
}

/// Returns the content of each sector.
fn sectors(ranges: impl Iterator<Item = ExtentMap>) -> Vec<Option<ExtentMapKind>> {
    let mut sectors = vec![None; usize::try_from(SECTORS).unwrap()];
    for range in ranges {
        let count = range.end.min(EXTENT) - range.start;
        for at in (0..count).step_by(usize::try_from(SECTOR).unwrap()) {
            let sector = &mut sectors[usize::try_from((range.start + at) / SECTOR).unwrap()];
            assert_eq!(sector.replace(range.kind.part(at, SECTOR)), None, "ranges are disjoint");
        }
    }
    sectors
}

fn kinds() -> impl Strategy<Value = (u64, u64, ExtentMapKind)> {
    let ends = (0..SECTORS, 1..=SECTORS / 2);
    let ends = ends.prop_map(|(start, len)| (start, (start + len).min(SECTORS)));
    (ends, 0..5_u8, 1..3_u64, 0..2_u64).prop_map(|((start, end), kind, number, ahead)| {
        let extent = extent(number, ahead, start, end);
        match kind {
            0 => (start, end, ExtentMapKind::Hole),
            1 => (start, end, ExtentMapKind::Prealloc(extent)),
            2 => (start, end, ExtentMapKind::Regular(extent, Some(Compression::Zstd))),
            3 => (start, end, ExtentMapKind::Regular(extent, None)),
            _ => (0, 1, ExtentMapKind::Inline(InlineData::plain(*b"inline"))),
        }
    })
}

proptest! {
    #[test]
    fn what_was_put_last_stands_and_each_range_is_one_reference(
        puts in prop::collection::vec(kinds(), 1..20),
        asked in (0..EXTENT, 0..EXTENT),
    ) {
        let mut counted = Counted::default();
        let mut model = sectors(std::iter::empty());
        for (start, end, kind) in puts {
            let put = range(start, end, kind);
            for (at, sector) in sectors(std::iter::once(put.clone())).into_iter().enumerate() {
                model[at] = sector.or(model[at].take());
            }
            counted.insert(put);
            let ranges = counted.ranges();
            prop_assert_eq!(&sectors(ranges.iter().cloned()), &model);
            prop_assert!(ranges.iter().all(ExtentMap::is_sound));
            let of_extents = ranges.iter().filter(|range| range.kind.on_disk().is_some());
            prop_assert_eq!(of_extents.count(), usize::try_from(counted.references).unwrap());
            let joined = |pair: &[ExtentMap]| {
                pair[0].end == pair[1].start && pair[0].kind.joined(&pair[1].kind).is_some()
            };
            prop_assert!(!ranges.windows(2).any(joined), "neighbours that go on are one");
        }
        let start = asked.0.min(asked.1);
        let end = asked.0.max(asked.1);
        let found = flattened([&counted.changes].into_iter(), start, end);
        let first = usize::try_from(start / SECTOR).unwrap();
        let last = usize::try_from(end.div_ceil(SECTOR)).unwrap();
        for (at, sector) in sectors(found.into_iter()).iter().enumerate() {
            let expected = model[at].as_ref().filter(|_| (first..last).contains(&at));
            prop_assert_eq!(sector.as_ref(), expected);
        }
        for at in 0..SECTORS {
            let ranges = counted.ranges();
            let next = ranges.iter().find(|range| range.end > at * SECTOR);
            let next = next.map(|range| range.start);
            prop_assert_eq!(counted.changes.next_from(at * SECTOR), next);
        }
        let replaced = counted.changes.drain();
        counted.count(&replaced);
        prop_assert_eq!(counted.references, 0);
    }

    #[test]
    fn the_newer_of_two_sets_is_seen_first(
        older in prop::collection::vec(kinds(), 0..6),
        newer in prop::collection::vec(kinds(), 0..6),
    ) {
        let set = |puts: Vec<(u64, u64, ExtentMapKind)>| {
            let mut counted = Counted::default();
            for (start, end, kind) in puts {
                counted.insert(range(start, end, kind));
            }
            counted.changes
        };
        let older = set(older);
        let newer = set(newer);
        let found = flattened([&newer, &older].into_iter(), 0, EXTENT);
        prop_assert!(found.is_sorted_by(|a, b| a.end <= b.start));
        let all = |set: &ExtentChanges| sectors(set.starting(0, EXTENT));
        let below = all(&older);
        let above = all(&newer);
        let expected: Vec<_> = above.into_iter().zip(below).map(|(a, b)| a.or(b)).collect();
        prop_assert_eq!(sectors(found.into_iter()), expected);
    }
}

#[test]
fn hole_is_merged_with_following_hole_to_max_offset() {
    let mut counted = Counted::default();
    counted.insert(range(2, 4, ExtentMapKind::Regular(extent(1, 0, 2, 4), None)));
    counted.insert(ExtentMap { start: 3 * SECTOR, end: u64::MAX, kind: ExtentMapKind::Hole });
    counted.insert(range(2, 3, ExtentMapKind::Hole));
    let hole = ExtentMap { start: 2 * SECTOR, end: u64::MAX, kind: ExtentMapKind::Hole };
    assert_eq!((counted.ranges(), counted.references), (vec![hole], 0));
}

/// A file may be truncated after a reader took its size.
#[test]
fn reversed_range_is_empty() {
    let mut counted = Counted::default();
    counted.insert(range(0, 8, ExtentMapKind::Regular(extent(1, 0, 0, 8), None)));
    let between = |start, end| flattened([&counted.changes].into_iter(), start, end);
    assert_eq!(between(4 * SECTOR, 2 * SECTOR), []);
    assert_eq!(between(4 * SECTOR, 4 * SECTOR), []);
    assert_eq!(between(4 * SECTOR, 5 * SECTOR).len(), 1);
}
