//! The state of each inode in the tree log of the running transaction.
//!
//! Read [`tracker`] first: it knows what is logged and which names were removed. [`freeze`] stops
//! name changes while a log commit is sealed. [`few`] is the small set that both use.

pub(in crate::inode) mod few;
pub(in crate::inode) mod freeze;
pub(in crate::inode) mod tracker;
