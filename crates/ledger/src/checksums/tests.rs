//! Removed checksums against a map of sectors.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::editor::map::MapItems;

const SECTOR: u64 = SECTOR_SIZE as u64;
const SIZE: usize = 4;

/// Items that hold the checksums of runs of sectors, each checksum its sector's number.
fn items(runs: &[(u64, u64)]) -> (MapItems, BTreeMap<u64, u32>) {
    let (mut items, mut sums) = (MapItems::default(), BTreeMap::new());
    items.0.insert(Key::new(1, ItemKind(1), 0), vec![1]);
    items.0.insert(Key::new(CSUM_OBJECTID + 1, ItemKind(1), 0), vec![2]);
    let mut next = 1;
    for (gap, len) in runs {
        let sectors = next + gap..next + gap + len;
        let data = sectors.clone().flat_map(|sector| sum(sector).to_le_bytes()).collect();
        items.0.insert(key(sectors.start * SECTOR), data);
        sums.extend(sectors.clone().map(|sector| (sector, sum(sector))));
        next = sectors.end;
    }
    (items, sums)
}

fn sum(sector: u64) -> u32 {
    u32::try_from(sector).expect("small")
}

/// What the items hold; panics where they overlap.
fn held(items: &MapItems) -> BTreeMap<u64, u32> {
    let mut sums = BTreeMap::new();
    for (at, data) in items.0.iter().filter(|(at, _)| at.objectid == CSUM_OBJECTID) {
        assert!(!data.is_empty(), "an empty item at {at}");
        for (sector, bytes) in (at.offset / SECTOR..).zip(data.chunks_exact(SIZE)) {
            let before = sums.insert(sector, u32::from_le_bytes(bytes.try_into().expect("four")));
            assert_eq!(before, None, "sector {sector} has two checksums");
        }
    }
    sums
}

proptest! {
    #[test]
    fn what_is_removed_is_gone_and_the_rest_stays(
        runs in prop::collection::vec((0u64..3, 1u64..6), 0..8),
        start in 0u64..40,
        len in 1u64..30,
    ) {
        let (mut items, mut sums) = items(&runs);
        remove_in(&mut items, start * SECTOR..(start + len) * SECTOR, SIZE).expect("no damage");
        sums.retain(|sector, _| !(start..start + len).contains(sector));
        prop_assert_eq!(held(&items), sums);
        let others = items.0.keys().filter(|at| at.objectid != CSUM_OBJECTID).count();
        prop_assert_eq!(others, 2);
    }
}

#[test]
fn the_middle_of_an_item_leaves_two() {
    let (mut items, _) = items(&[(0, 9)]);
    remove_in(&mut items, 4 * SECTOR..6 * SECTOR, SIZE).expect("no damage");
    let lens: Vec<_> = items.0.values().map(Vec::len).collect();
    assert_eq!(lens, [1, 3 * SIZE, 4 * SIZE, 1]);
}
