//! The operations on names and inodes.
//!
//! Every change is one [`operation`]: it reserves space, takes the locks, makes every check that
//! can fail, joins the transaction, and only then changes memory. Each other file is one system
//! call or a family of them; [`orphan`] deletes inodes that have no name, [`replay`] serves the
//! replay of a log, and [`property`] holds the compression property.

pub(in crate::inode) mod create;
pub(in crate::inode) mod file_extents;
pub(in crate::inode) mod link;
pub(in crate::inode) mod operation;
pub(in crate::inode) mod orphan;
pub(in crate::inode) mod property;
pub(in crate::inode) mod rename;
pub(in crate::inode) mod replay;
pub(in crate::inode) mod setattr;
pub(in crate::inode) mod unlink;
pub(in crate::inode) mod xattr;
