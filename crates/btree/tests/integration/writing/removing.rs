//! Removal of items, and items that become short: sparse leaves, and roots with one child.

use userbtrfs_btree::ItemEdit;
use userbtrfs_format::Key;

use super::grove::{ANY, Grove};

#[test]
fn a_tree_emptied_is_one_leaf_again() {
    let mut grove = Grove::new(4096, 1 << 20);
    let (tree, items) = &mut grove.trees[0];
    let keys: Vec<_> = (0..20_000).map(|number| Key::new(number, ANY, 0)).collect();
    let mut put: Vec<_> = keys.iter().map(|key| ItemEdit::Put(*key, vec![7; 40])).collect();
    tree.apply(&grove.store, &grove.books, &mut put).unwrap();
    items.extend(keys.iter().map(|key| (*key, vec![7; 40])));
    assert!(tree.root().level >= 2);
    grove.check();
    let used = grove.books.free.lock().unwrap().len();
    let (tree, items) = &mut grove.trees[0];
    let mut remove: Vec<_> = keys.iter().map(|key| ItemEdit::Remove(*key)).collect();
    tree.apply(&grove.store, &grove.books, &mut remove).unwrap();
    items.retain(|key, _| key.objectid == 1 << 40);
    // A root whose only child is not in memory is replaced by it in the next change.
    let mut again = [ItemEdit::Put(Key::new(1 << 40, ANY, 0), b"first".to_vec())];
    tree.apply(&grove.store, &grove.books, &mut again).unwrap();
    assert_eq!(tree.root().level, 0);
    grove.check();
    assert!(grove.books.free.lock().unwrap().len() > used, "blocks came back");
}

#[test]
fn root_left_with_one_child_is_replaced_in_the_same_change() {
    // The first leaf is removed; the last one is; the first one is merged with the last one.
    for numbers in [0..8, 8..12, 0..7] {
        let mut grove = Grove::new(4096, 1 << 20);
        let (tree, items) = &mut grove.trees[0];
        let key = |number| Key::new(number, ANY, 0);
        let put = (0..12).map(|number| ItemEdit::Put(key(number), vec![7; 450]));
        let first = ItemEdit::Remove(*items.keys().next().unwrap());
        let mut edits: Vec<_> = put.chain([first]).collect();
        tree.apply(&grove.store, &grove.books, &mut edits).unwrap();
        *items = (0..12).map(|number| (key(number), vec![7; 450])).collect();
        assert_eq!(tree.root().level, 1);
        grove.check();
        let (tree, items) = &mut grove.trees[0];
        items.retain(|key, _| !numbers.contains(&key.objectid));
        let mut edits: Vec<_> = numbers.clone().map(key).map(ItemEdit::Remove).collect();
        tree.apply(&grove.store, &grove.books, &mut edits).unwrap();
        assert_eq!(tree.root().level, 0, "without {numbers:?}");
        grove.check();
    }
}

/// Like checksums of an extent with many small holes: shortening a large item leaves a sparse leaf.
#[test]
fn a_leaf_of_items_that_become_short_is_merged() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    let put = |number, len| [ItemEdit::Put(Key::new(number, ANY, 0), vec![1; len])];
    for number in 0..200 {
        tree.apply(&grove.store, &grove.books, &mut put(number + 1, 3900)).unwrap();
        tree.apply(&grove.store, &grove.books, &mut put(number, 100)).unwrap();
    }
    grove.commit();
    let (leaves, used) = grove.fill_of(0);
    assert!(used / leaves > 3995 / 4, "{used} bytes in {leaves} leaves");
}
