//! Moves of items to a neighbour and splits of full leaves.

use userbtrfs_btree::{BlockSource as _, EditError, ItemEdit, Root};
use userbtrfs_format::{ChildPointer, Key, Logical, MAX_LEVEL, NewBlock};
use userbtrfs_testkit::random::{Random, seed};
use userbtrfs_volume::TreeBlock;

use super::grove::{ANY, Grove};
use crate::plain;

#[test]
fn ascending_items_fill_their_leaves() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    for number in 0..10_000 {
        let mut one = [ItemEdit::Put(Key::new(number, ANY, 0), vec![1; 75])];
        tree.apply(&grove.store, &grove.books, &mut one).unwrap();
    }
    grove.commit();
    let (leaves, used) = grove.fill_of(0);
    assert!(used / leaves > 3995 / 10 * 9, "{used} bytes in {leaves} leaves");
}

#[test]
fn items_in_any_order_fill_their_leaves() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    let mut numbers: Vec<u64> = (0..10_000).collect();
    Random::new(seed()).shuffle(&mut numbers);
    for number in numbers {
        let mut one = [ItemEdit::Put(Key::new(number, ANY, 0), vec![1; 75])];
        tree.apply(&grove.store, &grove.books, &mut one).unwrap();
    }
    grove.commit();
    let (leaves, used) = grove.fill_of(0);
    assert!(used / leaves > 3995 / 100 * 75, "{used} bytes in {leaves} leaves");
}

/// All items of the leaf would fit into half of the neighbour's free space, but one has to stay.
#[test]
fn full_leaf_keeps_an_item_when_others_move_to_its_neighbour() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    let key = |number| Key::new(number, ANY, 0);
    let put = |number, len| ItemEdit::Put(key(number), vec![1; len]);
    let edits = [put(5, 1473), put(6, 2400), put(7, 974), ItemEdit::Remove(key(6)), put(4, 2500)];
    let edits = [ItemEdit::Remove(key(1 << 40))].into_iter().chain(edits);
    for edit in edits {
        tree.apply(&grove.store, &grove.books, &mut [edit]).unwrap();
    }
    grove.commit();
    let found = plain(&grove.volume, tree.id(), tree.root());
    let lens: Vec<_> = found.iter().map(|(key, data)| (key.objectid, data.len())).collect();
    assert_eq!(lens, [(4, 2500), (5, 1473), (7, 974)]);
}

/// The new item does not fit into a leaf that holds one large item.
#[test]
fn a_split_without_space_leaves_the_tree_as_it_was() {
    let mut grove = Grove::new(4096, 1 << 20);
    let (tree, items) = &mut grove.trees[0];
    let put = |number| ItemEdit::Put(Key::new(number, ANY, 0), vec![1; 3000]);
    tree.apply(&grove.store, &grove.books, &mut [put(10), put(20)]).unwrap();
    items.extend([10, 20].map(|number| (Key::new(number, ANY, 0), vec![1; 3000])));
    let free = std::mem::take(&mut *grove.books.free.lock().unwrap());
    let failed = tree.apply(&grove.store, &grove.books, &mut [put(5)]);
    assert!(matches!(failed, Err(EditError::NoSpace(_))), "{failed:?}");
    assert!(tree.search(&grove.store, &Key::new(10, ANY, 0)).unwrap().exact);
    *grove.books.free.lock().unwrap() = free;
    grove.check();
}

/// A forged tree of eight levels whose leftmost path is full.
#[test]
fn split_of_a_full_tree_of_the_maximum_height_fails() {
    let grove = Grove::new(4096, 1 << 20);
    let owner = grove.new_id();
    let generation = grove.books.generation() - 1;
    let block = |level| {
        let logical = grove.books.allocate(owner, level, Logical(0)).unwrap();
        let new = NewBlock { logical, owner, level, generation };
        TreeBlock::empty(grove.bytes(), &new, grove.geometry(), uuid::Uuid::nil())
    };
    let key = |number| Key::new(number, ANY, 0);
    let mut below = block(0);
    below.insert_item(0, key(1), &[1; 3000]);
    let mut child = Logical(0);
    for level in 0..=MAX_LEVEL {
        child = below.header().logical;
        grove.write(below.clone());
        below = block(level + 1);
        for slot in 0..below.pointers_max() {
            let logical = if slot == 0 { child } else { Logical(1 << 50) };
            let key = key(1 + 125_u64.pow(u32::from(level) + 1) * slot as u64);
            let pointer = ChildPointer { key, logical, generation };
            below.insert_child(slot, &pointer);
        }
    }
    let tree = grove.store.tree(owner, Root { logical: child, level: MAX_LEVEL, generation });
    let mut edit = [ItemEdit::Put(key(2), vec![1; 3000])];
    let failed = tree.apply(&grove.store, &grove.books, &mut edit);
    assert!(matches!(failed, Err(EditError::TooHigh(id)) if id == owner), "{failed:?}");
    assert!(tree.search(&grove.store, &key(1)).unwrap().exact);
}

/// Like a checksum item that fills a leaf and is cut at its front: the rest of it is inserted
/// before the next item, which is alone in the only leaf.
#[test]
fn large_item_is_inserted_before_the_only_item_of_a_tree() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    for number in [9, 5, 7, 3, 8, 4] {
        let mut one = [ItemEdit::Put(Key::new(number, ANY, 0), vec![1; 3900])];
        tree.apply(&grove.store, &grove.books, &mut one).unwrap();
    }
    let mut first = [ItemEdit::Remove(Key::new(1 << 40, ANY, 0))];
    tree.apply(&grove.store, &grove.books, &mut first).unwrap();
    grove.commit();
    let items = plain(&grove.volume, tree.id(), tree.root());
    let numbers: Vec<_> = items.iter().map(|(key, _)| key.objectid).collect();
    assert_eq!(numbers, [3, 4, 5, 7, 8, 9]);
}
