//! Inodes and names, read from their trees.
//!
//! 1. An inode is named by [`InodeId`]; its tree is found once and kept by who works with it.
//! 2. Entries of a directory are listed by their index, so that a position stays good while
//!    entries come and go.
//! 3. A name is looked up by its hash, and compared in full among those that hash alike.

mod dir;
mod forest;
mod inode;
mod xattr;

pub(crate) use dir::{
    DirPosition, EntryTarget, ListedEntry, check_way_down, list, lookup, subvolume_name,
};
pub(crate) use forest::Forest;
pub(crate) use inode::{EMPTY_DIR, Link, ROOT_DIR, inode_item, names};
pub(crate) use xattr::{xattr, xattrs};
