//! Compares edited blocks with maps of their expected content.

#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows has failed")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use userbtrfs_codec::ChecksumKind;
use uuid::Uuid;

use super::*;
use crate::{Expectation, ItemKind};

const LOGICAL: Logical = Logical(1 << 20);

fn geometry() -> Geometry {
    Geometry { checksum_kind: ChecksumKind::Crc32c, nodesize: 4096, fsid: Uuid::from_u128(7) }
}

fn block(level: u8) -> TreeBlock<Vec<u8>> {
    let new = NewBlock { logical: LOGICAL, owner: TreeId::UUID, level, generation: 9 };
    TreeBlock::empty(vec![0; 4096], &new, &geometry(), Uuid::nil())
}

/// A key of a kind whose content is not checked.
fn key(number: u8) -> Key {
    Key::new(u64::from(number), ItemKind(99), 0)
}

fn expected(level: u8, first_key: Option<Key>) -> Expectation {
    Expectation { owner: TreeId::UUID, level, generation: 9, first_key, end: None }
}

fn verify(block: &TreeBlock<Vec<u8>>) -> TreeBlock<Vec<u8>> {
    let first = (!block.is_empty()).then(|| block.key(0));
    let expected = expected(block.header().level, first);
    TreeBlock::verify(block.bytes().to_vec(), LOGICAL, &geometry(), &expected).unwrap()
}

fn items(block: &TreeBlock<Vec<u8>>) -> BTreeMap<Key, Vec<u8>> {
    (0..block.len()).map(|slot| (block.key(slot), block.item(slot).data.to_vec())).collect()
}

proptest! {
    #[test]
    fn a_leaf_holds_what_a_map_holds(
        changes in prop::collection::vec((any::<u8>(), 0usize..300, any::<bool>()), 1..200),
    ) {
        let mut leaf = block(0);
        let mut model = BTreeMap::new();
        for (number, len, remove) in changes {
            let key = key(number);
            let data = vec![number; len];
            match leaf.search(&key) {
                Ok(slot) if remove => {
                    leaf.remove_items(slot..slot + 1);
                    model.remove(&key);
                }
                Ok(slot) if leaf.free_space() + leaf.item(slot).data.len() >= len => {
                    leaf.replace_item(slot, &data);
                    model.insert(key, data);
                }
                Err(slot) if leaf.free_space() >= item_space(len) => {
                    leaf.insert_item(slot, key, &data);
                    model.insert(key, data);
                }
                _ => {}
            }
            prop_assert_eq!(items(&leaf), model.clone());
        }
        leaf.seal(&geometry()).unwrap();
        prop_assert_eq!(items(&verify(&leaf)), model);
    }

    #[test]
    fn a_leaf_split_and_joined_is_as_before(
        lens in prop::collection::vec(0usize..60, 1..40),
        cut in 0usize..40,
    ) {
        let mut left = block(0);
        for (number, len) in (0u8..).zip(&lens) {
            left.insert_item(left.len(), key(number), &vec![number; *len]);
        }
        let before = items(&left);
        let mut right = block(0);
        let cut = cut.min(left.len());
        prop_assert_eq!(left.space_before(cut), {
            let part: usize = lens[..cut].iter().map(|len| item_space(*len)).sum();
            part
        });
        left.move_tail(cut, &mut right);
        prop_assert_eq!((left.len(), right.len()), (cut, before.len() - cut));
        let back = right.len() / 2;
        right.move_head(back, &mut left);
        prop_assert_eq!((left.len(), right.len()), (cut + back, before.len() - cut - back));
        left.move_tail(cut / 2, &mut right);
        prop_assert_eq!(right.len(), before.len() - cut / 2);
        left.append_all(&right);
        prop_assert_eq!(items(&left), before);
        left.seal(&geometry()).unwrap();
        verify(&left);
    }
}

#[test]
fn a_node_holds_its_pointers_in_order() {
    let mut node = block(1);
    let child = |number: u8| ChildPointer {
        key: key(number),
        logical: Logical(4096 * (u64::from(number) + 1)),
        generation: 3,
    };
    for number in [5, 1, 9, 3] {
        let slot = node.search(&key(number)).unwrap_err();
        node.insert_child(slot, &child(number));
    }
    node.set_child_key(0, key(0));
    node.remove_children(1..2);
    node.set_child(2, &child(200));
    let keys: Vec<_> = (0..node.len()).map(|slot| node.key(slot)).collect();
    assert_eq!(keys, [key(0), key(5), key(200)]);
    node.seal(&geometry()).unwrap();
    verify(&node);
}

#[test]
fn copy_to_keeps_items_and_replaces_header() {
    let mut leaf = block(0);
    leaf.insert_item(0, key(1), b"one");
    leaf.seal(&geometry()).unwrap();
    let new = NewBlock { logical: Logical(1 << 21), owner: TreeId::CSUM, level: 0, generation: 12 };
    let copy = leaf.copy_to(vec![0; 4096], &new);
    assert_eq!(items(&copy), items(&leaf));
    let header = copy.header();
    assert_eq!((header.logical, header.owner, header.generation), (new.logical, new.owner, 12));
    assert!(header.flags.is_empty(), "a copy is not written yet");
}

#[test]
fn seal_after_removal_clears_item_data() {
    let mut leaf = block(0);
    leaf.insert_item(0, key(1), b"secret");
    leaf.remove_items(0..1);
    leaf.seal(&geometry()).unwrap();
    assert!(!leaf.bytes().windows(6).any(|bytes| bytes == b"secret"));
}

#[test]
fn sealing_refuses_an_item_that_no_reader_would_accept() {
    let mut leaf = block(0);
    leaf.insert_item(0, Key::new(256, ItemKind::INODE_ITEM, 0), b"short");
    assert!(matches!(leaf.seal(&geometry()), Err(BlockError::Item { slot: 0, .. })));
}

#[test]
#[should_panic(expected = "does not belong")]
fn a_key_out_of_order_is_refused() {
    let mut leaf = block(0);
    leaf.insert_item(0, key(5), b"");
    leaf.insert_item(1, key(3), b"");
}

#[test]
#[should_panic(expected = "made room")]
fn an_item_that_does_not_fit_is_refused() {
    block(0).insert_item(0, key(1), &[0; 4000]);
}
