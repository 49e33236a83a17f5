//! Trees: the node cache, search with lock coupling, cursors, and changes by copy-on-write.
//!
//! Invariants:
//!
//! 1. A node enters the cache verified. It is checked again against what each parent that leads
//!    to it expects.
//! 2. Node bytes never change while anyone holds them; the tree lock of a node guards the pointer
//!    to them. A reader holds the bytes, not the lock, for as long as it needs; a writer that
//!    changes the node meanwhile makes a copy of the bytes.
//! 3. A search takes a parent's lock before its child's and releases it once the child's is
//!    held. The anchor of a tree, which holds the address of its root, is the parent of the root.
//! 4. No I/O is done under a tree lock: a search that misses the cache releases all locks, reads,
//!    and restarts, keeping the nodes that it read.
//! 5. The cache is bounded in bytes. Nodes in use are never evicted. Dirty nodes are not in the
//!    cache: they are kept apart until they are written.
//! 6. Read-ahead is private to the cursor that submitted it until it is complete.
//! 7. A transaction changes only nodes that it made. It reports to a [`BlockSource`] the blocks
//!    that it allocates and frees, and the references to them.

#![forbid(unsafe_code)]

mod cache;
mod cow;
mod cursor;
mod dirty;
mod drop_tree;
mod edit;
mod hash;
mod merge;
mod path;
mod push;
mod read_ahead;
mod relocate;
mod search;
mod snapshot;
mod source;
mod split;
mod step_budget;
mod store;
mod tree;
mod write;

pub use cache::Cache;
pub use cursor::{Cursor, ReadAhead};
pub use drop_tree::{DropCounts, DropError, DropPosition, TreeDrop};
pub use edit::{Change, Edit, EditError, ItemEdit};
pub use hash::{ShortHasher, ShortKeys};
pub use relocate::{Moved, MovedRef, PlanError, RelocationPlan};
pub use search::Position;
pub use source::{Backref, BlockRefs, BlockSource, Extent, NoSpace, RefChange, SourceError};
pub use store::{CacheStats, DirtyList, NodeStore, SealError};
pub use tree::{Root, Tree};
pub use userbtrfs_volume::ReadError;

/// A node in the cache: its lock, and the pointer to its bytes that the lock guards.
pub type Node = userbtrfs_sync::TreeLock<NodeRef>;

/// A reference-counted, verified tree block.
pub type NodeRef = userbtrfs_sync::Arc<userbtrfs_volume::TreeBlock>;
