//! Leaves that are written before their transaction ends.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use userbtrfs_btree::{BlockSource as _, DirtyList, ItemEdit, Tree};
use userbtrfs_device::Buffer;
use userbtrfs_format::{Key, Logical, TreeId};
use userbtrfs_testkit::random::{Random, seed};

use super::grove::{ANY, Grove, torture};

#[test]
fn leaves_of_a_log_are_not_among_the_oldest_leaves() {
    let grove = Grove::new(4096, 1 << 20);
    let store = &grove.store;
    let books = &grove.books;
    let log = Tree::create(TreeId::TREE_LOG, store, books, uuid::Uuid::nil()).unwrap();
    assert_eq!((log.root().level, log.root().generation), (0, books.generation()));
    assert!(log.search(store, &Key::MIN).unwrap().leaf.is_empty());
    let mut items: Vec<_> =
        (0..200).map(|n| ItemEdit::Put(Key::new(n, ANY, 0), vec![1; 75])).collect();
    log.apply(store, books, &mut items).unwrap();
    grove.trees[0].0.apply(store, books, &mut items[..5]).unwrap();
    let seal = |list: &DirtyList| store.seal(list).collect::<Result<Vec<_>, _>>().unwrap();
    let oldest = seal(&store.oldest_leaves(usize::MAX));
    assert_eq!(oldest.len(), 1, "the leaf of the tree that is no log");
    let root = log.root().logical;
    let of_log = seal(&store.dirty_at([root, oldest[0].0, Logical(1 << 50)]));
    let places: Vec<_> = of_log.iter().map(|(at, _)| *at).collect();
    assert_eq!(places, [root, oldest[0].0], "those that are not written");
    seal(&store.dirty_nodes());
    log.apply(store, books, &mut items[..1]).unwrap();
    assert_ne!(log.root().logical, root, "what is sealed is copied");
}

/// A log may reuse the address of a leaf that was freed before it was written.
#[test]
fn log_leaf_at_the_address_of_a_freed_leaf_is_not_among_the_oldest_leaves() {
    let grove = Grove::new(4096, 1 << 20);
    let store = &grove.store;
    let books = &grove.books;
    let items = |tree: &Tree, numbers: std::ops::Range<u64>, len: usize| {
        let put = |number| ItemEdit::Put(Key::new(number, ANY, 0), vec![1; len]);
        tree.apply(store, books, &mut numbers.map(put).collect::<Vec<_>>()).unwrap();
    };
    items(&grove.trees[0].0, 0..400, 75);
    let remove = |number| ItemEdit::Remove(Key::new(number, ANY, 0));
    grove.trees[0].0.apply(store, books, &mut (5..400).map(remove).collect::<Vec<_>>()).unwrap();
    let log = Tree::create(TreeId::TREE_LOG, store, books, uuid::Uuid::nil()).unwrap();
    items(&log, 0..400, 75);
    let oldest = store.oldest_leaves(usize::MAX);
    let sealed: Vec<_> = store.seal(&oldest).collect::<Result<_, _>>().unwrap();
    let owner = |bytes: &Buffer| u64::from_le_bytes(bytes[0x58..0x60].try_into().unwrap());
    let owners: Vec<_> = sealed.iter().map(|(_, bytes)| owner(bytes)).collect();
    assert!(!owners.is_empty() && !owners.contains(&TreeId::TREE_LOG.0), "{owners:x?}");
}

#[test]
fn leaf_freed_before_it_is_written_keeps_the_new_node_at_its_address() {
    let mut grove = Grove::new(4096, 1 << 20);
    let key = |number| Key::new(number, ANY, 0);
    let put = |number| ItemEdit::Put(key(number), vec![1; 75]);
    let apply = |grove: &Grove, mut edits: Vec<_>| {
        grove.trees[0].0.apply(&grove.store, &grove.books, &mut edits).unwrap();
    };
    apply(&grove, (0..400).map(put).collect());
    let leaves = grove.store.oldest_leaves(usize::MAX);
    // The addresses of removed leaves are reused for new ones.
    apply(&grove, (100..300).map(|number| ItemEdit::Remove(key(number))).collect());
    apply(&grove, (100..300).map(put).collect());
    for sealed in grove.store.seal(&leaves) {
        let (logical, bytes) = sealed.unwrap();
        grove.write_bytes(logical, &bytes);
    }
    grove.store.written(leaves);
    grove.trees[0].1.extend((0..400).map(|number| (key(number), vec![1; 75])));
    grove.check();
}

/// A new leaf is locked until it is filled: sealing waits for that.
#[test]
fn leaves_are_written_early_while_their_tree_changes() {
    let mut grove = Grove::new(4096, 1 << 20);
    let mut random = Random::new(seed());
    let done = AtomicBool::new(false);
    let (tree, items) = grove.trees.pop().unwrap();
    let items = Mutex::new(items);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let leaves = grove.store.oldest_leaves(usize::MAX);
                for sealed in grove.store.seal(&leaves) {
                    let (logical, bytes) = sealed.unwrap();
                    grove.write_bytes(logical, &bytes);
                }
                grove.store.written(leaves);
            }
        });
        let mut items = items.lock().unwrap();
        for _ in 0..if torture() { 500_000 } else { 20_000 } {
            let key = Key::new(random.below(1000), ANY, 0);
            let data = vec![1; usize::try_from(random.below(300)).unwrap()];
            let mut edit = [ItemEdit::Put(key, data.clone())];
            tree.apply(&grove.store, &grove.books, &mut edit).unwrap();
            items.insert(key, data);
        }
        done.store(true, Ordering::Relaxed);
    });
    grove.trees.push((tree, items.into_inner().unwrap()));
    grove.check();
}
