//! The interface through which copy-on-write allocates blocks and counts references.
//!
//! 1. Everything here but [`BlockSource::load_refs`] works in memory, and may be called under
//!    tree locks.
//! 2. A tree reports each block that it allocates and frees, and each reference that is added or
//!    dropped by that; the source counts them, the tree does not.

use thiserror::Error;
use userbtrfs_format::{Header, Logical, TreeId};

use crate::Tree;

/// An allocator of tree blocks that counts the references to them.
pub trait BlockSource: Sync {
    /// Returns the transaction that blocks are written for.
    fn generation(&self) -> u64;

    /// Returns an address for a new block of `tree`, close to `near` if possible; counts the
    /// first reference to it, that of the tree.
    fn allocate(&self, tree: TreeId, level: u8, near: Logical) -> Result<Logical, NoSpace>;

    /// Drops the reference of `tree` to this block.
    fn free(&self, tree: TreeId, block: &Header);

    /// Returns the current references to a block that snapshots may share; `None` if they must
    /// be looked up first, by [`BlockSource::load_refs`].
    fn sharing(&self, block: Logical) -> Option<BlockRefs>;

    /// Looks up the references to a block. No tree lock is held.
    fn load_refs(&self, block: Logical, level: u8) -> Result<(), SourceError>;

    /// Counts a reference that is added or dropped.
    fn reference(&self, change: RefChange);

    /// Drops a reference to a block if there are others, and returns the references before that;
    /// returns `None`, and does nothing, if they must be looked up first. This is one step for
    /// all threads: of two that drop the last two references, one finds no others.
    fn drop_if_shared(&self, change: RefChange) -> Option<BlockRefs>;

    /// Sets the full-backref flag of a block: its children are referred to by its address from
    /// now on.
    fn set_full_backref(&self, block: Logical, level: u8);

    /// Records that the root of a tree has another address or generation than in the root tree.
    fn root_changed(&self, tree: &Tree);
}

/// The reason why references could not be looked up.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// The error for a block that there is no space for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no space for a tree block")]
pub struct NoSpace;

/// The references to a tree block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRefs {
    /// The number of references to it.
    pub refs: u64,
    /// Whether its children are referred to by its address, not by its tree.
    pub full_backref: bool,
}

impl BlockRefs {
    /// The references to a block that no snapshot can share.
    pub const ALONE: Self = Self { refs: 1, full_backref: false };
}

/// A reference that is added or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RefChange {
    /// Whether it is added.
    pub add: bool,
    /// The extent that is referred to.
    pub extent: Extent,
    /// The origin of the reference.
    pub backref: Backref,
}

/// The extent that a reference is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// A tree block.
    Block {
        /// Its address.
        logical: Logical,
        /// Its level.
        level: u8,
    },
    /// Data of files.
    Data {
        /// Its address.
        logical: Logical,
        /// Its length on disk in bytes.
        len: u64,
    },
}

/// The origin of a reference to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backref {
    /// A tree, to one of its blocks.
    Tree(TreeId),
    /// A parent block, by its address, to a block.
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
