//! Which filesystem a path of a command line is in.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FsWord;
use userbtrfs::mount::control::{self, AskError};

use crate::cli::host::image::holds_one_btrfs;

/// The type of the kernel's btrfs, as statfs(2) returns it.
const BTRFS_SUPER_MAGIC: FsWord = 0x9123_683e;

/// Returns true if a path is, or would be, in a mount of userbtrfs.
pub(super) fn is_in_mount(path: &Path) -> bool {
    let existing = if path.exists() { path.to_owned() } else { parent(path) };
    matches!(control::check(&existing), Ok(()) | Err(AskError::Within { .. }))
}

/// Returns the directory of a path, by its name.
pub(super) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns true if a path is an image or a block device with a filesystem on this one device, which
/// the kernel has not mounted.
pub(super) fn is_image(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    !found.is_dir() && holds_one_btrfs(path) && !is_mounted_by_kernel(found.rdev())
}

/// Returns true if a path is in a btrfs that the kernel has mounted.
pub(super) fn is_in_kernel_btrfs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type == BTRFS_SUPER_MAGIC)
}

/// Returns true if the kernel has mounted the btrfs on the block device with this number.
fn is_mounted_by_kernel(device: u64) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut sources = table.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let source = fields.next()?;
        (fields.nth(1)? == "btrfs").then_some(source)
    });
    device != 0
        && sources.any(|source| fs::metadata(source).is_ok_and(|found| found.rdev() == device))
}
