//! Trees: the node cache, search with lock coupling, cursors, and changes by copy-on-write.
//!
//! Invariants:
//!
//! 1. A node enters the cache verified. It is checked again against what each parent that leads
//!    to it expects.
//! 2. Node bytes never change while anyone holds them; the tree lock of a node guards the pointer
//!    to them. Who reads a node holds the bytes, not the lock, for as long as it needs; who changes
//!    it meanwhile makes new ones.
//! 3. A search takes a parent's lock before its child's and gives it back once the child's is
//!    held. The anchor of a tree, which says where its root is, is the parent of the root.
//! 4. No I/O is done under a tree lock: a search that misses the cache lets go of everything,
//!    reads, and starts anew, holding on to what it read.
//! 5. The cache is bounded in bytes. What is in use is never dropped, and what is not written is
//!    not in it: that is kept apart until it is.
//! 6. Reads ahead are private to the cursor that asked for them until they are complete.
//! 7. A transaction changes only nodes that it made, and counts through a [`BlockSource`] which
//!    blocks it takes and leaves, and who refers to them.

#![forbid(unsafe_code)]

mod cache;
mod cow;
mod cursor;
mod dirty;
mod edit;
mod hash;
mod merge;
mod path;
mod read_ahead;
mod search;
mod source;
mod split;
mod store;
mod tree;
mod write;

pub use cache::Cache;
pub use cursor::{Cursor, ReadAhead};
pub use edit::{Change, Edit, EditError, ItemEdit};
pub use hash::{ShortHasher, ShortKeys};
pub use search::Position;
pub use source::{Backref, BlockRefs, BlockSource, Extent, NoSpace, RefChange, SourceError};
pub use store::{CacheStats, DirtyList, NodeStore, SealError};
pub use tree::{Root, Tree};
pub use userbtrfs_volume::ReadError;

/// A node in the cache: its lock, and the pointer to its bytes that the lock guards.
pub type Node = userbtrfs_sync::TreeLock<NodeRef>;

/// A verified tree block that lives as long as anyone reads it.
pub type NodeRef = userbtrfs_sync::Arc<userbtrfs_volume::TreeBlock>;
