//! How far the kernel reads ahead.
//!
//! When a mount begins it agrees to less than its own default, 128 KiB, and not to more. Root may
//! raise it afterwards.

use std::fs;
use std::path::Path;

use rustix::fs::{major, minor, stat};

/// Has the kernel read ahead up to so many bytes. Where that is not allowed, it stays as it is.
pub(crate) fn raise(point: &Path, bytes: u32) {
    if let Ok(found) = stat(point) {
        let (major, minor) = (major(found.st_dev), minor(found.st_dev));
        let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        // Without it reading is slower, and right.
        let _ = fs::write(setting, (bytes / 1024).to_string());
    }
}
