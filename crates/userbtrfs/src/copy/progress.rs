//! What a copy has done so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What was done so far; read it from any thread.
#[derive(Debug, Default)]
pub struct Progress {
    pub(crate) files: AtomicU64,
    pub(crate) others: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) not_kept: AtomicU64,
    pub(crate) errors: AtomicU64,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Regular files that are complete.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Directories, links, devices and the like that were made.
    pub fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }

    /// Bytes of content that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Owners and attributes that could not be kept for lack of privilege or support.
    pub fn not_kept(&self) -> u64 {
        self.not_kept.load(Ordering::Relaxed)
    }

    /// What failed.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Ends the copy soon; nothing half-done stays.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// What [`Self::stop`] sets, for a signal handler to set.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Whether it was told to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
