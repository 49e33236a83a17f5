//! Items of the extent tree, compared with a sum of references.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use userbtrfs_btree::{Backref, Extent};
use userbtrfs_codec::hash::extent_data_ref_hash;
use userbtrfs_format::{
    ExtentFlags, ExtentItem, InlineRef, ItemKind, Key, KeyedRef, Logical, MetadataLevel, TreeId,
};

use super::super::run::{Form, find, run_in};
use super::super::{Head, Outcome};
use crate::damage::Damage;
use crate::editor::map::MapItems;
use crate::error::{Error, Result};

const AT: Logical = Logical(1 << 30);
const NODESIZE: u32 = 4096;
/// The most bytes of an extent item that may still grow, in nodes of 4 KiB.
const ITEM_LIMIT: usize = 224;
const FORM: Form = Form { nodesize: NODESIZE, skinny: true, generation: 9 };
const DATA: Extent = Extent::Data { logical: AT, len: 1 << 16 };

/// Returns a head with these changes of references.
fn head(extent: Extent, fresh: bool, changes: &[(Backref, i64)]) -> Head {
    let changes = changes.iter().copied().collect();
    Head { extent, fresh, changes, set_full_backref: false, conflicting: false }
}

/// Returns the backref of file `number`. Offsets that differ by a multiple of the polynomial of
/// CRC-32C have the same hash.
fn file(number: u64) -> Backref {
    const MULTIPLE: u64 = (1 | (0x82f6_3b78 << 1)) << 12;
    let colliding = [0, MULTIPLE, MULTIPLE << 1, MULTIPLE ^ (MULTIPLE << 1)];
    let [alike, inode] = [number % 4, number / 4];
    let offset = colliding[usize::try_from(alike).expect("small")];
    Backref::File { root: TreeId::FS, inode: 257 + inode, offset }
}

fn user_of(inline: &InlineRef) -> Backref {
    match *inline {
        InlineRef::TreeBlock(tree) => Backref::Tree(tree),
        InlineRef::SharedBlock(parent) => Backref::Parent(parent),
        InlineRef::SharedData { parent, .. } => Backref::SharedLeaf(parent),
        InlineRef::ExtentData { root, inode, offset, .. } => Backref::File { root, inode, offset },
        InlineRef::Owner(_) => panic!("no test makes one"),
    }
}

fn keyed_user(key: Key, data: &[u8]) -> (Backref, u64) {
    match KeyedRef::parse(key.kind, data).expect("sound") {
        KeyedRef::ExtentData(inline) => (user_of(&inline), inline.count()),
        KeyedRef::SharedData(count) => (Backref::SharedLeaf(Logical(key.offset)), u64::from(count)),
        KeyedRef::Block if key.kind == ItemKind::TREE_BLOCK_REF => {
            (Backref::Tree(TreeId(key.offset)), 1)
        }
        KeyedRef::Block => (Backref::Parent(Logical(key.offset)), 1),
    }
}

/// Returns the references in the items, as a checker reads them.
fn refs_in(items: &MapItems) -> BTreeMap<Backref, u64> {
    let mut backrefs = BTreeMap::new();
    let mut refs = None;
    for (key, data) in items.0.iter().filter(|(key, _)| key.objectid == AT.0) {
        let found: Vec<_> = match key.kind {
            ItemKind::EXTENT_ITEM | ItemKind::METADATA_ITEM => {
                let item = ExtentItem::parse(*key, data).expect("sound");
                assert!(data.len() < ITEM_LIMIT);
                assert_eq!((refs.replace(item.refs), item.generation), (None, 9));
                item.inline.iter().map(|inline| (user_of(inline), inline.count())).collect()
            }
            _ => vec![keyed_user(*key, data)],
        };
        for (backref, count) in found {
            assert_eq!(backrefs.insert(backref, count), None, "{backref:?} is counted twice");
        }
    }
    assert_eq!(refs.unwrap_or(0), backrefs.values().sum::<u64>());
    backrefs
}

/// Returns an extent tree with other extents around the extent.
fn tree() -> MapItems {
    let mut items = MapItems::default();
    let owner = Backref::SharedLeaf(Logical(4096));
    for logical in [Logical(AT.0 - (1 << 16)), Logical(AT.0 + (1 << 16))] {
        let neighbour = head(Extent::Data { logical, len: 1 << 16 }, true, &[(owner, 1)]);
        assert_eq!(run_in(&mut items, &neighbour, FORM).expect("room"), Outcome::Added);
    }
    items
}

/// Runs heads and compares the references in the items with a sum.
fn compare(extent: Extent, most: i64, form: Form, rounds: &[Vec<(Backref, i64)>]) {
    let mut items = tree();
    let mut model = BTreeMap::<Backref, i64>::new();
    let keyed = items.clone();
    for round in rounds {
        let before = model.clone();
        for (backref, by) in round {
            let count = model.entry(*backref).or_default();
            *count = (*count + by).clamp(0, most);
        }
        model.retain(|_, count| *count > 0);
        let count =
            |model: &BTreeMap<Backref, i64>, backref| model.get(backref).copied().unwrap_or(0);
        let backrefs: HashSet<Backref> = before.keys().chain(model.keys()).copied().collect();
        let changes: Vec<_> = backrefs
            .iter()
            .map(|backref| (*backref, count(&model, backref) - count(&before, backref)))
            .filter(|(_, by)| *by != 0)
            .collect();
        if changes.is_empty() {
            continue;
        }
        let outcome = run_in(&mut items, &head(extent, before.is_empty(), &changes), form);
        let expected = match (before.is_empty(), model.is_empty()) {
            (true, _) => Outcome::Added,
            (false, false) => Outcome::Kept,
            (false, true) => Outcome::Freed,
        };
        assert_eq!(outcome.expect("no damage"), expected);
        let counts =
            refs_in(&items).into_iter().map(|(backref, count)| (backref, count.cast_signed()));
        assert_eq!(counts.collect::<BTreeMap<_, _>>(), model);
        assert!(keyed.0.iter().all(|(key, data)| items.0.get(key) == Some(data)));
    }
}

fn data_users() -> impl Strategy<Value = Backref> {
    prop_oneof![
        3 => (0u64..16).prop_map(file),
        1 => (1u64..6).prop_map(|leaf| Backref::SharedLeaf(Logical(leaf << 14))),
    ]
}

fn block_users() -> impl Strategy<Value = Backref> {
    prop_oneof![
        (256u64..280).prop_map(|tree| Backref::Tree(TreeId(tree))),
        (1u64..24).prop_map(|parent| Backref::Parent(Logical(parent << 14))),
    ]
}

fn rounds(
    backrefs: impl Strategy<Value = Backref>,
) -> impl Strategy<Value = Vec<Vec<(Backref, i64)>>> {
    prop::collection::vec(prop::collection::vec((backrefs, -3i64..=3), 1..16), 1..12)
}

proptest! {
    #[test]
    fn data_is_counted_as_a_sum_counts(rounds in rounds(data_users())) {
        compare(DATA, 1000, FORM, &rounds);
    }

    #[test]
    fn blocks_are_counted_as_a_sum_counts(
        rounds in rounds(block_users()),
        skinny in any::<bool>(),
    ) {
        let block = Extent::Block { logical: AT, level: 2 };
        compare(block, 1, Form { skinny, ..FORM }, &rounds);
    }
}

#[test]
fn test_files_have_the_same_hash() {
    let hash = |number| match file(number) {
        Backref::File { root, inode, offset } => extent_data_ref_hash(root.0, inode, offset),
        _ => unreachable!("it is a file"),
    };
    assert_eq!([hash(0); 4], [0, 1, 2, 3].map(hash));
    assert_ne!(hash(0), hash(4));
}

#[test]
fn a_displaced_reference_is_found_behind_a_gap() {
    let mut items = tree();
    let many: Vec<_> = (0..12).map(|number| (file(number), 1)).collect();
    run_in(&mut items, &head(DATA, true, &many), FORM).expect("room");
    let keyed = |items: &MapItems| -> Vec<_> {
        let keyed = items.0.iter().filter(|(key, _)| key.kind == ItemKind::EXTENT_DATA_REF);
        keyed.map(|(key, data)| (*key, keyed_user(*key, data).0)).collect()
    };
    let all = keyed(&items);
    let pair = all.windows(2).find(|pair| pair[0].0.offset + 1 == pair[1].0.offset);
    let [(_, first), (_, second)] = pair.expect("some hash alike") else { unreachable!("two") };
    run_in(&mut items, &head(DATA, false, &[(*first, -1)]), FORM).expect("it is there");
    run_in(&mut items, &head(DATA, false, &[(*second, 1)]), FORM).expect("it is there");
    assert_eq!(refs_in(&items)[second], 2);
    run_in(&mut items, &head(DATA, false, &[(*second, -2)]), FORM).expect("it is there");
    assert!(!refs_in(&items).contains_key(second));
}

#[test]
fn full_backref_is_stored_in_item() {
    let mut items = tree();
    let extent = Extent::Block { logical: AT, level: 1 };
    let backref = Backref::Tree(TreeId::FS);
    run_in(&mut items, &head(extent, true, &[(backref, 1)]), FORM).expect("room");
    let shared = Head { set_full_backref: true, ..head(extent, false, &[]) };
    assert_eq!(run_in(&mut items, &shared, FORM).expect("it is there"), Outcome::Kept);
    let found = find(&items, &extent, NODESIZE).expect("sound").expect("it is there");
    assert_eq!(found.item.flags, ExtentFlags::TREE_BLOCK | ExtentFlags::FULL_BACKREF);
    assert_eq!(found.item.level, MetadataLevel::InKey(1));
}

#[test]
fn head_without_references_leaves_tree_unchanged() {
    let mut items = tree();
    let before = items.clone();
    assert_eq!(
        run_in(&mut items, &head(DATA, true, &[]), FORM).expect("fine"),
        Outcome::NeverAdded
    );
    assert_eq!(items, before);
}

fn damage(result: Result<Outcome>) -> Damage {
    match result {
        Err(Error::Damaged(damage)) => damage,
        other => panic!("{other:?} is not damage"),
    }
}

/// Runs a head on an extent with one reference of file 0 and two of file 1.
fn damage_by(head: &Head) -> Damage {
    let mut items = tree();
    let first = super::run::head(DATA, true, &[(file(0), 1), (file(1), 2)]);
    run_in(&mut items, &first, FORM).expect("room");
    let before = items.clone();
    let found = damage(run_in(&mut items, head, FORM));
    assert_eq!(items, before, "nothing was changed");
    found
}

#[test]
fn impossible_change_is_damage() {
    let logical = AT;
    let missing = damage_by(&head(DATA, false, &[(file(2), -1)]));
    assert_eq!(missing, Damage::NoReference { logical, backref: file(2) });
    let too_often = damage_by(&head(DATA, false, &[(file(1), -3)]));
    assert_eq!(too_often, Damage::NoReference { logical, backref: file(1) });
    let too_many = damage_by(&head(DATA, false, &[(file(1), i64::from(u32::MAX))]));
    assert_eq!(too_many, Damage::TooManyReferences { logical, backref: file(1) });
    let twice = damage_by(&head(DATA, true, &[(file(3), 1)]));
    assert_eq!(twice, Damage::ExtentExists(logical));
    let longer = Extent::Data { logical, len: 1 << 17 };
    let found = Key::new(AT.0, ItemKind::EXTENT_ITEM, 1 << 16);
    let shape = Damage::ExtentShape { logical, found };
    assert_eq!(damage_by(&head(longer, false, &[(file(0), 1)])), shape);
    let block = Extent::Block { logical, level: 0 };
    assert_eq!(damage_by(&head(block, false, &[(Backref::Tree(TreeId::FS), 1)])), shape);
    let elsewhere = Extent::Data { logical: Logical(4096), len: 1 << 16 };
    let nowhere = damage_by(&head(elsewhere, false, &[(file(0), -1)]));
    assert_eq!(nowhere, Damage::NoExtent(Logical(4096)));
    let conflicting = Head { conflicting: true, ..head(DATA, false, &[(file(0), 1)]) };
    assert_eq!(damage_by(&conflicting), Damage::TwoExtents(logical));
}

#[test]
fn count_below_sum_of_references_is_damage() {
    let key = Key::new(AT.0, ItemKind::EXTENT_ITEM, 1 << 16);
    let mut items = tree();
    run_in(&mut items, &head(DATA, true, &[(file(0), 1)]), FORM).expect("room");
    items.0.insert(Key::new(AT.0, ItemKind::SHARED_DATA_REF, 4096), vec![1, 0, 0, 0]);
    assert!(items.0.contains_key(&key));
    let found = damage(run_in(&mut items, &head(DATA, false, &[(file(0), -1)]), FORM));
    assert_eq!(found, Damage::ReferenceCount { logical: AT, refs: 1 });
}

#[test]
fn a_block_has_one_reference_of_each_tree() {
    let extent = Extent::Block { logical: AT, level: 0 };
    let backref = Backref::Tree(TreeId::FS);
    let mut items = tree();
    run_in(&mut items, &head(extent, true, &[(backref, 1)]), FORM).expect("room");
    let found = damage(run_in(&mut items, &head(extent, false, &[(backref, 1)]), FORM));
    assert_eq!(found, Damage::TooManyReferences { logical: AT, backref });
}

/// A count that is larger than the references would keep an extent without references.
#[test]
fn count_above_sum_of_references_is_damage() {
    let mut items = tree();
    run_in(&mut items, &head(DATA, true, &[(file(0), 1), (file(1), 1)]), FORM).expect("room");
    let key = Key::new(AT.0, ItemKind::EXTENT_ITEM, 1 << 16);
    let mut item = ExtentItem::parse(key, &items.0[&key]).expect("sound");
    item.refs += 1;
    items.0.insert(key, item.encode());
    let found = damage(run_in(&mut items, &head(DATA, false, &[(file(0), -1)]), FORM));
    assert!(matches!(found, Damage::ReferenceCount { .. }), "{found}");
}
