//! Reads of inodes from their trees.
//!
//! [`ondisk`] reads items; [`subvolume`] holds the facts of a subvolume that a writer needs.

pub(in crate::inode) mod ondisk;
pub(in crate::inode) mod subvolume;
