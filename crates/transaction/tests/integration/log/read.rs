//! The log that an image's superblock leads to, read from the device alone.

use std::collections::BTreeMap;

use userbtrfs_btree::{Cursor, ItemEdit, ReadAhead};
use userbtrfs_format::{Expectation, ItemKind, Key, Logical, RootItem, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_transaction::TreeRoots;
use userbtrfs_volume::{TreeBlock, Volume};

/// Items of logs, by subvolume and key.
pub(super) type Items = BTreeMap<(TreeId, Key), Vec<u8>>;

/// A log.
pub(super) struct Log {
    /// Its transaction.
    pub(super) generation: u64,
    /// All nodes, with those of the tree of the log roots.
    pub(super) nodes: Vec<Logical>,
    pub(super) items: Items,
}

/// Reads the log of an image, if it has one.
pub(super) fn read_log(image: &SparseImage) -> Option<Log> {
    read_log_of(&open(image))
}

fn open(image: &SparseImage) -> Volume {
    Volume::open(vec![Arc::new(image.to_device())]).unwrap()
}

fn read_log_of(volume: &Volume) -> Option<Log> {
    let superblock = volume.superblock();
    let generation = superblock.generation + 1;
    let mut nodes = Vec::new();
    let mut items = Items::new();
    let mut roots = Vec::new();
    let at = (superblock.log_root?, superblock.log_root_level, generation);
    walk(volume, at, &mut nodes, &mut |leaf| {
        roots.extend((0..leaf.len()).map(|slot| {
            let item = leaf.item(slot);
            let kind = (item.key.objectid, item.key.kind);
            assert_eq!(kind, (TreeId::TREE_LOG.0, ItemKind::ROOT_ITEM));
            (TreeId(item.key.offset), RootItem::parse(item.data).unwrap())
        }));
    });
    for (subvolume, root) in roots {
        let at = (root.logical, root.level, root.generation);
        assert_eq!(root.generation, generation);
        assert_eq!(root.generation_v2, Some(generation));
        walk(volume, at, &mut nodes, &mut |leaf| {
            let item = |slot| {
                let item = leaf.item(slot);
                ((subvolume, item.key), item.data.to_vec())
            };
            items.extend((0..leaf.len()).map(item));
        });
    }
    Some(Log { generation, nodes, items })
}

/// Walks a tree of a log; checks that every node is of the transaction.
fn walk(
    volume: &Volume,
    (logical, level, generation): (Logical, u8, u64),
    nodes: &mut Vec<Logical>,
    see: &mut dyn FnMut(&TreeBlock),
) {
    let owner = TreeId::TREE_LOG;
    let expected = Expectation { owner, level, generation, first_key: None, end: None };
    let block = volume.read_block(logical, &expected).unwrap();
    assert_eq!(block.header().generation, generation);
    nodes.push(logical);
    if block.is_leaf() {
        return see(&block);
    }
    for slot in 0..block.len() {
        let child = block.child(slot);
        assert_eq!(child.generation, generation);
        walk(volume, (child.logical, level - 1, generation), nodes, see);
    }
}

/// Checks that the image has these items, in a subvolume's tree or in its log, and that its log can
/// be read.
pub(super) fn shows(image: &SparseImage, subvolume: TreeId, edits: &[ItemEdit]) {
    let volume = open(image);
    let items = read_log_of(&volume).map(|log| log.items).unwrap_or_default();
    let tree_roots = TreeRoots::new(Arc::new(volume), 8 << 20);
    let tree = tree_roots.tree(subvolume).unwrap();
    for edit in edits {
        let ItemEdit::Put(key, data) = edit else { panic!("nothing is removed here") };
        let is_logged = items.get(&(subvolume, *key)) == Some(data);
        let cursor = Cursor::seek(tree_roots.store(), &tree, key, ReadAhead::Off).unwrap();
        let found = cursor.item().is_some_and(|item| (item.key, item.data) == (*key, &data[..]));
        assert!(is_logged || found, "{key} is lost");
    }
}
