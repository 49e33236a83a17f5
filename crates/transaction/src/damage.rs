//! What the books can find wrong with themselves.
//!
//! 1. Each variant is one check; it names the extent, or the range, that failed it.
//! 2. Nothing was changed on account of what is damaged. The transaction that met it cannot be
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
    /// Space was given out that the extent tree knows as an extent.
    #[error("extent {0} was allocated twice")]
    ExtentExists(Logical),
    /// The extent tree knows an extent of another kind, level or length at the address.
    #[error("extent {logical} is not what {found} says it is")]
    ExtentShape {
        /// Where it is.
        logical: Logical,
        /// The key of its item.
        found: Key,
    },
    /// References to one address take it for different extents.
    #[error("extent {0} is referred to as two different extents")]
    TwoExtents(Logical),
    /// A reference is dropped that the extent does not have, or not so often.
    #[error("extent {logical} lacks a reference that is dropped: {backref:?}")]
    NoReference {
        /// Where the extent is.
        logical: Logical,
        /// Who drops it.
        backref: Backref,
    },
    /// A reference is added once more than it can be.
    #[error("extent {logical} has too many references of one user: {backref:?}")]
    TooManyReferences {
        /// Where the extent is.
        logical: Logical,
        /// Who adds it.
        backref: Backref,
    },
    /// The count of an extent's references is not the sum of them.
    #[error("extent {logical} counts {refs} references, which is not the sum of them")]
    ReferenceCount {
        /// Where the extent is.
        logical: Logical,
        /// What it counts.
        refs: u64,
    },
    /// Free space of a block group is to change that has none of its own in the free space tree.
    #[error("block group {start} of {len} bytes is not in the free space tree")]
    NoFreeSpaceInfo {
        /// Where the group starts.
        start: u64,
        /// Its bytes.
        len: u64,
    },
    /// Space is allocated that the free space tree does not call free.
    #[error("{len} bytes at {start} are allocated, but were not free in the free space tree")]
    NotFree {
        /// Where the range starts.
        start: u64,
        /// Its bytes.
        len: u64,
    },
    /// Space is freed that the free space tree calls free already.
    #[error("{len} bytes at {start} are freed, but were free in the free space tree")]
    AlreadyFree {
        /// Where the range starts.
        start: u64,
        /// Its bytes.
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
        /// What it counts.
        count: u32,
    },
    /// Extents of a file overlap.
    #[error("item {1} of tree {0} overlaps the one before")]
    FileExtents(TreeId, Key),
    /// Extents overlap, or leave their block group.
    #[error("item {0} of the extent tree overlaps another, or leaves its block group")]
    ExtentItem(Key),
}
