//! Searches and cursors over the trees of a golden image whose nodes are small and many.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod writing;

use std::thread;

use tempfile::TempDir;
use userbtrfs_btree::{Cursor, NodeStore, ReadAhead, Root, Tree};
use userbtrfs_device::{FileDevice, FileOptions};
use userbtrfs_format::{Expectation, ItemKind, Key, RootItem, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::golden::Golden;
use userbtrfs_volume::{Volume, walk};

/// An image, and all items of its top-level subvolume as a plain walk returns them.
struct Forest {
    _folder: TempDir,
    volume: Arc<Volume>,
    root: Root,
    items: Vec<(Key, Vec<u8>)>,
}

impl Forest {
    fn open() -> Self {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        Golden::named("nodesize-4k").unpack(&image).unwrap();
        let device = FileDevice::open(&image, FileOptions::default()).unwrap();
        let volume = Arc::new(Volume::open(vec![Arc::new(device)]).unwrap());
        let superblock = volume.superblock();
        let roots = Root {
            logical: superblock.root,
            level: superblock.root_level,
            generation: superblock.generation,
        };
        let key = Key::new(TreeId::FS.0, ItemKind::ROOT_ITEM, 0);
        let all = plain(&volume, TreeId::ROOT, roots);
        let item = &all.iter().find(|(at, _)| *at == key).expect("there is a top level").1;
        let root = Root::from(&RootItem::parse(item).unwrap());
        let items = plain(&volume, TreeId::FS, root);
        assert!(root.level >= 2 && items.len() > 5000, "a tree worth searching");
        Self { _folder: folder, volume, root, items }
    }

    fn store(&self, cache_bytes: usize) -> NodeStore {
        NodeStore::new(Arc::clone(&self.volume), cache_bytes)
    }

    fn tree(&self, store: &NodeStore) -> Tree {
        store.tree(TreeId::FS, self.root)
    }
}

/// Returns all items of a tree, by a walk that uses no cache.
fn plain(volume: &Volume, owner: TreeId, root: Root) -> Vec<(Key, Vec<u8>)> {
    let Root { logical, level, generation } = root;
    let expected = Expectation { owner, level, generation, first_key: None, end: None };
    let mut walk = walk(volume, logical, expected, u64::MAX);
    let mut items = Vec::new();
    while let Some(leaf) = walk.next_leaf().unwrap() {
        let slots = (0..leaf.len()).map(|slot| leaf.item(slot));
        items.extend(slots.map(|item| (item.key, item.data.to_vec())));
    }
    items
}

fn rest(mut cursor: Cursor<'_>) -> Vec<(Key, Vec<u8>)> {
    let mut items = Vec::new();
    while let Some(item) = cursor.item() {
        items.push((item.key, item.data.to_vec()));
        cursor.advance().unwrap();
    }
    items
}

#[test]
fn cursor_returns_the_items_of_a_plain_walk() {
    let tree_roots = Forest::open();
    for read_ahead in [ReadAhead::Off, ReadAhead::Forward] {
        for cache_bytes in [0, 64 << 20] {
            let store = tree_roots.store(cache_bytes);
            let tree = tree_roots.tree(&store);
            let cursor = Cursor::seek(&store, &tree, &Key::MIN, read_ahead).unwrap();
            assert!(rest(cursor) == tree_roots.items, "{read_ahead:?}, {cache_bytes} bytes");
        }
    }
}

#[test]
fn search_finds_every_key_and_the_neighbours_of_absent_keys() {
    let tree_roots = Forest::open();
    let store = tree_roots.store(1 << 20);
    let tree = tree_roots.tree(&store);
    for (at, (key, data)) in tree_roots.items.iter().enumerate().step_by(7) {
        let found = tree.search(&store, key).unwrap();
        assert!(found.exact && found.leaf.item(found.slot).data == data);
        let absent = key.successor().unwrap();
        let next = tree_roots.items.get(at + 1).map(|item| item.0);
        let after = Cursor::seek(&store, &tree, &absent, ReadAhead::Off).unwrap();
        assert_eq!(after.item().map(|item| item.key), next);
        let wanted = if next == Some(absent) { absent } else { *key };
        let before = Cursor::seek_back(&store, &tree, &absent, ReadAhead::Off).unwrap();
        assert_eq!(before.item().map(|item| item.key), Some(wanted));
    }
}

#[test]
fn cursor_skip_to_finds_the_next_item_and_never_moves_back() {
    let tree_roots = Forest::open();
    let store = tree_roots.store(1 << 20);
    let tree = tree_roots.tree(&store);
    for step in [1, 3, 50, 1000] {
        let mut cursor = Cursor::seek(&store, &tree, &Key::MIN, ReadAhead::Off).unwrap();
        let key = |cursor: &Cursor<'_>| cursor.item().map(|item| item.key);
        for (at, (there, _)) in tree_roots.items.iter().enumerate().step_by(step) {
            cursor.skip_to(there).unwrap();
            assert_eq!(key(&cursor), Some(*there));
            cursor.skip_to(&Key::MIN).unwrap();
            assert_eq!(key(&cursor), Some(*there));
            cursor.skip_to(&there.successor().unwrap()).unwrap();
            assert_eq!(key(&cursor), tree_roots.items.get(at + 1).map(|item| item.0));
        }
        cursor.skip_to(&Key::MAX).unwrap();
        assert!(cursor.item().is_none());
    }
}

#[test]
fn the_ends_of_a_tree_are_found() {
    let tree_roots = Forest::open();
    let store = tree_roots.store(0);
    let tree = tree_roots.tree(&store);
    let end = Cursor::seek(&store, &tree, &Key::MAX, ReadAhead::Forward).unwrap();
    assert!(end.item().is_none());
    let last = Cursor::seek_back(&store, &tree, &Key::MAX, ReadAhead::Off).unwrap();
    assert_eq!(last.item().map(|item| item.key), tree_roots.items.last().map(|item| item.0));
    let first = Cursor::seek_back(&store, &tree, &Key::MIN, ReadAhead::Off).unwrap();
    assert_eq!(first.item().map(|item| item.key), tree_roots.items.first().map(|item| item.0));
}

#[test]
fn threads_share_a_cache_that_is_too_small_for_them() {
    let tree_roots = Forest::open();
    let store = tree_roots.store(0);
    let tree = tree_roots.tree(&store);
    thread::scope(|scope| {
        for number in 0..8 {
            let tree_roots = &tree_roots;
            let store = &store;
            let tree = &tree;
            scope.spawn(move || {
                let start = tree_roots.items.len() / 8 * number;
                let key = tree_roots.items[start].0;
                let cursor = Cursor::seek(store, tree, &key, ReadAhead::Forward).unwrap();
                assert!(rest(cursor) == tree_roots.items[start..]);
            });
        }
    });
}

#[test]
fn a_second_pass_over_a_large_cache_reads_nothing() {
    let tree_roots = Forest::open();
    let store = tree_roots.store(64 << 20);
    let tree = tree_roots.tree(&store);
    let pass = || Cursor::seek(&store, &tree, &Key::MIN, ReadAhead::Forward).unwrap();
    assert_eq!(rest(pass()).len(), tree_roots.items.len());
    let misses = store.stats().misses;
    assert_eq!(rest(pass()).len(), tree_roots.items.len());
    assert_eq!(store.stats().misses, misses);
    assert!(store.stats().hits > misses);
}
