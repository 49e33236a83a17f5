//! Errors of cached writes that had already been reported as done to their writers.
//!
//! 1. The kernel caches writes, and sends them later. If one fails then (there is no space left,
//!    the device fails), its writer learns of that by fsync(2) or close(2); but a writer that calls
//!    neither would write forever.
//! 2. After an error the kernel caches no attributes of the file, so a write(2) to it requests them
//!    for its descriptor: that request fails with the error. A read past the end of the file and a
//!    seek to the end request them, too, so only a caller that is seen to write gets the error.
//! 3. An error is reported once. It is dropped with the data: after a change of the size that was
//!    done, or when the kernel forgets the file.

use std::collections::HashMap;

use userbtrfs_engine::api::InodeId;
use userbtrfs_fuse::Errno;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Class, Mutex};

/// The unreported write error of each file that has one.
pub(crate) struct UnreportedErrors {
    /// Whether there may be any: read without the lock, since there usually are none.
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
    /// Records the error of a write to a file.
    pub(crate) fn note(&self, file: InodeId, reason: Errno) {
        let mut reasons = self.reasons.lock();
        reasons.insert(file, reason);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Returns whether a file may have an unreported error; takes no lock if no file has one.
    pub(crate) fn may_have(&self, file: InodeId) -> bool {
        self.any.load(Ordering::Relaxed) && self.reasons.lock().contains_key(&file)
    }

    /// Returns the error of a file if it was not reported yet; counts it as reported.
    pub(crate) fn take(&self, file: InodeId) -> Option<Errno> {
        let mut reasons = self.reasons.lock();
        let reason = reasons.remove(&file);
        self.any.store(!reasons.is_empty(), Ordering::Relaxed);
        reason
    }

    /// Drops the error of a file, whose data is gone.
    pub(crate) fn forget(&self, file: InodeId) {
        if self.may_have(file) {
            let _gone = self.take(file);
        }
    }
}
