//! Inodes and names, in memory and in their trees.
//!
//! | folder      | holds                                                                     |
//! |-------------|---------------------------------------------------------------------------|
//! | `inodes`    | all inodes: the cache, the delayed items and the space for them           |
//! | `incore`    | an inode in memory, and the cache of them                                 |
//! | `dir`       | directory entries, lookup and listing                                     |
//! | `pending`   | delayed items: changes that are not yet in a tree                         |
//! | `log_state` | the state of each inode in the tree log                                   |
//! | `tree`      | reads from the trees                                                      |
//! | `ops`       | the operations: create, link, unlink, rename, attributes, xattrs, orphans |
//! | `flush`     | delayed items into trees                                                  |
//!
//! 1. The inode in memory is authoritative; the tree is its durable image.
//! 2. Reads look into the delayed items, newest first, then into the tree. Deferred DIR_ITEMs are
//!    the oldest of the delayed items.
//! 3. Entries of a directory are listed by their index, so that a position stays valid while
//!    entries are added and removed.
//! 4. A name is looked up by its hash, and compared in full with the names of the same hash.
//! 5. Every check that can fail is done before anything is changed; a flush finds nothing to
//!    refuse.

pub(crate) mod dir;
#[cfg(all(test, shuttle))]
pub(crate) mod exploring;
mod flush;
mod ids;
mod incore;
mod inodes;
mod log_state;
pub(crate) mod ops;
mod pending;
#[cfg(all(test, shuttle))]
mod shuttle_models;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use dir::entry::{Entry, EntryTarget, Link, subvolume_name};
pub(crate) use dir::lookup::{DirPosition, NamesToLog};
pub(crate) use flush::run::DelayedItemsFlusher;
#[cfg(feature = "experiments")]
pub(crate) use flush::run::flush_inode;
pub use ids::EMPTY_DIR;
pub(crate) use ids::ROOT_DIR;
pub(crate) use incore::changed_ranges::EXTENTS_MAX;
pub(crate) use incore::extent_map::{ExtentMap, ExtentMapKind, InlineData};
pub(crate) use incore::inode::{InMemory, Inode};
pub(crate) use inodes::{Inodes, InodesOptions};
pub(crate) use log_state::tracker::{LogMode, LoggedState, PreviousLogState, RemovedName};
pub(crate) use ops::create::{NewInode, NewKind};
pub(crate) use ops::file_extents::FileChange;
pub(crate) use ops::inherit::DefaultAcl;
pub(crate) use ops::namespace::{InodeEvents, Namespace};
pub(crate) use ops::orphan::{EXTENTS_PER_STEP, InodeRef};
pub(crate) use ops::property::FLAGS as COMPRESSION_FLAGS;
pub(crate) use ops::rename::RenameKind;
pub(crate) use ops::replay::NamesItem;
pub use ops::setattr::Membership;
pub(crate) use ops::setattr::SetAttributes;
pub(crate) use ops::xattr::{PutXattr, XattrKind};
pub(crate) use pending::delayed_items::{IndexedLink, RefIndex};
pub(crate) use pending::extents::{ExtentChanges, reference};
pub(crate) use userbtrfs_transaction::TreeRoots;
