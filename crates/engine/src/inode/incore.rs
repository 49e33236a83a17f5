//! Inodes in memory.
//!
//! Read [`inode`] first: one inode, its state and its locks. [`inode_cache`] keeps the inodes of a
//! filesystem by number, as Linux's inode cache does. [`extent_map`] is a range of a file, and what
//! holds it; [`changed_ranges`] are those that the log has to have.

pub(in crate::inode) mod changed_ranges;
pub(in crate::inode) mod extent_map;
pub(in crate::inode) mod inode;
pub(in crate::inode) mod inode_cache;
