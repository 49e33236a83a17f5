//! A simple read-only walk over the leaves of a tree, without cache and locks.
//!
//! The volume uses it to read its chunk tree, and an independent checker to read all other trees.
//!
//! 1. It holds at most one block of each level in memory.
//! 2. It terminates: levels decrease on the way down, keys increase from leaf to leaf, and the
//!    number of blocks read is bounded.

use userbtrfs_format::{ChildPointer, Expectation, Key, Logical, TreeId};

use crate::error::ReadError;
use crate::node_bytes::TreeBlock;
use crate::volume::Volume;

/// A source of verified tree blocks.
pub trait BlockReader {
    /// Reads the block at `logical`.
    fn read_block(&self, logical: Logical, expected: &Expectation) -> Result<TreeBlock, ReadError>;
}

impl BlockReader for Volume {
    fn read_block(&self, logical: Logical, expected: &Expectation) -> Result<TreeBlock, ReadError> {
        Volume::read_block(self, logical, expected)
    }
}

/// A walk over the leaves of a tree, in key order.
pub struct Walk<'a, R> {
    reader: &'a R,
    tree: TreeId,
    root: Option<(Logical, Expectation)>,
    /// The nodes above the next leaf, each with the next slot to descend to.
    path: Vec<(TreeBlock, usize)>,
    left: u64,
    bound: u64,
}

/// Starts a walk at the root block `logical`. The walk fails after `bound` blocks.
pub fn walk<R: BlockReader>(
    reader: &R,
    logical: Logical,
    expected: Expectation,
    bound: u64,
) -> Walk<'_, R> {
    let root = Some((logical, expected));
    Walk { reader, tree: expected.owner, root, path: Vec::new(), left: bound, bound }
}

impl<R: BlockReader> Walk<'_, R> {
    /// Returns the next leaf, or `None` after the last.
    pub fn next_leaf(&mut self) -> Result<Option<TreeBlock>, ReadError> {
        let next = match self.root.take() {
            Some(root) => Some(root),
            None => self.next_child(),
        };
        let Some((mut logical, mut expected)) = next else { return Ok(None) };
        loop {
            self.count()?;
            let block = self.reader.read_block(logical, &expected)?;
            if block.is_leaf() {
                return Ok(Some(block));
            }
            let level = block.header().level;
            (logical, expected) = self.below(level, block.child(0), block.next_child_key(0));
            self.path.push((block, 1));
        }
    }

    /// Returns the next child of the path's nodes that was not visited yet.
    fn next_child(&mut self) -> Option<(Logical, Expectation)> {
        while let Some((node, slot)) = self.path.last_mut() {
            if *slot < node.len() {
                let child = node.child(*slot);
                let end = node.next_child_key(*slot);
                let level = node.header().level;
                *slot += 1;
                return Some(self.below(level, child, end));
            }
            self.path.pop();
        }
        None
    }

    fn below(&self, level: u8, child: ChildPointer, end: Option<Key>) -> (Logical, Expectation) {
        let expected = Expectation {
            owner: self.tree,
            level: level - 1,
            generation: child.generation,
            first_key: Some(child.key),
            end,
        };
        (child.logical, expected)
    }

    fn count(&mut self) -> Result<(), ReadError> {
        let tree = self.tree;
        let bound = self.bound;
        self.left = self.left.checked_sub(1).ok_or(ReadError::TooManyBlocks { tree, bound })?;
        Ok(())
    }
}
