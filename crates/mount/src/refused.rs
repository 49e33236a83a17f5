//! Writes that were refused when their writers had been told that they were done.
//!
//! 1. The kernel keeps what is written, and sends it later. What is refused then (there is no
//!    space left, the device fails) its writer learns by fsync(2) or close(2); but who asks for
//!    neither would write for ever.
//! 2. After a refusal the kernel's attributes are old, so a call that writes to the file asks for
//!    them by its descriptor: it is refused in turn, with the reason. So is a call that looks for
//!    the end of the file, but none that asks for attributes alone.
//! 3. A refusal is told once, and goes with the data: at a truncation, or when the kernel forgets
//!    the file.

use std::collections::HashMap;

use userbtrfs_fuse::{Errno, NodeId};
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};

/// See the module's text.
pub(crate) struct Refused {
    /// There may be some: looked at without the lock, since there mostly are none.
    any: AtomicBool,
    reasons: Mutex<HashMap<NodeId, Errno>>,
}

impl Default for Refused {
    fn default() -> Self {
        let reasons = Mutex::new(Class::FuseSession, HashMap::new());
        Self { any: AtomicBool::new(false), reasons }
    }
}

impl Refused {
    /// What was written to a file is refused.
    pub(crate) fn note(&self, node: NodeId, reason: Errno) {
        let mut reasons = self.reasons.lock();
        reasons.insert(node, reason);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Why it was, if that was not told yet; it is from now on.
    pub(crate) fn take(&self, node: NodeId) -> Option<Errno> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut reasons = self.reasons.lock();
        let reason = reasons.remove(&node);
        self.any.store(!reasons.is_empty(), Ordering::Relaxed);
        reason
    }
    /// The data is gone: there is nothing to tell any more.
    pub(crate) fn forget(&self, node: NodeId) {
        let _gone = self.take(node);
    }
}
