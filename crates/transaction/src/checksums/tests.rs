//! Checksums that are added, removed and pending, compared with a map of sectors.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use userbtrfs_btree::ItemEdit;
use userbtrfs_format::{ItemKind, Key};

use super::insert::insert_in;
use super::*;
use crate::editor::ItemVisitor;
use crate::editor::map::MapItems;
use crate::units::SECTOR;

const SIZE: usize = 4;

/// Returns items with the checksums of runs of sectors, each checksum its sector's number.
fn items(runs: &[(u64, u64)]) -> (MapItems, BTreeMap<u64, u32>) {
    let mut items = MapItems::default();
    let mut sums = BTreeMap::new();
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

/// Returns the checksums in the items; panics if they overlap.
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

/// Items that are checked after each change of one, as readers may see them while leaves are
/// changed one after the other: the sectors in `kept` have a checksum at any time.
struct Watched {
    items: MapItems,
    kept: BTreeSet<u64>,
}

impl Items for Watched {
    fn visit(&self, from: &Key, see: &mut ItemVisitor<'_>) -> Result<()> {
        self.items.visit(from, see)
    }
}

impl EditItems for Watched {
    fn apply(&mut self, changes: Changes) -> Result<()> {
        for edit in changes.into_edits() {
            let mut change = Changes::default();
            match edit {
                ItemEdit::Put(key, data) => change.put(key, data),
                ItemEdit::Remove(key) => change.remove(key),
            }
            self.items.apply(change)?;
            for sector in &self.kept {
                let before = self.items.0.range(..=key(sector * SECTOR)).next_back();
                let (at, data) = before.expect("there are items before all checksums");
                let end = at.offset / SECTOR + (data.len() / SIZE) as u64;
                assert!(at.objectid == CSUM_OBJECTID && *sector < end, "sector {sector} has none");
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn what_stays_has_its_checksum_also_while_others_are_removed(
        runs in prop::collection::vec((0u64..3, 1u64..6), 0..8),
        start in 0u64..40,
        len in 1u64..30,
    ) {
        let (items, mut sums) = items(&runs);
        sums.retain(|sector, _| !(start..start + len).contains(sector));
        let kept = sums.keys().copied().collect();
        let mut watched = Watched { items, kept };
        remove_in(&mut watched, start * SECTOR..(start + len) * SECTOR, SIZE).expect("no damage");
        prop_assert_eq!(held(&watched.items), sums);
    }

    #[test]
    fn what_is_there_has_its_checksum_also_while_others_are_added(
        before in prop::collection::vec((0u64..6, 1u64..12), 1..8),
        most in 12usize..16,
    ) {
        let (items, sums) = items(&before);
        let kept = sums.keys().copied().collect();
        let mut watched = Watched { items, kept };
        // The gaps are filled.
        let last = sums.keys().next_back().copied().unwrap_or(0);
        let mut gaps = runs(&[(0, last + 3)], 0);
        let stored = gaps.remove(&0).expect("just made");
        let runs = (0..last + 3).filter(|sector| !sums.contains_key(sector));
        let index = |sector: u64| usize::try_from(sector).expect("small") * SIZE;
        let run = |sector| (sector * SECTOR, stored[index(sector)..][..SIZE].to_vec());
        let runs: BTreeMap<_, _> = runs.map(run).collect();
        let form = Form { size: SIZE, len_max: most * SIZE };
        insert_in(&mut watched, &runs, form).expect("no damage");
        let all: BTreeMap<_, _> = (0..last + 3).map(|sector| (sector, sum(sector))).collect();
        prop_assert_eq!(held(&watched.items), all);
    }

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
fn removing_middle_of_item_leaves_two() {
    let (mut items, _) = items(&[(0, 9)]);
    remove_in(&mut items, 4 * SECTOR..6 * SECTOR, SIZE).expect("no damage");
    let lens: Vec<_> = items.0.values().map(Vec::len).collect();
    assert_eq!(lens, [1, 3 * SIZE, 4 * SIZE, 1]);
}

/// Returns runs of checksums that depend on the sector and on the turn that adds them.
fn runs(sectors: &[(u64, u64)], turn: u32) -> BTreeMap<u64, Vec<u8>> {
    let stored = |start: u64, len: u64| {
        (start..start + len).flat_map(|sector| (sum(sector) + turn).to_le_bytes()).collect()
    };
    let mut runs = BTreeMap::new();
    let mut next = 0;
    for (gap, len) in sectors {
        let start = next + gap;
        runs.insert(start * SECTOR, stored(start, *len));
        next = start + len;
    }
    runs
}

fn sums_of(runs: &BTreeMap<u64, Vec<u8>>) -> BTreeMap<u64, u32> {
    let of_run = |(start, stored): (&u64, &Vec<u8>)| {
        let sums = stored.chunks_exact(SIZE).map(|sum| sum.try_into().expect("four"));
        (start / SECTOR..).zip(sums.map(u32::from_le_bytes)).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of_run).collect()
}

proptest! {
    #[test]
    fn what_is_added_is_there_once_and_nothing_else_changes(
        before in prop::collection::vec((0u64..3, 1u64..12), 0..8),
        turns in prop::collection::vec(prop::collection::vec((0u64..6, 1u64..30), 1..6), 1..4),
        most in 2usize..12,
    ) {
        let (mut items, mut sums) = items(&before);
        let form = Form { size: SIZE, len_max: most * SIZE };
        let longest = before.iter().map(|(_, len)| *len).max().unwrap_or(0);
        for (turn, sectors) in (1u32..).zip(turns) {
            let runs = runs(&sectors, turn * 1000);
            insert_in(&mut items, &runs, form).expect("no damage");
            sums.extend(sums_of(&runs));
            prop_assert_eq!(&held(&items), &sums);
        }
        let most = form.len_max.max(usize::try_from(longest).expect("small") * SIZE);
        prop_assert!(items.0.values().all(|data| data.len() <= most));
        let others = items.0.keys().filter(|at| at.objectid != CSUM_OBJECTID).count();
        prop_assert_eq!(others, 2);
    }

    #[test]
    fn what_waits_is_found(
        turns in prop::collection::vec(
            (prop::collection::vec((0u64..6, 1u64..9), 1..4), any::<bool>()),
            1..6,
        ),
        start in 0u64..40,
        len in 0u64..30,
    ) {
        let pending = PendingChecksums::new(SIZE);
        let mut sums = BTreeMap::new();
        for (turn, (sectors, forget)) in (1u32..).zip(turns) {
            let runs = runs(&sectors, turn * 1000);
            for (at, stored) in &runs {
                pending.add(Logical(*at), stored);
            }
            sums.extend(sums_of(&runs));
            if forget {
                pending.forget(&(5 * SECTOR..9 * SECTOR));
                sums.retain(|sector, _| !(5..9).contains(sector));
            }
            prop_assert_eq!(pending.bytes(), sums.len() * SIZE);
        }
        let mut found = BTreeMap::new();
        pending.visit(Logical(start * SECTOR), len, |sector, sum| {
            let sum = u32::from_le_bytes(sum.try_into().expect("four"));
            found.insert(start + sector, sum);
        });
        sums.retain(|sector, _| (start..start + len).contains(sector));
        prop_assert_eq!(found, sums);
    }
}

#[test]
fn neighbours_added_in_a_row_share_items() {
    let (mut items, _) = items(&[]);
    let form = Form { size: SIZE, len_max: 10 * SIZE };
    for start in 0..25 {
        insert_in(&mut items, &runs(&[(start, 1)], 0), form).expect("no damage");
    }
    let lens: Vec<_> = items.0.values().map(Vec::len).collect();
    assert_eq!(lens, [1, 10 * SIZE, 10 * SIZE, 5 * SIZE, 1]);
}

#[test]
fn filled_gap_joins_items_around_it() {
    let (mut items, _) = items(&[(0, 3), (2, 3)]);
    let form = Form { size: SIZE, len_max: 10 * SIZE };
    insert_in(&mut items, &runs(&[(4, 2)], 0), form).expect("no damage");
    let lens: Vec<_> = items.0.values().map(Vec::len).collect();
    assert_eq!(lens, [1, 8 * SIZE, 1]);
}

#[test]
fn items_of_every_kind_of_checksum_leave_room_in_their_leaf() {
    for (size, nodesize) in [(4, 4096), (4, 16384), (8, 16384), (32, 16384), (32, 65536)] {
        let len_max = Form::new(size, nodesize).len_max;
        let room = userbtrfs_format::item_len_max(nodesize);
        assert!(len_max.is_multiple_of(size) && len_max + 25 + size <= room, "{size} {nodesize}");
        assert!(len_max + 25 + 3 * size > room, "{size} {nodesize}");
    }
}
