//! The exclusive right to use Linux.

use std::fs::File;

use anyhow::{Context, ensure};
use userbtrfs_sync::Arc;

use super::command::forget;
use super::kernel_log::KernelLog;

/// The lock file; its path does not depend on `TMPDIR`.
const LOCK: &str = "/tmp/userbtrfs-linux.lock";

/// The exclusive right to use Linux on this machine.
#[derive(Debug)]
pub struct Linux {
    pub(super) log: Arc<KernelLog>,
    _lock: File,
}

impl Linux {
    /// Waits for the lock, makes Linux forget unmounted devices, and starts reading the kernel log
    /// at its end.
    pub fn lock() -> anyhow::Result<Self> {
        let lock = File::create(LOCK).with_context(|| format!("creating {LOCK}"))?;
        lock.lock().context("locking")?;
        forget()?;
        Ok(Self { log: Arc::new(KernelLog::from_now()?), _lock: lock })
    }

    /// Returns the kernel messages of btrfs of level warning or worse since the lock was taken or
    /// the last call, about devices that were attached here or about no device.
    pub fn complaints(&self) -> anyhow::Result<Vec<String>> {
        self.log.complaints()
    }

    /// Fails with the complaints of Linux if there are any.
    pub fn assert_no_complaints(&self) -> anyhow::Result<()> {
        let complaints = self.complaints()?;
        ensure!(complaints.is_empty(), "Linux complains:\n{}", complaints.join("\n"));
        Ok(())
    }
}
