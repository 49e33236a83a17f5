//! Subvolumes and snapshots, by the ioctls that programs use.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::Errno;

use crate::model::Outcome;

use super::descriptor::kind;

/// Calls one of the ioctls as a C program does; prints the errno, 0 for none.
const CALL: &str = r#"
my ($what, $path, $name, $from, $flags) = @ARGV;
open(my $dir, "<", $path) or die "open: $!\n";
my ($number, $arguments) = (0x5000940e, pack("qa4088", 0, $name));
$number = 0x5000940f if $what eq "delete";
if ($what eq "flags") {
    print ioctl($dir, 0x4008941a, pack("Q", $flags)) ? 0 : $! + 0;
    exit;
}
if ($what eq "snapshot") {
    open(my $source, "<", $from) or die "open: $!\n";
    $number = 0x50009417;
    $arguments = pack("qQQQ4a4040", fileno($source), 0, $flags, 0, 0, 0, 0, $name);
    print ioctl($dir, $number, $arguments) ? 0 : $! + 0;
    exit;
}
print ioctl($dir, $number, $arguments) ? 0 : $! + 0;
"#;

/// `BTRFS_SUBVOL_RDONLY` (`linux/btrfs.h`).
const READ_ONLY: &str = "2";

/// The inode number of a subvolume's root directory.
const SUBVOLUME_ROOT: u64 = 256;

/// Creates an empty subvolume.
pub(super) fn create(dir: &OwnedFd, name: &[u8]) -> Outcome {
    call("create", dir, name, &[])
}

/// Deletes a subvolume.
pub(super) fn delete(dir: &OwnedFd, name: &[u8]) -> Outcome {
    call("delete", dir, name, &[])
}

/// Makes a snapshot of the subvolume with this root directory.
pub(super) fn snapshot(
    source: &OwnedFd,
    dir: &OwnedFd,
    name: &[u8],
    is_read_only: bool,
) -> Outcome {
    if kind(source)? != FileType::Directory {
        return Err(Errno::INVAL);
    }
    call("snapshot", dir, name, &[&path(source), flags(is_read_only)])
}

/// Sets whether the subvolume with this root directory may be changed.
pub(super) fn set_read_only(root: &OwnedFd, is_read_only: bool) -> Outcome {
    if kind(root)? != FileType::Directory {
        return Err(Errno::INVAL);
    }
    call("flags", root, b"", &["", flags(is_read_only)])
}

fn flags(is_read_only: bool) -> &'static str {
    if is_read_only { READ_ONLY } else { "0" }
}

/// Returns the device number of the subvolume with this name, if it is one.
pub(super) fn device(dir: &OwnedFd, name: &[u8]) -> Option<u64> {
    let found = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    (is_dir && found.st_ino == SUBVOLUME_ROOT).then_some(found.st_dev)
}

/// Returns a path by which another process can open a descriptor.
fn path(object: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), object.as_raw_fd())
}

fn call(what: &str, dir: &OwnedFd, name: &[u8], more: &[&str]) -> Outcome {
    let mut perl = Command::new("perl");
    perl.env("LC_ALL", "C").args(["-e", CALL, what, &path(dir)]);
    let output = perl.arg(OsStr::from_bytes(name)).args(more).output().expect("perl runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    match text.trim().parse().unwrap_or_else(|_| panic!("perl: {errors}")) {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}
