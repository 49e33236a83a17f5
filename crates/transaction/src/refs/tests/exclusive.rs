//! Extents with only one backref.

use userbtrfs_btree::{Backref, Extent, RefChange};
use userbtrfs_format::{ExtentFlags, ExtentItem, Logical, MetadataLevel, TreeId};

use super::super::exclusive::is_alone;
use super::super::{DelayedRefs, Head, inline};

const AT: Logical = Logical(1 << 20);
const LEN: u64 = 8192;
const US: Backref = Backref::File { root: TreeId::FS, inode: 257, offset: 0 };
const OTHER: Backref = Backref::File { root: TreeId::FS, inode: 258, offset: 0 };
const ELSEWHERE: Backref = Backref::File { root: TreeId::FS, inode: 257, offset: 4096 };
const SNAPSHOT: Backref = Backref::SharedLeaf(Logical(77));

/// An extent of transaction 7.
fn item(backrefs: &[(Backref, u32)]) -> ExtentItem {
    let refs = backrefs.iter().map(|(_, count)| u64::from(*count)).sum();
    let flags = ExtentFlags::DATA;
    let level = MetadataLevel::None;
    let mut item = ExtentItem { refs, generation: 7, flags, level, inline: Vec::new() };
    for (backref, count) in backrefs {
        inline::insert(&mut item, *backref, *count);
    }
    item
}

fn changed(changes: &[(bool, Backref)]) -> Option<Head> {
    let refs = DelayedRefs::default();
    for &(add, backref) in changes {
        refs.change(&RefChange { add, extent: Extent::Data { logical: AT, len: LEN }, backref });
    }
    refs.head(AT)
}

#[test]
fn only_backref_in_item_is_alone_with_any_count() {
    assert!(is_alone(Some(&item(&[(US, 1)])), None, US, 0));
    assert!(is_alone(Some(&item(&[(US, 3)])), None, US, 6));
    for other in [OTHER, ELSEWHERE, SNAPSHOT] {
        assert!(!is_alone(Some(&item(&[(US, 1), (other, 1)])), None, US, 0));
        assert!(!is_alone(Some(&item(&[(other, 1)])), None, US, 0));
    }
}

#[test]
fn a_snapshot_since_may_share_the_leaf() {
    assert!(!is_alone(Some(&item(&[(US, 1)])), None, US, 7));
    assert!(!is_alone(Some(&item(&[(US, 1)])), None, US, 8));
}

#[test]
fn delayed_changes_are_counted() {
    let alone = item(&[(US, 1)]);
    assert!(!is_alone(Some(&alone), changed(&[(true, OTHER)]).as_ref(), US, 0));
    assert!(!is_alone(Some(&alone), changed(&[(false, US)]).as_ref(), US, 0));
    assert!(is_alone(Some(&alone), changed(&[(true, US)]).as_ref(), US, 0));
    let shared = item(&[(US, 1), (OTHER, 1)]);
    assert!(is_alone(Some(&shared), changed(&[(false, OTHER)]).as_ref(), US, 0));
}

#[test]
fn backref_dropped_by_another_user_is_remembered_for_two_transactions() {
    let refs = DelayedRefs::default();
    let extent = Extent::Data { logical: AT, len: LEN };
    let change = |add, backref| refs.change(&RefChange { add, extent, backref });
    change(true, OTHER);
    change(false, US);
    assert!(refs.was_shared(AT, OTHER) && !refs.was_shared(AT, US));
    change(false, OTHER);
    change(true, US);
    assert!(refs.head(AT).is_none() && refs.was_shared(AT, US), "they cancel out");
    refs.end_transaction();
    assert!(refs.was_shared(AT, US) && refs.was_shared(AT, ELSEWHERE));
    refs.end_transaction();
    assert!(!refs.was_shared(AT, US));
}

#[test]
fn keyed_references_are_not_searched() {
    let keyed = ExtentItem { refs: 2, ..item(&[(US, 1)]) };
    assert!(!is_alone(Some(&keyed), None, US, 0));
}

#[test]
fn fresh_data_has_only_delayed_backrefs() {
    let refs = DelayedRefs::default();
    refs.allocated_data(AT, LEN, US);
    assert!(is_alone(None, refs.head(AT).as_ref(), US, 6));
    let extent = Extent::Data { logical: AT, len: LEN };
    refs.change(&RefChange { add: true, extent, backref: US });
    assert!(is_alone(None, refs.head(AT).as_ref(), US, 6));
    refs.change(&RefChange { add: true, extent, backref: OTHER });
    assert!(!is_alone(None, refs.head(AT).as_ref(), US, 6));
    assert_eq!(refs.unreferenced_new_data(), []);
}

#[test]
fn fresh_data_without_users_vanishes() {
    let refs = DelayedRefs::default();
    refs.allocated(Logical(4096), 0, TreeId::FS);
    refs.allocated_data(AT, LEN, US);
    let extent = Extent::Data { logical: AT, len: LEN };
    refs.change(&RefChange { add: false, extent, backref: US });
    assert_eq!(refs.unreferenced_new_data(), vec![AT.0..AT.0 + LEN]);
    assert!(!is_alone(None, refs.head(AT).as_ref(), US, 6));
}
