//! Block groups: free, pinned and withheld ranges.

use userbtrfs_format::{BlockGroupFlags, Physical, Profile};
use uuid::Uuid;

use super::*;

const MIB: u64 = 1 << 20;
const UNIT: u64 = 16 << 10;

fn chunk(logical: u64, len: u64, stripes: &[u64]) -> Chunk {
    let stripe = |&at: &u64| Stripe { device: 1, physical: Physical(at), device_uuid: Uuid::nil() };
    Chunk {
        logical: Logical(logical),
        len,
        owner: 2,
        stripe_len: STRIPE_LEN,
        flags: BlockGroupFlags::METADATA,
        profile: Profile::Single,
        io_align: 0,
        io_width: 0,
        sector_size: 4096,
        sub_stripes: 1,
        stripes: stripes.iter().map(stripe).collect(),
    }
}

fn free(ranges: &[(u64, u64)]) -> FreeRanges {
    let mut free = FreeRanges::new(UNIT);
    for &(start, len) in ranges {
        free.insert(start, len).unwrap();
    }
    free
}

#[test]
fn superblock_mirrors_are_never_given_out_in_either_stripe() {
    let stripes = [60 * MIB, 64 * MIB - 32 * 1024];
    let mut group = BlockGroup::new(chunk(100 * MIB, 8 * MIB, &stripes), UNIT);
    let mirrors: Vec<_> = group.withheld.iter().collect();
    assert_eq!(mirrors, [(100 * MIB + 32 * 1024, STRIPE_LEN), (104 * MIB, STRIPE_LEN)]);
    assert_eq!(group.totals().free, 8 * MIB - 2 * STRIPE_LEN);
    while let Some((Logical(at), len)) = group.allocate(UNIT, UNIT) {
        assert!(mirrors.iter().all(|(start, run)| at + len <= *start || at >= start + run));
    }
    assert_eq!(group.totals().free, 0);
    assert!(group.pin(Logical(104 * MIB), UNIT).is_err());
}

#[test]
fn stripes_that_begin_or_end_in_a_mirror_count_what_lies_in_it() {
    let at = 8 * MIB;
    let primary = BlockGroup::new(chunk(at, 4 * MIB, &[STRIPE_LEN]), UNIT);
    assert_eq!(primary.withheld.iter().collect::<Vec<_>>(), [(at, STRIPE_LEN)]);
    let begins = BlockGroup::new(chunk(at, MIB, &[64 * MIB + 16 * 1024]), UNIT);
    assert_eq!(begins.withheld.iter().collect::<Vec<_>>(), [(at, 48 * 1024)]);
    let ends = BlockGroup::new(chunk(at, MIB, &[63 * MIB + 4096]), UNIT);
    assert_eq!(ends.withheld.iter().collect::<Vec<_>>(), [(at + MIB - 4096, 4096)]);
    let neither = BlockGroup::new(chunk(at, MIB, &[63 * MIB]), UNIT);
    assert_eq!(neither.withheld.total(), 0);
}

#[test]
fn free_and_used_bytes_must_be_all_bytes() {
    let mut group = BlockGroup::existing(chunk(MIB, MIB, &[MIB]), 2 * UNIT, UNIT);
    let wrong = SpaceDamage::Used { start: Logical(MIB), len: MIB, used: 2 * UNIT, free: 3 * UNIT };
    assert_eq!(group.load(free(&[(MIB, 3 * UNIT)])), Err(wrong));
    assert!(group.can_load() && group.totals().unloaded == MIB - 2 * UNIT);
    assert_eq!(group.load(free(&[(MIB + 2 * UNIT, MIB - 2 * UNIT)])), Ok(()));
    assert_eq!((group.totals().free, group.totals().unloaded), (MIB - 2 * UNIT, 0));
}

#[test]
fn range_pinned_before_load_stays_pinned() {
    let at = Logical(MIB);
    let mut group = BlockGroup::existing(chunk(MIB, MIB, &[MIB]), UNIT, UNIT);
    group.pin(at, UNIT).unwrap();
    group.account(at, UNIT, false).unwrap();
    group.load(free(&[(MIB, MIB)])).unwrap();
    assert_eq!(group.totals().free, MIB - UNIT);
    assert!(!group.is_empty());
    group.unpin(at, UNIT);
    assert_eq!(group.totals().free, MIB);
    assert!(group.is_empty());
}

#[test]
fn freeing_range_not_in_use_fails() {
    let mut group = BlockGroup::new(chunk(MIB, MIB, &[MIB]), UNIT);
    let (at, len) = group.allocate(UNIT, UNIT).unwrap();
    let not_in_use = |logical, len| Err(SpaceDamage::NotInUse { logical, len });
    let next = Logical(at.0 + len);
    assert_eq!(group.pin(next, UNIT), not_in_use(next, UNIT));
    assert_eq!(group.give_back(at, 2 * UNIT), not_in_use(at, 2 * UNIT));
    assert_eq!(group.pin(at, UNIT), Ok(()));
    assert_eq!(group.pin(at, UNIT), not_in_use(at, UNIT));
    assert_eq!(group.give_back(at, UNIT), not_in_use(at, UNIT));
    let outside = Logical(3 * MIB);
    assert_eq!(group.pin(outside, UNIT), not_in_use(outside, UNIT));
    assert_eq!(group.account(at, 1, false), not_in_use(at, 1));
}

#[test]
fn unaligned_group_allocates_nothing() {
    let group = BlockGroup::existing(chunk(MIB + 4096, MIB, &[MIB]), 0, UNIT);
    assert!(!group.can_load());
    assert_eq!((group.totals().free, group.totals().unloaded), (0, 0));
}

#[test]
fn take_at_succeeds_only_if_whole_range_is_free() {
    let mut group = BlockGroup::new(chunk(MIB, MIB, &[100 * MIB]), UNIT);
    let at = |units: u64| Logical(MIB + units * UNIT);
    assert!(group.take_at(at(3), 2 * UNIT));
    assert!(!group.take_at(at(4), 2 * UNIT) && !group.take_at(at(2), 2 * UNIT));
    assert!(group.take_at(at(5), UNIT) && group.take_at(at(2), UNIT));
    assert_eq!(group.totals().free, MIB - 4 * UNIT);
    assert!(!group.take_at(at(63), 2 * UNIT), "beyond the end");
    assert!(!group.take_at(Logical(u64::MAX - 1), UNIT));
    group.pin(at(3), 2 * UNIT).unwrap();
    assert!(!group.take_at(at(3), 2 * UNIT), "pinned");
    group.unpin(at(3), 2 * UNIT);
    assert!(group.take_at(at(3), 2 * UNIT));
}

#[test]
fn first_64_kib_of_device_and_of_addresses_are_never_allocated() {
    let withheld = |logical, len, stripes: &[u64]| {
        BlockGroup::new(chunk(logical, len, stripes), UNIT).withheld.iter().collect::<Vec<_>>()
    };
    assert_eq!(withheld(0, 4 * MIB, &[0]), [(0, 2 * STRIPE_LEN)]);
    assert_eq!(withheld(0, 4 * MIB, &[8 * MIB]), [(0, STRIPE_LEN)]);
    assert_eq!(withheld(0, 4096, &[8 * MIB]), [(0, 4096)]);
    assert_eq!(withheld(4096, MIB, &[8 * MIB]), [(4096, STRIPE_LEN - 4096)]);
    assert_eq!(withheld(MIB, MIB, &[8 * MIB, 0]), [(MIB, 2 * STRIPE_LEN)]);
    assert_eq!(withheld(MIB, MIB, &[32 * 1024]), [(MIB, STRIPE_LEN + 32 * 1024)]);
    let mut group = BlockGroup::new(chunk(0, MIB, &[0]), UNIT);
    assert!(!group.take_at(Logical(0), UNIT));
    assert_eq!(group.allocate(UNIT, UNIT), Some((Logical(2 * STRIPE_LEN), UNIT)));
}

#[test]
fn extent_in_withheld_range_is_freed_and_not_allocated_again() {
    for pinned_first in [false, true] {
        let mut group = BlockGroup::existing(chunk(0, MIB, &[0]), 2 * UNIT, UNIT);
        let at = Logical(2 * STRIPE_LEN - UNIT);
        if pinned_first {
            group.pin(at, 2 * UNIT).unwrap();
        }
        let rest = at.0 + 2 * UNIT;
        group.load(free(&[(0, at.0), (rest, MIB - rest)])).unwrap();
        if !pinned_first {
            group.pin(at, 2 * UNIT).unwrap();
        }
        assert_eq!(group.totals().free, MIB - rest);
        group.unpin(at, 2 * UNIT);
        assert_eq!(group.totals().free, MIB - 2 * STRIPE_LEN);
        assert_eq!(group.totals().total, MIB - 2 * STRIPE_LEN);
        assert!(group.pin(at, UNIT).is_err());
        group.account(at, 2 * UNIT, false).unwrap();
        assert!(group.is_empty());
    }
}

/// Returns a group whose free ranges are these, whatever else it knows of them.
fn with_free(mut group: BlockGroup, free: FreeRanges) -> BlockGroup {
    group.free = Some(free);
    group
}

/// Returns a group in which nothing is free.
fn full_group() -> BlockGroup {
    let mut group = BlockGroup::existing(chunk(100 * MIB, MIB, &[8 * MIB]), MIB, UNIT);
    group.load(free(&[])).unwrap();
    group
}

#[test]
#[should_panic(expected = "are pinned")]
fn allocation_of_pinned_range_panics() {
    let mut group = full_group();
    group.pin(Logical(100 * MIB), UNIT).unwrap();
    with_free(group, free(&[(100 * MIB, UNIT)])).allocate(UNIT, UNIT);
}

#[test]
#[should_panic(expected = "are pinned")]
fn allocation_of_pinned_range_behind_the_last_panics() {
    let mut group = with_free(full_group(), free(&[(100 * MIB, 2 * UNIT)]));
    group.allocate(UNIT, UNIT).unwrap();
    group.pinned.insert(100 * MIB + UNIT, UNIT).unwrap();
    group.allocate_behind(UNIT, UNIT, UNIT);
}

#[test]
#[should_panic(expected = "are withheld")]
fn allocation_of_superblock_mirror_panics() {
    let group = BlockGroup::existing(chunk(100 * MIB, 8 * MIB, &[64 * MIB]), 0, UNIT);
    with_free(group, free(&[(100 * MIB, STRIPE_LEN)])).allocate(UNIT, UNIT);
}

#[test]
#[should_panic(expected = "no multiple of the unit")]
fn allocation_of_misaligned_range_panics() {
    let mut sectors = FreeRanges::new(4096);
    sectors.insert(100 * MIB + 4096, UNIT).unwrap();
    with_free(full_group(), sectors).allocate(UNIT, UNIT);
}
