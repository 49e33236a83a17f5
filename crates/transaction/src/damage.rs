//! Contradictions that this crate can find in the trees.
//!
//! 1. Each variant is one check; it names the extent, or the range, that failed it.
//! 2. No change is made because of damaged items. The transaction that met them cannot be
//!    committed: part of its changes may be in the trees.

use thiserror::Error;
use userbtrfs_btree::Backref;
use userbtrfs_format::{Key, Logical, TreeId};

/// A contradiction between trees, or within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// References of an extent change that is not in the extent tree.
    #[error("extent {0} is in use, but not in the extent tree")]
    NoExtent(Logical),
    /// The allocator returned space that is an extent in the extent tree.
    #[error("extent {0} was allocated twice")]
    ExtentExists(Logical),
    /// The extent tree has an extent of another kind, level or length at the address.
    #[error("extent {logical} is not what {found} says it is")]
    ExtentShape {
        /// Where it is.
        logical: Logical,
        /// The key of its item.
        found: Key,
    },
    /// References to one address describe different extents.
    #[error("extent {0} is referred to as two different extents")]
    TwoExtents(Logical),
    /// A reference is dropped that the extent does not have, or not that often.
    #[error("extent {logical} lacks a reference that is dropped: {backref:?}")]
    NoReference {
        /// Where the extent is.
        logical: Logical,
        /// The dropped reference.
        backref: Backref,
    },
    /// A reference is added once more than it can be.
    #[error("extent {logical} has too many references of one user: {backref:?}")]
    TooManyReferences {
        /// Where the extent is.
        logical: Logical,
        /// The added reference.
        backref: Backref,
    },
    /// The count of an extent's references is not the sum of them.
    #[error("extent {logical} counts {refs} references, which is not the sum of them")]
    ReferenceCount {
        /// Where the extent is.
        logical: Logical,
        /// The number of references in its item.
        refs: u64,
    },
    /// Free space changes in a block group that has no free space info item.
    #[error("block group {start} of {len} bytes is not in the free space tree")]
    NoFreeSpaceInfo {
        /// Where the group starts.
        start: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Space is allocated that is not free in the free space tree.
    #[error("{len} bytes at {start} are allocated, but were not free in the free space tree")]
    NotFree {
        /// Where the range starts.
        start: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Space is freed that is already free in the free space tree.
    #[error("{len} bytes at {start} are freed, but were free in the free space tree")]
    AlreadyFree {
        /// Where the range starts.
        start: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Items of a block group in the free space tree overlap, leave it, or leave a gap.
    #[error("item {0} of the free space tree does not fit its block group")]
    FreeSpaceItem(Key),
    /// The count of a block group's free ranges is wrong.
    #[error("block group {start} counts {count} free ranges, which is wrong")]
    FreeRangeCount {
        /// Where the group starts.
        start: u64,
        /// The number of free ranges in its free space info item.
        count: u32,
    },
    /// A deleted tree reaches a block alone that is of another tree, or by its own path one that
    /// other trees share.
    #[error("block {logical} of {tree} should be its own, but is not")]
    NotOwn {
        /// The tree.
        tree: TreeId,
        /// Where the block is.
        logical: Logical,
    },
    /// The root item of a deleted tree has a position that the tree does not have.
    #[error("{tree} is dropped up to {key} at level {level}, where it has no child")]
    DropPosition {
        /// The tree.
        tree: TreeId,
        /// The key of the next child.
        key: Key,
        /// The level of the node that has it.
        level: u8,
    },
    /// Extents of a file overlap.
    #[error("item {1} of tree {0} overlaps the one before")]
    FileExtents(TreeId, Key),
    /// Extents overlap, or leave their block group.
    #[error("item {0} of the extent tree overlaps another, or leaves its block group")]
    ExtentItem(Key),
}
