//! Notifications to the kernel, which invalidate its caches.
//!
//! 1. A notification of a name takes the kernel's lock of its directory (`i_rwsem`), which the
//!    kernel also holds while it waits for requests about that directory. So it must not be sent
//!    before such a request is answered, nor by a thread that holds a lock that serving one needs.
//! 2. A notification of a node takes no such lock, but waits for its contents: dirty pages are
//!    written back first, by requests that other threads serve. So a thread that serves a request
//!    sends it in [`may_wait`](crate::may_wait).

use std::io::IoSlice;

use rustix::io::Errno;
use userbtrfs_sync::Arc;
use zerocopy::IntoBytes;

use crate::channel::Channel;
use crate::values::{Name, NodeId};
use crate::wire::{self, NotifyCode};

/// Sends notifications to one mount.
#[derive(Clone, Debug)]
pub struct Notifier {
    channel: Arc<Channel>,
}

/// The part of a node to invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Only the attributes.
    Attributes,
    /// The attributes and a range of the contents.
    Contents {
        /// The first byte.
        offset: u64,
        /// The number of bytes, at least one; `None` for all to the end.
        length: Option<u64>,
    },
}

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        Self { channel }
    }

    /// Invalidates what the kernel caches of a node; false if it does not know the node. Dirty
    /// pages of the range are written back; waits for that and for reads of the range in flight.
    pub fn invalidate_inode(&self, node: NodeId, stale: Invalidation) -> Result<bool, Errno> {
        let (off, len) = match stale {
            Invalidation::Attributes => (-1, 0),
            Invalidation::Contents { offset, length } => (clamp(offset), length.map_or(0, clamp)),
        };
        let out = wire::NotifyInvalInode { ino: node.0, off, len };
        self.send(NotifyCode::InvalidateInode, &[IoSlice::new(out.as_bytes())])
    }

    /// Invalidates a cached name, found or absent; false if it was not cached.
    ///
    /// With `expire` (if [`InitFlags::HAS_EXPIRE_ONLY`](crate::InitFlags::HAS_EXPIRE_ONLY) was
    /// agreed on) the name is looked up again at its next use, and a directory in use is kept.
    pub fn invalidate_entry(
        &self,
        parent: NodeId,
        name: Name<'_>,
        expire: bool,
    ) -> Result<bool, Errno> {
        let flags = if expire { wire::EXPIRE_ONLY } else { 0 };
        let out = wire::NotifyInvalEntry { parent: parent.0, namelen: length_of(name), flags };
        self.send_named(NotifyCode::InvalidateEntry, out.as_bytes(), name)
    }

    /// Removes a deleted name from the cache, and notifies inotify(7) watches; false if it was not
    /// cached.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: Name<'_>) -> Result<bool, Errno> {
        let namelen = length_of(name);
        let out = wire::NotifyDelete { parent: parent.0, child: child.0, namelen, padding: 0 };
        self.send_named(NotifyCode::Delete, out.as_bytes(), name)
    }

    /// Wakes the pollers that registered with this number.
    pub fn wake_poll(&self, poll: u64) -> Result<bool, Errno> {
        let out = wire::NotifyPollWakeup { kh: poll };
        self.send(NotifyCode::Poll, &[IoSlice::new(out.as_bytes())])
    }

    fn send_named(&self, code: NotifyCode, out: &[u8], name: Name<'_>) -> Result<bool, Errno> {
        let parts = [out, name.as_bytes(), &[0]].map(IoSlice::new);
        self.send(code, &parts)
    }

    fn send(&self, code: NotifyCode, parts: &[IoSlice<'_>]) -> Result<bool, Errno> {
        match self.channel.notify(code, parts) {
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
