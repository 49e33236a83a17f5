//! Writes that were refused when their writers had been told that they were done.
//!
//! 1. The kernel keeps what is written, and sends it later. What is refused then (there is no
//!    space left, the device fails) its writer learns by fsync(2) or close(2); but who asks for
//!    neither would write for ever.
//! 2. After a refusal the kernel keeps no attributes of the file, so a call that writes to it asks
//!    for them by its descriptor: it is refused in turn, with the reason. So does who reads past
//!    the end of the file, or looks for it: only who is seen to write is refused.
//! 3. A refusal is told once, and goes with the data: at a truncation, or when the kernel forgets
//!    the file.

use std::collections::HashMap;

use userbtrfs_engine::api::InodeId;
use userbtrfs_fuse::Errno;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};

/// See the module's text.
pub(crate) struct UnreportedErrors {
    /// There may be some: looked at without the lock, since there mostly are none.
    any: AtomicBool,
    reasons: Mutex<HashMap<InodeId, Errno>>,
}

impl Default for UnreportedErrors {
    fn default() -> Self {
        let reasons = Mutex::new(Class::FuseSession, HashMap::new());
        Self { any: AtomicBool::new(false), reasons }
    }
}

impl UnreportedErrors {
    /// What was written to a file is refused.
    pub(crate) fn note(&self, file: InodeId, reason: Errno) {
        let mut reasons = self.reasons.lock();
        reasons.insert(file, reason);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether a file may be among them: mostly there is none.
    pub(crate) fn may_have(&self, file: InodeId) -> bool {
        self.any.load(Ordering::Relaxed) && self.reasons.lock().contains_key(&file)
    }

    /// Why it was, if that was not told yet; it is from now on.
    pub(crate) fn take(&self, file: InodeId) -> Option<Errno> {
        let mut reasons = self.reasons.lock();
        let reason = reasons.remove(&file);
        self.any.store(!reasons.is_empty(), Ordering::Relaxed);
        reason
    }

    /// The data is gone: there is nothing to tell any more.
    pub(crate) fn forget(&self, file: InodeId) {
        if self.may_have(file) {
            let _gone = self.take(file);
        }
    }
}
