//! Inode numbers with a meaning.

/// The inode number of a subvolume's root directory.
pub(crate) const ROOT_DIR: u64 = 256;

/// The inode number of an empty directory that stands in for a subvolume which a snapshot did not
/// copy.
pub const EMPTY_DIR: u64 = 2;
