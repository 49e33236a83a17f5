//! What copy-on-write needs of whoever keeps the books.
//!
//! 1. Everything here but [`BlockSource::load_refs`] works in memory, and may be called under
//!    tree locks.
//! 2. A tree tells of each block it takes and leaves, and of each reference that comes or goes by
//!    that; the source counts, the tree does not.

use thiserror::Error;
use userbtrfs_format::{Header, Logical, TreeId};

use crate::Tree;

/// Where blocks of trees come from, and where they go.
pub trait BlockSource: Sync {
    /// The transaction that blocks are written for.
    fn generation(&self) -> u64;

    /// An address for a new block of `tree`, close to `near` if that can be; the first reference
    /// to it, by the tree, is counted.
    fn allocate(&self, tree: TreeId, level: u8, near: Logical) -> Result<Logical, NoSpace>;

    /// `tree` refers to this block no longer.
    fn free(&self, tree: TreeId, block: &Header);

    /// Who uses a block that snapshots may share, as of now; nothing where that must be learnt.
    fn sharing(&self, block: Logical) -> Option<BlockRefs>;

    /// Looks up who uses a block. No tree lock is held.
    fn load_refs(&self, block: Logical, level: u8) -> Result<(), SourceError>;

    /// A reference comes or goes.
    fn reference(&self, change: RefChange);

    /// From now on the block's children are referred to by its address.
    fn set_full_backref(&self, block: Logical, level: u8);

    /// The root of a tree is another one, or of another transaction, than the root tree says.
    fn root_changed(&self, tree: &Tree);
}

/// Why the books could not be asked.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// There is no place for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no space for a tree block")]
pub struct NoSpace;

/// Who uses a tree block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRefs {
    /// How many references there are to it.
    pub refs: u64,
    /// Whether its children are referred to by its address, not by its tree.
    pub full_backref: bool,
}

impl BlockRefs {
    /// What a block is that no snapshot can share.
    pub const ALONE: Self = Self { refs: 1, full_backref: false };
}

/// A reference that comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RefChange {
    /// Whether it comes.
    pub add: bool,
    /// What is referred to.
    pub extent: Extent,
    /// Who refers to it.
    pub backref: Backref,
}

/// What is referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// A tree block.
    Block {
        /// Where it is.
        logical: Logical,
        /// Its level.
        level: u8,
    },
    /// Data of files.
    Data {
        /// Where it is.
        logical: Logical,
        /// Its length on disk in bytes.
        len: u64,
    },
}

/// Who refers to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backref {
    /// A tree, to one of its blocks.
    Tree(TreeId),
    /// A block above, by its address, to a block.
    Parent(Logical),
    /// A file, to data.
    File {
        /// The subvolume.
        root: TreeId,
        /// The inode.
        inode: u64,
        /// The offset in the file at which the whole extent would start; wraps below 0.
        offset: u64,
    },
    /// A leaf, by its address, to data.
    SharedLeaf(Logical),
}
