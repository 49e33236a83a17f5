//! The sizes of the trees of a filesystem.

use std::cell::Cell;
use std::collections::BTreeMap;

use userbtrfs_format::{Expectation, ItemKind, Logical, RootItem, TreeId};
use userbtrfs_volume::{BlockReader, ReadError, TreeBlock, Volume, walk};

use super::Filesystem;

/// More blocks than the trees of a test have.
const BLOCKS_MAX: u64 = 1 << 20;

/// The size of one tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeSize {
    /// The number of its blocks.
    pub(super) blocks: u64,
    /// The number of its leaves.
    pub(super) leaves: u64,
    /// The bytes that the items of its leaves take.
    pub(super) items: u64,
}

impl TreeSize {
    /// Returns the maximum number of leaves for these items, with blocks of this size. A leaf is
    /// merged once it is less than a quarter full and fits into three quarters of a block with one
    /// of its neighbours. So of two neighbours one at least is a quarter full.
    pub(super) fn leaves_max(&self, nodesize: u64) -> u64 {
        2 * (4 * self.items).div_ceil(nodesize) + 1
    }
}

/// A reader that counts blocks.
struct CountingReader<'a> {
    volume: &'a Volume,
    count: Cell<u64>,
}

impl BlockReader for CountingReader<'_> {
    fn read_block(&self, logical: Logical, expected: &Expectation) -> Result<TreeBlock, ReadError> {
        self.count.set(self.count.get() + 1);
        self.volume.read_block(logical, expected)
    }
}

/// Returns the sizes of all trees of the last commit.
pub(super) fn tree_sizes(fs: &Filesystem) -> BTreeMap<TreeId, TreeSize> {
    let superblock = fs.superblock();
    let root = |owner, level, generation| Expectation {
        owner,
        level,
        generation,
        first_key: None,
        end: None,
    };
    let roots = root(TreeId::ROOT, superblock.root_level, superblock.generation);
    let chunks = root(TreeId::CHUNK, superblock.chunk_root_level, superblock.chunk_root_generation);
    let mut found = Vec::new();
    let mut note = |leaf: &TreeBlock| {
        for item in (0..leaf.len()).map(|slot| leaf.item(slot)) {
            if item.key.kind == ItemKind::ROOT_ITEM {
                let id = TreeId(item.key.objectid);
                let item = RootItem::parse(item.data).unwrap();
                found.push((item.logical, root(id, item.level, item.generation)));
            }
        }
    };
    let size = tree_size(fs, superblock.root, roots, &mut note);
    let mut sizes = BTreeMap::from([(TreeId::ROOT, size)]);
    found.push((superblock.chunk_root, chunks));
    for (logical, root) in found {
        sizes.insert(root.owner, tree_size(fs, logical, root, |_| {}));
    }
    sizes
}

/// Returns the size of one tree; calls `visit` with each leaf.
fn tree_size(
    fs: &Filesystem,
    root: Logical,
    expected: Expectation,
    mut visit: impl FnMut(&TreeBlock),
) -> TreeSize {
    let reader = CountingReader { volume: fs.volume(), count: Cell::new(0) };
    let mut leaves = walk(&reader, root, expected, BLOCKS_MAX);
    let mut size = TreeSize::default();
    while let Some(leaf) = leaves.next_leaf().unwrap() {
        size.leaves += 1;
        size.items += leaf.used_space() as u64;
        visit(&leaf);
    }
    size.blocks = reader.count.get();
    size
}
