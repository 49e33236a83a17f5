//! What a server tells the kernel unasked: the number of the request is zero, and the error is
//! the kind of the notice.

use super::layouts;

/// The kinds of notices that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A node that was polled is ready.
    Poll,
    /// What is cached of a node is old.
    InvalidateInode,
    /// A name that is cached is old.
    InvalidateEntry,
    /// A name is gone.
    Delete,
}

impl Notice {
    /// The number of the kind.
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
    NoticePoll[8] { kh: u64 }
    /// A negative offset means the attributes alone; a length of zero or less, to the end.
    NoticeInode[24] { ino: u64, off: i64, len: i64 }
    /// A name and a NUL follow.
    NoticeEntry[16] { parent: u64, namelen: u32, flags: u32 }
    /// A name and a NUL follow.
    NoticeDelete[24] { parent: u64, child: u64, namelen: u32, padding: u32 }
}

/// The name is looked up anew at its next use, and not thrown away.
pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
