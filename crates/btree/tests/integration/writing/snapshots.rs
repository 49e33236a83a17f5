//! Trees that share blocks.

use userbtrfs_btree::ItemEdit;
use userbtrfs_format::Key;

use super::grove::{ANY, Grove};

/// All trees that share a block lock the same node, until only one of them refers to it.
#[test]
fn shared_leaf_stays_in_memory_after_it_is_copied() {
    let mut grove = Grove::new(4096, 1 << 20);
    let key = |number| Key::new(number, ANY, 0);
    let put = |number, byte| ItemEdit::Put(key(number), vec![byte; 75]);
    let apply = |grove: &Grove, tree: usize, mut edits: Vec<_>| {
        grove.trees[tree].0.apply(&grove.store, &grove.books, &mut edits).unwrap();
    };
    apply(&grove, 0, (0..400).map(|number| put(number, 1)).collect());
    grove.trees[0].1.extend((0..400).map(|number| (key(number), vec![1; 75])));
    grove.snapshot(0);
    let search = |grove: &Grove, tree: usize| {
        grove.trees[tree].0.search(&grove.store, &key(200)).unwrap();
        grove.store.stats().misses
    };
    let read = search(&grove, 1);
    apply(&grove, 0, vec![put(200, 2)]);
    assert_eq!(search(&grove, 1), read, "the leaf is the other's still");
    apply(&grove, 1, vec![put(200, 3)]);
    for (tree, byte) in [(0, 2), (1, 3)] {
        grove.trees[tree].1.insert(key(200), vec![byte; 75]);
    }
    grove.check();
}

/// Blocks below the root are of the running transaction: the source and both snapshots share them,
/// and each change copies what is still shared, once.
#[test]
fn snapshots_and_their_source_change_in_the_same_transaction() {
    let mut grove = Grove::new(4096, 16 << 20);
    let key = |number| Key::new(number, ANY, 0);
    let put = |number, byte: u8| ItemEdit::Put(key(number), vec![byte; 75]);
    let apply = |grove: &mut Grove, tree: usize, numbers: std::ops::Range<u64>, byte: u8| {
        let (changed, items) = &mut grove.trees[tree];
        let mut edits: Vec<_> = numbers.clone().map(|number| put(number, byte)).collect();
        changed.apply(&grove.store, &grove.books, &mut edits).unwrap();
        items.extend(numbers.map(|number| (key(number), vec![byte; 75])));
    };
    apply(&mut grove, 0, 0..9000, 1);
    assert_eq!(grove.trees[0].0.root().level, 2);
    grove.snapshot_now(0);
    apply(&mut grove, 0, 100..101, 2);
    let free = |grove: &Grove| grove.books.free.lock().unwrap().len();
    let before = free(&grove);
    apply(&mut grove, 0, 100..102, 3);
    assert_eq!(free(&grove), before, "the path is not shared any more");
    grove.snapshot_now(0);
    for (tree, byte) in [(0, 4), (2, 5), (1, 6)] {
        apply(&mut grove, tree, 100..103, byte);
        apply(&mut grove, tree, 4000..4300, byte);
    }
    grove.check();
}
