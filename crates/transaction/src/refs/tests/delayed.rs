//! Delayed references.

use userbtrfs_btree::{Backref, BlockRefs, Extent, RefChange};
use userbtrfs_format::{Logical, TreeId};

use super::super::{DelayedRefs, Head};

const BLOCK: Logical = Logical(1 << 20);
const EXTENT: Extent = Extent::Block { logical: BLOCK, level: 1 };

fn change(refs: &DelayedRefs, add: bool, backref: Backref) {
    refs.change(&RefChange { add, extent: EXTENT, backref });
}

fn shared(refs: u64) -> BlockRefs {
    BlockRefs { refs, full_backref: false }
}

#[test]
fn a_fresh_block_is_known() {
    let refs = DelayedRefs::default();
    refs.allocated(BLOCK, 1, TreeId::FS);
    assert_eq!(refs.sharing(BLOCK), Some(shared(1)));
    change(&refs, true, Backref::Parent(Logical(77)));
    refs.set_full_backref(BLOCK, 1);
    assert_eq!(refs.sharing(BLOCK), Some(BlockRefs { refs: 2, full_backref: true }));
    let head = refs.take_next().expect("it is there");
    assert!(head.fresh && head.set_full_backref);
    assert_eq!(head.net(), 2);
    let known = refs.sharing(BLOCK);
    assert_eq!(known, Some(BlockRefs { refs: 2, full_backref: true }), "as it will be");
}

#[test]
fn reference_is_dropped_only_if_there_are_others() {
    let refs = DelayedRefs::default();
    let tree = |id| RefChange { add: false, extent: EXTENT, backref: Backref::Tree(TreeId(id)) };
    assert_eq!(refs.drop_if_shared(&tree(256)), None);
    assert!(refs.is_empty(), "nothing is dropped of an extent that is not known");
    refs.learn(BLOCK, shared(2));
    assert_eq!(refs.drop_if_shared(&tree(256)), Some(shared(2)));
    assert_eq!(refs.drop_if_shared(&tree(257)), Some(shared(1)));
    assert_eq!(refs.sharing(BLOCK), Some(shared(1)), "the last one is left");
    let head = refs.take_next().expect("changes");
    let changes: Vec<_> = head.changes.iter().map(|(backref, by)| (*backref, *by)).collect();
    assert_eq!(changes, [(Backref::Tree(TreeId(256)), -1)]);
    assert_eq!(refs.drop_if_shared(&tree(257)), Some(shared(1)), "also once it is taken");
}

#[test]
fn opposite_changes_cancel_out() {
    let refs = DelayedRefs::default();
    change(&refs, true, Backref::Tree(TreeId::FS));
    change(&refs, true, Backref::Parent(BLOCK));
    change(&refs, false, Backref::Tree(TreeId::FS));
    assert_eq!(refs.len(), 1);
    change(&refs, false, Backref::Parent(BLOCK));
    assert!(refs.is_empty());
    assert_eq!(refs.take_next(), None);
}

#[test]
fn known_references_include_earlier_and_later_changes() {
    let refs = DelayedRefs::default();
    change(&refs, true, Backref::Parent(BLOCK));
    assert_eq!(refs.sharing(BLOCK), None);
    refs.learn(BLOCK, shared(3));
    assert_eq!(refs.sharing(BLOCK), Some(shared(4)));
    change(&refs, false, Backref::Tree(TreeId::FS));
    change(&refs, false, Backref::Tree(TreeId(256)));
    assert_eq!(refs.sharing(BLOCK), Some(shared(2)));
    refs.take_next().expect("changes");
    assert_eq!(refs.sharing(BLOCK), Some(shared(2)));
    refs.learn(BLOCK, shared(3));
    assert_eq!(refs.sharing(BLOCK), Some(shared(2)), "what was read before does not count");
}

#[test]
fn extent_without_references_is_unknown_once_taken() {
    let refs = DelayedRefs::default();
    refs.learn(BLOCK, BlockRefs::ALONE);
    change(&refs, false, Backref::Tree(TreeId::FS));
    assert_eq!(refs.sharing(BLOCK), Some(shared(0)));
    refs.take_next().expect("a change");
    assert_eq!(refs.sharing(BLOCK), None);
}

#[test]
fn only_a_fresh_head_is_forgotten() {
    let refs = DelayedRefs::default();
    assert!(!refs.forget(BLOCK));
    refs.allocated(BLOCK, 1, TreeId::FS);
    assert!(refs.forget(BLOCK));
    assert_eq!((refs.len(), refs.sharing(BLOCK)), (0, None));
    change(&refs, false, Backref::Tree(TreeId::FS));
    assert!(!refs.forget(BLOCK));
    refs.take_next().expect("still there");
    refs.allocated(BLOCK, 1, TreeId::FS);
    refs.take_next().expect("fresh");
    assert!(!refs.forget(BLOCK), "the extent tree knows of it");
}

#[test]
fn heads_are_taken_round_in_the_order_of_addresses() {
    let refs = DelayedRefs::default();
    let add = |logicals: &[u64]| {
        for logical in logicals {
            refs.allocated(Logical(*logical), 0, TreeId::FS);
        }
    };
    let next = || refs.take_next().as_ref().map(Head::logical);
    add(&[30, 10, 20]);
    assert_eq!(next(), Some(Logical(10)));
    add(&[5, 15]);
    let order: Vec<_> = std::iter::from_fn(next).collect();
    assert_eq!(order, [15, 20, 30, 5].map(Logical));
}

#[test]
fn data_without_references_keeps_its_head() {
    let refs = DelayedRefs::default();
    let backref = Backref::File { root: TreeId::FS, inode: 257, offset: 0 };
    refs.allocated_data(BLOCK, 8192, backref);
    let extent = Extent::Data { logical: BLOCK, len: 8192 };
    refs.change(&RefChange { add: false, extent, backref });
    assert_eq!(refs.sharing(BLOCK), Some(shared(0)));
    let head = refs.take_next().expect("its space must be given back");
    assert!(head.fresh && head.changes.is_empty());
}

#[test]
fn two_lengths_contradict() {
    let refs = DelayedRefs::default();
    for len in [4096, 8192] {
        let extent = Extent::Data { logical: BLOCK, len };
        refs.change(&RefChange { add: true, extent, backref: Backref::SharedLeaf(Logical(7)) });
    }
    assert!(refs.take_next().expect("two changes").conflicting);
}

#[test]
fn turn_over_forgets_known_references() {
    let refs = DelayedRefs::default();
    refs.learn(BLOCK, BlockRefs::ALONE);
    refs.end_transaction();
    assert_eq!(refs.sharing(BLOCK), None);
}

/// If a block in use is free in the free space tree, the allocator returns it once more.
#[test]
fn allocation_of_extent_in_use_is_contradicted() {
    let refs = DelayedRefs::default();
    change(&refs, false, Backref::Tree(TreeId::FS));
    refs.allocated(BLOCK, 0, TreeId::EXTENT);
    assert!(!refs.forget(BLOCK), "the damage is reported");
    assert!(refs.take_next().expect("a change").conflicting);
}

/// A long transaction has very many of them.
#[test]
fn fresh_blocks_take_few_bytes_again_once_changes_cancel_out() {
    let refs = DelayedRefs::default();
    let block = |number: u64| Logical(number << 14);
    for number in 0..100 {
        refs.allocated(block(number), 0, TreeId::FS);
    }
    let plain = refs.bytes();
    assert!(plain <= 100 * 64, "{plain} bytes");
    let extent = Extent::Block { logical: block(7), level: 0 };
    let by = |add, backref| refs.change(&RefChange { add, extent, backref });
    by(true, Backref::Parent(BLOCK));
    assert!(refs.bytes() > plain);
    assert_eq!(refs.sharing(block(7)), Some(shared(2)));
    by(false, Backref::Parent(BLOCK));
    assert_eq!((refs.bytes(), refs.sharing(block(7))), (plain, Some(shared(1))));
    by(false, Backref::Tree(TreeId::FS));
    assert_eq!((refs.bytes(), refs.sharing(block(7))), (plain, Some(shared(0))));
    assert_eq!(refs.freeable(), (1, 0));
    let taken = std::iter::from_fn(|| refs.take_next());
    assert_eq!(taken.filter(|head| head.fresh && head.changes.is_empty()).count(), 1);
    assert_eq!(refs.bytes(), 0);
}

/// Clones give one extent of data very many: each needs an item, and memory.
#[test]
fn references_of_one_extent_are_counted_each() {
    let refs = DelayedRefs::default();
    let extent = Extent::Data { logical: BLOCK, len: 4096 };
    let by = |add, inode| {
        let backref = Backref::File { root: TreeId::FS, inode, offset: 0 };
        refs.change(&RefChange { add, extent, backref });
    };
    by(true, 0);
    let bytes = refs.bytes();
    (1..1000).for_each(|inode| by(true, inode));
    assert_eq!((refs.len(), refs.references()), (1, 1000));
    assert!(refs.bytes() >= bytes + 999 * size_of::<Backref>());
    (1..1000).for_each(|inode| by(false, inode));
    assert_eq!((refs.references(), refs.bytes()), (1, bytes));
    refs.take_next().expect("a change");
    assert_eq!((refs.references(), refs.bytes()), (0, 0));
}
