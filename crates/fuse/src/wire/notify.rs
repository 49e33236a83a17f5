//! Notifications of a server to the kernel (`FUSE_NOTIFY_*`): the number of the request is zero,
//! and the error field is the code.

use super::layouts;

/// The codes of notifications that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotifyCode {
    /// A node that was polled is ready.
    Poll,
    /// Cached data of a node is stale.
    InvalidateInode,
    /// A cached name is stale.
    InvalidateEntry,
    /// A name was deleted.
    Delete,
}

impl NotifyCode {
    /// Returns the number of the code.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Poll => 1,
            Self::InvalidateInode => 2,
            Self::InvalidateEntry => 3,
            Self::Delete => 6,
        }
    }
}

layouts! {
    /// The poll handle that is ready.
    NotifyPollWakeup[8] { kh: u64 }
    /// A negative offset means only the attributes; a length of zero or less, to the end.
    NotifyInvalInode[24] { ino: u64, off: i64, len: i64 }
    /// A name and a NUL follow.
    NotifyInvalEntry[16] { parent: u64, namelen: u32, flags: u32 }
    /// A name and a NUL follow.
    NotifyDelete[24] { parent: u64, child: u64, namelen: u32, padding: u32 }
}

/// The name is looked up again at its next use, and not dropped.
pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
