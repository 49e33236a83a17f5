//! The identity of an inode that is copied.

use userbtrfs_engine::api::InodeId;

/// The identity of an inode of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// An inode of the host: its device and inode number.
    Host(u64, u64),
    /// An inode of an image.
    Image(InodeId),
}
