//! The trees of a log: the log root tree, and a log tree for each subvolume with logged changes.
//!
//! 1. All blocks of all log trees are pinned before anything is allocated, also those of deleted
//!    subvolumes: without knowledge of the log, their space is free.
//! 2. Each block is pinned once. So a cycle of blocks, or a block with two parents, is damage, and
//!    the number of blocks that are read is bounded by the space there is.
//! 3. This module only returns verified blocks of a log: of this owner, and of the generation that
//!    the parent has for it.

use userbtrfs_btree::{Cursor, ReadAhead, Root, Tree};
use userbtrfs_format::{Expectation, Item, ItemKind, Key, Logical, RootItem, TreeId, csum_count};
use userbtrfs_transaction::{TransactionManager, TreeRoots};
use userbtrfs_volume::TreeBlock;

use super::logged_range;
use crate::error::{Error, LogDamage, LogError, Result};
use crate::inode::{Link, NamesItem};
use crate::units::{SECTOR, to_usize};

/// The object id of checksum items (-10).
const CSUM_OBJECTID: u64 = u64::MAX - 9;

/// The logs to be replayed.
pub(crate) struct Logs {
    /// One for each subvolume.
    pub(crate) trees: Vec<LogTree>,
    /// The blocks of logs that cannot be read.
    pub(crate) unread: Vec<Unread>,
}

/// A block of a log that cannot be read, or must not be.
pub(crate) struct Unread {
    /// The subvolume; `None` for a block of the log root tree.
    pub(crate) subvolume: Option<TreeId>,
    /// The keys that it may have.
    pub(crate) keys: KeyRange,
    /// The reason.
    pub(crate) error: Error,
}

/// The keys from one on, up to and without another, or to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) first: Key,
    pub(crate) end: Option<Key>,
}

impl KeyRange {
    const ALL: Self = Self { first: Key::MIN, end: None };

    /// Returns the keys that a block may have.
    fn of(expected: &Expectation) -> Self {
        Self { first: expected.first_key.unwrap_or(Key::MIN), end: expected.end }
    }
}

/// The log of one subvolume.
pub(crate) struct LogTree {
    pub(crate) subvolume: TreeId,
    /// The keys of blocks that were skipped when the leaves were collected.
    pub(crate) gaps: Vec<KeyRange>,
    tree: Tree,
    /// The leaves, in the order of their keys.
    leaves: Vec<(Logical, Expectation)>,
}

/// Reads and pins the blocks of logs.
struct Gatherer<'a> {
    transactions: &'a TransactionManager,
    /// Whether blocks that cannot be read are skipped.
    tolerant: bool,
    unread: Vec<Unread>,
}

impl Logs {
    /// Finds and pins the logs that the superblock points to. Nothing may be allocated before. A
    /// block that cannot be read is an error, unless `tolerant`.
    pub(crate) fn find(transactions: &TransactionManager, tolerant: bool) -> Result<Self> {
        let superblock = transactions.volume().superblock();
        let Some(logical) = superblock.log_root else {
            return Ok(Self { trees: Vec::new(), unread: Vec::new() });
        };
        let level = superblock.log_root_level;
        let generation = superblock.generation.saturating_add(1);
        let mut gatherer = Gatherer { transactions, tolerant, unread: Vec::new() };
        let mut trees = Vec::new();
        for (logical, expected) in gatherer.leaves(None, Root { logical, level, generation })? {
            if let Some(leaf) = gatherer.read(None, logical, &expected)? {
                for item in (0..leaf.len()).map(|slot| leaf.item(slot)) {
                    trees.extend(gatherer.tree(&item)?);
                }
            }
        }
        Ok(Self { trees, unread: gatherer.unread })
    }
}

impl Gatherer<'_> {
    /// Returns the log of a subvolume that an item of the log root tree points to.
    fn tree(&mut self, item: &Item<'_>) -> Result<Option<LogTree>> {
        let is_log =
            (item.key.objectid, item.key.kind) == (TreeId::TREE_LOG.0, ItemKind::ROOT_ITEM);
        let subvolume = TreeId(item.key.offset);
        if !is_log || !subvolume.is_subvolume() {
            let error = LogError { subvolume: None, key: Some(item.key), why: LogDamage::NotALog };
            return self.pass_over(None, KeyRange::ALL, error.into()).map(|()| None);
        }
        let root = Root::from(&RootItem::parse(item.data).expect("verified with its block"));
        let before = self.unread.len();
        let leaves = self.leaves(Some(subvolume), root)?;
        let gaps = self.unread[before..].iter().map(|unread| unread.keys).collect();
        let tree = self.transactions.tree_roots().store().tree(TreeId::TREE_LOG, root);
        Ok(Some(LogTree { subvolume, gaps, tree, leaves }))
    }

    /// Pins all blocks of a tree; returns its leaves.
    fn leaves(&mut self, of: Option<TreeId>, root: Root) -> Result<Vec<(Logical, Expectation)>> {
        let Root { logical, level, generation } = root;
        let owner = TreeId::TREE_LOG;
        let expected = Expectation { owner, level, generation, first_key: None, end: None };
        let mut leaves = Vec::new();
        let mut left = vec![(logical, expected)];
        while let Some((logical, expected)) = left.pop() {
            let space = self.transactions.space();
            if let Err(error) = space.pin_log_block(self.transactions.tree_roots(), logical) {
                self.pass_over(of, KeyRange::of(&expected), error.into())?;
            } else if expected.level == 0 {
                leaves.push((logical, expected));
            } else if let Some(node) = self.read(of, logical, &expected)? {
                left.extend((0..node.len()).rev().map(|slot| below(&node, slot)));
            }
        }
        Ok(leaves)
    }

    fn read(
        &mut self,
        of: Option<TreeId>,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<Option<TreeBlock>> {
        match self.transactions.volume().read_block(logical, expected) {
            Ok(block) => Ok(Some(block)),
            Err(error) => self.pass_over(of, KeyRange::of(expected), error.into()).map(|()| None),
        }
    }

    fn pass_over(&mut self, subvolume: Option<TreeId>, keys: KeyRange, error: Error) -> Result<()> {
        if !self.tolerant {
            return Err(error);
        }
        self.unread.push(Unread { subvolume, keys, error });
        Ok(())
    }
}

/// Returns the child in a slot of a node, and the expectation for its block.
fn below(node: &TreeBlock, slot: usize) -> (Logical, Expectation) {
    let child = node.child(slot);
    let expected = Expectation {
        owner: TreeId::TREE_LOG,
        level: node.header().level - 1,
        generation: child.generation,
        first_key: Some(child.key),
        end: node.next_child_key(slot),
    };
    (child.logical, expected)
}

impl LogTree {
    /// Returns the error for damage of an item of this log.
    pub(crate) fn damage(&self, key: Key, why: LogDamage) -> Error {
        LogError { subvolume: Some(self.subvolume), key: Some(key), why }.into()
    }

    /// Returns the number of its leaves.
    pub(crate) fn leaf_count(&self) -> u64 {
        self.leaves.len() as u64
    }

    /// Returns its leaves in the order of their keys, each with the keys that it may have, and read
    /// when it is asked for.
    pub(crate) fn leaves<'a>(
        &'a self,
        tree_roots: &'a TreeRoots,
    ) -> impl Iterator<Item = (KeyRange, Result<TreeBlock>)> + 'a {
        let read = |(logical, expected): &(Logical, Expectation)| {
            let block = tree_roots.store().volume().read_block(*logical, expected);
            (KeyRange::of(expected), block.map_err(Error::from))
        };
        self.leaves.iter().map(read)
    }

    /// Returns the ranges of indexes of a directory that are logged whole.
    pub(crate) fn ranges(&self, tree_roots: &TreeRoots, dir: u64) -> Result<Vec<(u64, u64)>> {
        let first = Key::new(dir, ItemKind::DIR_LOG_INDEX, 0);
        let mut cursor = tree_roots.cursor(&self.tree, &first, ReadAhead::Off)?;
        let mut ranges = Vec::new();
        while let Some(item) = cursor.item() {
            if (item.key.objectid, item.key.kind) != (dir, first.kind) {
                break;
            }
            let range = logged_range(item.key, item.data);
            ranges.push(range.map_err(|why| self.damage(item.key, why))?);
            cursor.advance()?;
        }
        Ok(ranges)
    }

    /// Returns whether it has an entry of this name at this index of a directory.
    pub(crate) fn has_entry(
        &self,
        tree_roots: &TreeRoots,
        dir: u64,
        index: u64,
        name: &[u8],
    ) -> Result<bool> {
        self.has_name(tree_roots, Key::new(dir, ItemKind::DIR_INDEX, index), name)
    }

    /// Returns whether it has an extended attribute of an inode.
    pub(crate) fn has_xattr(
        &self,
        tree_roots: &TreeRoots,
        inode: u64,
        name: &[u8],
    ) -> Result<bool> {
        let hash = u64::from(userbtrfs_codec::hash::name_hash(name));
        self.has_name(tree_roots, Key::new(inode, ItemKind::XATTR_ITEM, hash), name)
    }

    fn has_name(&self, tree_roots: &TreeRoots, key: Key, name: &[u8]) -> Result<bool> {
        let position = self.tree.search(tree_roots.store(), &key)?;
        let data = position.exact.then(|| position.leaf.item(position.slot).data);
        let mut entries = data.into_iter().flat_map(userbtrfs_format::dir_entries);
        Ok(entries.any(|entry| entry.expect("verified with its block").name == name))
    }

    /// Returns the names that an inode has in one item; `None` if the item is not logged.
    pub(crate) fn names(
        &self,
        tree_roots: &TreeRoots,
        inode: u64,
        item: NamesItem,
    ) -> Result<Option<Vec<Link>>> {
        let position = self.tree.search(tree_roots.store(), &item.key(inode))?;
        Ok(position.exact.then(|| item.names(position.leaf.item(position.slot).data)))
    }

    /// Returns the checksums of the sectors between two addresses: the start of each run, and its
    /// checksums as stored.
    pub(crate) fn checksums(
        &self,
        tree_roots: &TreeRoots,
        start: u64,
        end: u64,
    ) -> Result<Vec<(Logical, Vec<u8>)>> {
        let size = tree_roots.store().volume().geometry().checksum_kind.size();
        let key = Key::new(CSUM_OBJECTID, ItemKind::EXTENT_CSUM, start);
        let mut cursor = Cursor::seek_back(tree_roots.store(), &self.tree, &key, ReadAhead::Off)?;
        let mut found = Vec::new();
        while let Some(item) = cursor.item().filter(|item| item.key < Key { offset: end, ..key }) {
            if (item.key.objectid, item.key.kind) == (key.objectid, key.kind) {
                let count = csum_count(item.data.len(), size).expect("verified with its block");
                let at = item.key.offset;
                let sectors = count as u64;
                let from = at.max(start);
                let to = (at + sectors * SECTOR).min(end);
                if from < to {
                    let index = |place: u64| to_usize((place - at) / SECTOR) * size;
                    found.push((Logical(from), item.data[index(from)..index(to)].to_vec()));
                }
            }
            cursor.advance()?;
        }
        Ok(found)
    }
}
