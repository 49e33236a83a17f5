//! Loop devices over image files, and whether the kernel has mounted one.
//!
//! 1. Loop devices and mounts are found in `/sys/block` and `mountinfo(5)`. If these are not
//!    visible, as in a container, or the mount is in another namespace, they are not found.
//! 2. The kernel does not write to a loop device that is not mounted; another process that has it
//!    open is detected by its lock.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};

/// Returns whether one of these loop devices is mounted.
pub(crate) fn is_mounted(devices: &[PathBuf]) -> bool {
    if devices.is_empty() {
        return false;
    }
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = String::from_utf8_lossy(&mounts);
    let sources: Vec<_> = mounts.lines().filter_map(source).collect();
    let is_source =
        |device: &PathBuf| sources.iter().any(|source| source.file_name() == device.file_name());
    devices.iter().any(is_source)
}

/// Returns the other paths to an image: the loop devices over a file, or the file of a loop device
/// and the other devices over that.
pub(crate) fn other_paths(image: &Metadata) -> Vec<PathBuf> {
    if !image.file_type().is_block_device() {
        return devices_over(image);
    }
    let major = major(image.rdev());
    let minor = minor(image.rdev());
    let Some(file) = backing_file(Path::new(&format!("/sys/dev/block/{major}:{minor}"))) else {
        return Vec::new();
    };
    let over = file.metadata().map(|file| devices_over(&file)).unwrap_or_default();
    let is_other = |path: &PathBuf| path.metadata().is_ok_and(|other| other.rdev() != image.rdev());
    over.into_iter().filter(is_other).chain([file]).collect()
}

/// Opens such a path for reading, if it is a regular file or a block device. It may have been
/// replaced by another kind of file, whose opening could block or have side effects.
pub(crate) fn open_path(path: &Path) -> Option<File> {
    let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let kind = FileType::from_raw_mode(fstat(&found).ok()?.st_mode);
    let is_image = matches!(kind, FileType::RegularFile | FileType::BlockDevice);
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    is_image.then(|| File::open(same).ok()).flatten()
}

/// Returns the paths of the loop devices over a file, as listed in `/sys/block`.
fn devices_over(image: &Metadata) -> Vec<PathBuf> {
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let is_over = |device: &PathBuf| {
        let there = backing_file(device).and_then(|file| file.metadata().ok());
        there.is_some_and(|there| identity(&there) == identity(image))
    };
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let over = devices.filter(|device| is_over(&device.path()));
    over.map(|device| Path::new("/dev").join(device.file_name())).collect()
}

/// Returns the file behind a block device, if it is a loop device.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let file = fs::read(device.join("loop/backing_file")).ok()?;
    let file = file.strip_suffix(b"\n").unwrap_or(&file);
    Some(Path::new(OsStr::from_bytes(file)).to_owned())
}

/// Returns the mount source of a line of `mountinfo(5)`: the second field after the separator.
fn source(line: &str) -> Option<&Path> {
    let (_, behind) = line.split_once(" - ")?;
    behind.split(' ').nth(1).map(Path::new).filter(|source| source.starts_with("/dev"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_source_is_parsed_from_a_line_of_mountinfo() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - btrfs /dev/loop7 rw,subvolid=5";
        assert_eq!(source(line), Some(Path::new("/dev/loop7")));
        assert_eq!(source("25 30 0:23 / /sys rw shared:7 - sysfs sysfs rw"), None);
        assert_eq!(source("nothing of it"), None);
    }

    #[test]
    fn path_to_another_kind_of_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        let kind = FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), kind, Mode::RUSR, 0).unwrap();
        std::os::unix::fs::symlink("fifo", at("link")).unwrap();
        assert!(open_path(&at("file")).is_some());
        // Opening it would block until there is a writer.
        assert!(open_path(&at("fifo")).is_none() && open_path(&at("link")).is_none());
        assert!(open_path(folder.path()).is_none() && open_path(&at("nothing")).is_none());
    }
}
