//! Image files that the kernel has mounted, by way of a loop device.
//!
//! 1. What the kernel shows of loop devices and of mounts says so (`/sys/block`, `mountinfo(5)`).
//!    Where it shows nothing, as to a container, or the mount is of another namespace, nothing is
//!    known.
//! 2. A loop device that nobody mounted is nobody's way of writing.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether an image file is mounted.
pub(crate) fn is_mounted(image: &Metadata) -> bool {
    let Ok(devices) = fs::read_dir("/sys/block") else { return false };
    let mut over = devices.flatten().map(|device| device.path()).filter(|at| is_over(at, image));
    let Some(first) = over.next() else { return false };
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = String::from_utf8_lossy(&mounts);
    let sources: Vec<_> = mounts.lines().filter_map(source).collect();
    let is_source =
        |device: &Path| sources.iter().any(|source| source.file_name() == device.file_name());
    std::iter::once(first).chain(over).any(|device| is_source(&device))
}

/// Whether this is a loop device over the image.
fn is_over(device: &Path, image: &Metadata) -> bool {
    let Ok(file) = fs::read(device.join("loop/backing_file")) else { return false };
    let file = Path::new(OsStr::from_bytes(file.strip_suffix(b"\n").unwrap_or(&file)));
    file.metadata().is_ok_and(|there| (there.dev(), there.ino()) == (image.dev(), image.ino()))
}

/// What was mounted, of a line about a mount: the second field behind the separator.
fn source(line: &str) -> Option<&Path> {
    let (_, behind) = line.split_once(" - ")?;
    behind.split(' ').nth(1).map(Path::new).filter(|source| source.starts_with("/dev"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_a_mount_says_what_was_mounted() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - btrfs /dev/loop7 rw,subvolid=5";
        assert_eq!(source(line), Some(Path::new("/dev/loop7")));
        assert_eq!(source("25 30 0:23 / /sys rw shared:7 - sysfs sysfs rw"), None);
        assert_eq!(source("nothing of it"), None);
    }
}
