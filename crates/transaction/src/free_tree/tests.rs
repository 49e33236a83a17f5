//! The free space tree, compared with a list of sectors.

mod golden;

use std::ops::Range;

use proptest::prelude::*;
use userbtrfs_format::{FreeSpaceInfo, ItemKind, Key};

use super::bitmaps::{BITMAP_SIZE, COVERED};
use super::convert::Limits;
use super::group::{USING_BITMAPS, info, info_key};
use super::*;
use crate::damage::Damage;
use crate::editor::Items;
use crate::editor::map::MapItems;
use crate::error::Error;
use crate::units::SECTOR;

/// Returns the free ranges of a group; checks their count in the tree.
pub(crate) fn load_in(items: &impl Items, group: &Range<u64>) -> Result<Vec<Range<u64>>> {
    let info = info(items, group)?;
    let free = if info.flags == USING_BITMAPS {
        bitmaps::runs(&bitmaps::load(items, group, group)?)
    } else {
        extents::load(items, group)?
    };
    assert_eq!(u64::from(info.extent_count), free.len() as u64, "in group {group:?}");
    Ok(free)
}

/// Asserts that the free ranges of a group are what no extent uses; returns them.
pub(crate) fn check_group(
    free: &impl Items,
    extents: &impl Items,
    group: &Range<u64>,
    nodesize: u32,
) -> Vec<Range<u64>> {
    let found = load_in(free, group).expect("no damage");
    let unused = rebuild::unused(extents, group, u64::from(nodesize)).expect("no damage");
    assert_eq!(found, unused, "in group {group:?}");
    found
}

const START: u64 = 1 << 30;

/// A group, its items in a tree, and which of its sectors are free.
struct Model {
    items: MapItems,
    group: Range<u64>,
    free: Vec<bool>,
}

impl Model {
    /// A group between two others, all of it free.
    fn new(sectors: u64) -> Self {
        let group = START..START + sectors * SECTOR;
        let mut items = MapItems::default();
        let neighbours = [START - COVERED..START, group.end..group.end + COVERED];
        for group in [&neighbours[0], &group, &neighbours[1]] {
            add_group_in(&mut items, group, std::slice::from_ref(group)).expect("room");
        }
        Self { items, group, free: vec![true; usize::try_from(sectors).expect("small")] }
    }

    fn range(&self, sectors: &Range<usize>) -> Range<u64> {
        let at = |sector: usize| self.group.start + sector as u64 * SECTOR;
        at(sectors.start)..at(sectors.end)
    }

    fn change_range(&mut self, sectors: Range<usize>) {
        let change =
            if self.free[sectors.start] { RangeChange::Allocated } else { RangeChange::Freed };
        let range = self.range(&sectors);
        super::change_range(&mut self.items, &self.group, &range, change).expect("no damage");
        self.free[sectors].iter_mut().for_each(|free| *free = !*free);
    }

    /// Flips at most `len` sectors from `start` on that have the same state.
    fn turn_alike(&mut self, start: usize, len: usize) {
        let start = start % self.free.len();
        let alike = self.free[start..].iter().take(len);
        let len = alike.take_while(|free| **free == self.free[start]).count();
        self.change_range(start..start + len);
    }

    fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for sector in (0..self.free.len()).filter(|sector| self.free[*sector]) {
            match runs.last_mut() {
                Some(run) if run.end == sector => run.end += 1,
                _ => runs.push(sector..sector + 1),
            }
        }
        runs.iter().map(|run| self.range(run)).collect()
    }

    fn info(&self) -> FreeSpaceInfo {
        info(&self.items, &self.group).expect("it is there")
    }

    /// Checks that the items match the model, in one form, and that the groups beside are
    /// unchanged.
    fn check(&self) {
        assert_eq!(load_in(&self.items, &self.group).expect("no damage"), self.runs());
        let own = self.items.0.range(Key::new(self.group.start, ItemKind(0), 0)..);
        let kinds: Vec<_> = own
            .take_while(|(key, _)| key.objectid < self.group.end)
            .map(|(key, _)| key.kind)
            .filter(|kind| *kind != ItemKind::FREE_SPACE_INFO)
            .collect();
        let bitmaps = (self.group.end - self.group.start).div_ceil(COVERED);
        let (kind, count) = match self.info().flags {
            USING_BITMAPS => (ItemKind::FREE_SPACE_BITMAP, bitmaps),
            _ => (ItemKind::FREE_SPACE_EXTENT, self.runs().len() as u64),
        };
        assert_eq!(kinds.len() as u64, count);
        assert!(kinds.iter().all(|found| *found == kind));
        for group in [START - COVERED..START, self.group.end..self.group.end + COVERED] {
            assert_eq!(load_in(&self.items, &group).expect("no damage"), [group]);
        }
    }
}

proptest! {
    /// 12 MiB: a full bitmap and a half, and 22 ranges before it is converted to them.
    #[test]
    fn any_turns_give_what_a_list_of_sectors_gives(
        sectors in prop_oneof![Just(3072u64), Just(3069), Just(40)],
        changes in prop::collection::vec((any::<usize>(), 1usize..400), 1..120),
    ) {
        let mut model = Model::new(sectors);
        for (start, len) in changes {
            model.turn_alike(start, len);
            model.check();
        }
    }
}

#[test]
fn form_changes_with_hysteresis() {
    let mut model = Model::new(16 * 2048);
    let limits = Limits::of(&model.group);
    assert_eq!(limits, Limits { bitmaps_above: 179, ranges_below: 79 });
    model.change_range(0..32768);
    for run in 1..=200 {
        model.change_range(run * 100..run * 100 + 50);
        assert_eq!(model.info().flags == USING_BITMAPS, run > 179, "at {run} runs");
    }
    model.check();
    for left in (0..200).rev() {
        let run = left + 1;
        model.change_range(run * 100..run * 100 + 50);
        assert_eq!(model.info().flags == USING_BITMAPS, left >= 79, "at {left} runs");
    }
    model.check();
}

#[test]
fn runs_join_across_bitmaps() {
    let mut model = Model::new(2 * 2048);
    model.change_range(0..4096);
    for run in 0..30 {
        model.change_range(run * 10..run * 10 + 1);
    }
    assert_eq!(model.info(), FreeSpaceInfo { extent_count: 30, flags: USING_BITMAPS });
    model.change_range(2040..2048);
    model.change_range(2048..2060);
    assert_eq!(model.info().extent_count, 31);
    model.change_range(2047..2049);
    assert_eq!(model.info().extent_count, 32);
    model.check();
}

#[test]
fn a_group_with_many_ranges_begins_with_bitmaps() {
    let model = Model::new(2 * 2048);
    let free: Vec<_> = (0..50).map(|run| model.range(&(run * 70..run * 70 + 3))).collect();
    let mut items = model.items;
    add_group_in(&mut items, &model.group, &free).expect("room");
    assert_eq!(load_in(&items, &model.group).expect("no damage"), free);
    let key = Key::new(START, ItemKind::FREE_SPACE_BITMAP, COVERED);
    assert_eq!(items.0[&key].len(), BITMAP_SIZE);
    clear(&mut items, &model.group).expect("no damage");
    assert_eq!(items.0.len(), 4, "the groups beside stay");
}

#[test]
fn new_group_replaces_items_of_old_one() {
    let mut items = MapItems::default();
    let old = START + COVERED..START + 3 * COVERED;
    add_group_in(&mut items, &old, std::slice::from_ref(&old)).expect("room");
    let new = START..START + 2 * COVERED;
    add_group_in(&mut items, &new, std::slice::from_ref(&new)).expect("room");
    assert_eq!(load_in(&items, &new).expect("no damage"), std::slice::from_ref(&new));
    assert_eq!(items.0.len(), 2);
}

fn damage(result: Result<()>) -> Damage {
    match result {
        Err(Error::Damaged(damage)) => damage,
        other => panic!("{other:?} is not damage"),
    }
}

#[test]
fn impossible_change_is_damage_in_both_forms() {
    for bitmaps in [false, true] {
        let mut model = Model::new(2 * 2048);
        for run in 0..if bitmaps { 60 } else { 4 } {
            model.change_range(run * 20..run * 20 + 10);
        }
        assert_eq!(model.info().flags == USING_BITMAPS, bitmaps);
        let group = model.group.clone();
        let across = model.range(&(25..35));
        let start = across.start;
        let len = across.end - across.start;
        let before = model.items.clone();
        let found = damage(change_range(&mut model.items, &group, &across, RangeChange::Allocated));
        assert_eq!(found, Damage::NotFree { start, len });
        let found = damage(change_range(&mut model.items, &group, &across, RangeChange::Freed));
        assert_eq!(found, Damage::AlreadyFree { start, len });
        assert_eq!(model.items, before, "nothing was changed");
    }
}

#[test]
fn a_group_that_is_not_there_is_damage() {
    let mut model = Model::new(2048);
    let group = model.group.start..model.group.end - SECTOR;
    let range = model.range(&(0..1));
    let found = damage(change_range(&mut model.items, &group, &range, RangeChange::Allocated));
    assert_eq!(found, Damage::NoFreeSpaceInfo { start: START, len: COVERED - SECTOR });
}

#[test]
fn a_wrong_count_is_damage() {
    let mut model = Model::new(2048);
    let info = FreeSpaceInfo { extent_count: 0, flags: 0 };
    let group = model.group.clone();
    model.items.0.insert(info_key(&group), info.encode().to_vec());
    let found = damage(change_range(&mut model.items, &group, &group, RangeChange::Allocated));
    assert_eq!(found, Damage::FreeRangeCount { start: START, count: 0 });
}

#[test]
fn a_missing_bitmap_is_damage() {
    let mut model = Model::new(2 * 2048);
    for run in 0..60 {
        model.change_range(run * 20..run * 20 + 10);
    }
    model.items.0.remove(&Key::new(START + COVERED, ItemKind::FREE_SPACE_BITMAP, COVERED));
    let found = damage(load_in(&model.items, &model.group).map(drop));
    assert_eq!(found, Damage::FreeSpaceItem(info_key(&model.group)));
}

#[test]
fn items_of_two_forms_are_damage() {
    let mut model = Model::new(2048);
    let stray = Key::new(START + SECTOR, ItemKind::FREE_SPACE_BITMAP, SECTOR);
    model.items.0.insert(stray, vec![0]);
    let found = damage(load_in(&model.items, &model.group).map(drop));
    assert_eq!(found, Damage::FreeSpaceItem(stray));
}

#[test]
fn rebuilt_tree_has_free_ranges_that_no_extent_uses() {
    let mut extents = MapItems::default();
    let mut add = |at: u64, kind, offset| extents.0.insert(Key::new(at, kind, offset), vec![]);
    add(START - COVERED, ItemKind::EXTENT_ITEM, COVERED);
    add(START, ItemKind::METADATA_ITEM, 1);
    add(START, ItemKind::TREE_BLOCK_REF, 5);
    add(START, ItemKind::BLOCK_GROUP_ITEM, COVERED);
    add(START + 4 * SECTOR, ItemKind::METADATA_ITEM, 0);
    add(START + 9 * SECTOR, ItemKind::EXTENT_ITEM, 3 * SECTOR);
    add(START + COVERED, ItemKind::EXTENT_ITEM, SECTOR);
    let group = START..START + COVERED;
    let mut items = Model::new(100).items;
    let nodesize = u32::try_from(4 * SECTOR).expect("small");
    rebuild::rebuild(&extents, &mut items, std::slice::from_ref(&group), nodesize).expect("sound");
    let free = load_in(&items, &group).expect("no damage");
    assert_eq!(free, [START + 8 * SECTOR..START + 9 * SECTOR, START + 12 * SECTOR..group.end]);
    assert_eq!(items.0.len(), 3, "nothing else is left");

    let overlapping = Key::new(START + 10 * SECTOR, ItemKind::EXTENT_ITEM, SECTOR);
    extents.0.insert(overlapping, vec![]);
    let found = damage(rebuild::unused(&extents, &group, 4 * SECTOR).map(drop));
    assert_eq!(found, Damage::ExtentItem(overlapping));
}
