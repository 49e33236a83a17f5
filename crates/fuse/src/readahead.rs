//! The kernel's readahead.
//!
//! INIT can only lower it below the kernel's default of 128 KiB. Root can raise it afterwards.

use std::fs;
use std::path::Path;

use rustix::fs::{major, minor, stat};

/// Sets the kernel's readahead to `bytes`. Without the permission to, it stays unchanged.
pub(crate) fn raise(point: &Path, bytes: u32) {
    if let Ok(found) = stat(point) {
        let major = major(found.st_dev);
        let minor = minor(found.st_dev);
        let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        // A failure only makes reads slower.
        let _ = fs::write(setting, (bytes / 1024).to_string());
    }
}
