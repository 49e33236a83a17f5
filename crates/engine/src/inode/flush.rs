//! Writes delayed items into the trees (Linux: btrfs_run_delayed_items).
//!
//! [`run`] drives it; [`item_edits`] turns the changes of an inode into edits of items,
//! [`drop_extents`] those of file ranges, and [`item_limits`] decides beforehand whether an item
//! can hold them.

pub(in crate::inode) mod drop_extents;
pub(in crate::inode) mod item_edits;
pub(in crate::inode) mod item_limits;
pub(in crate::inode) mod run;
