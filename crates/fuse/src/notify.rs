//! What the kernel is told unasked: that what it keeps is old.
//!
//! 1. A notice of a name takes the kernel's lock of its directory, under which the kernel waits for
//!    requests about that directory. So none is sent before such a request is answered, nor by who
//!    holds what serving one needs.
//! 2. A notice of a node takes no such lock, but waits for its contents: what is dirty in the cache
//!    is written back first, by requests that other threads serve. So it is sent in
//!    [`may_wait`](crate::may_wait) where it is sent while a request is served.

use std::io::IoSlice;

use rustix::io::Errno;
use userbtrfs_sync::Arc;
use zerocopy::IntoBytes;

use crate::channel::Channel;
use crate::values::{Name, NodeId};
use crate::wire::{self, Notice};

/// Sends notices to one mount.
#[derive(Clone, Debug)]
pub struct Notifier {
    channel: Arc<Channel>,
}

/// What of a node is old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// The attributes alone.
    Attributes,
    /// The attributes and a range of the contents.
    Contents {
        /// The first byte.
        offset: u64,
        /// How many bytes, at least one; all to the end where it is not said.
        length: Option<u64>,
    },
}

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        Self { channel }
    }

    /// What is kept of a node is old. False: nothing was kept. What is dirty of the range is
    /// written back; that, and what is being read of it, is waited for.
    pub fn invalidate_inode(&self, node: NodeId, stale: Invalidation) -> Result<bool, Errno> {
        let (off, len) = match stale {
            Invalidation::Attributes => (-1, 0),
            Invalidation::Contents { offset, length } => (clamp(offset), length.map_or(0, clamp)),
        };
        let out = wire::NoticeInode { ino: node.0, off, len };
        self.send(Notice::InvalidateInode, &[IoSlice::new(out.as_bytes())])
    }

    /// A name, found or absent, is to be looked up anew. False: nothing was kept.
    ///
    /// With `expire` (where [`InitFlags::HAS_EXPIRE_ONLY`](crate::InitFlags::HAS_EXPIRE_ONLY) was
    /// agreed on) that happens at its next use, and a directory that is in use stays.
    pub fn invalidate_entry(
        &self,
        parent: NodeId,
        name: Name<'_>,
        expire: bool,
    ) -> Result<bool, Errno> {
        let flags = if expire { wire::EXPIRE_ONLY } else { 0 };
        let out = wire::NoticeEntry { parent: parent.0, namelen: length_of(name), flags };
        self.send_named(Notice::InvalidateEntry, out.as_bytes(), name)
    }

    /// A name is gone, and who watches is told. False: nothing was kept.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: Name<'_>) -> Result<bool, Errno> {
        let namelen = length_of(name);
        let out = wire::NoticeDelete { parent: parent.0, child: child.0, namelen, padding: 0 };
        self.send_named(Notice::Delete, out.as_bytes(), name)
    }

    /// What was polled with this number is ready.
    pub fn wake_poll(&self, poll: u64) -> Result<bool, Errno> {
        let out = wire::NoticePoll { kh: poll };
        self.send(Notice::Poll, &[IoSlice::new(out.as_bytes())])
    }

    fn send_named(&self, notice: Notice, out: &[u8], name: Name<'_>) -> Result<bool, Errno> {
        let parts = [out, name.as_bytes(), &[0]].map(IoSlice::new);
        self.send(notice, &parts)
    }

    fn send(&self, notice: Notice, parts: &[IoSlice<'_>]) -> Result<bool, Errno> {
        match self.channel.notify(notice, parts) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn length_of(name: Name<'_>) -> u32 {
    u32::try_from(name.as_bytes().len()).expect("a name is short")
}

fn clamp(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
