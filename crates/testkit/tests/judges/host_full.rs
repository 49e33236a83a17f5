//! A sparse image file on a disk that fills up: space that is free in the filesystem of the image
//! cannot be written.
//!
//! 1. The caller gets an I/O error, never an error for no space.
//! 2. Everything that was durable before is found at the next open, and the image is clean.
//! 3. Once the disk has space again, the image can be used as before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;
use userbtrfs::{Error, Filesystem, OpenOptions, TreeId};
use userbtrfs_testkit::engine_target::errno;
use userbtrfs_testkit::linux::{Access, Linux, LoopDevice, run};
use userbtrfs_testkit::test_env::until;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, check_file, kinds};
use super::ours::{judge_by_linux, use_by_linux};

/// The size of the host disk in bytes.
const HOST: u64 = 48 * MIB;
/// Bytes used on it that are freed at the end.
const BALLAST: usize = 16 << 20;
/// The sizes of large and of small files, in bytes.
const LARGE: usize = 1 << 20;
const SMALL: usize = 1000;
/// The number of small files per commit.
const SMALL_AT_ONCE: u32 = 1000;

/// A small mounted disk; unmounted when dropped.
struct Host {
    folder: TempDir,
    _device: Option<LoopDevice>,
}

impl Host {
    fn tmpfs() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={HOST}")).unwrap();
        mount("none", folder.path(), "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
        Self { folder, _device: None }
    }

    /// Creates a host with delayed allocation.
    fn ext4(linux: &Linux, disk: &Path) -> Self {
        fs::File::create(disk).unwrap().set_len(HOST).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(disk)).unwrap();
        let device = LoopDevice::attach(linux, disk, Access::ReadWrite).unwrap();
        let folder = tempfile::tempdir().unwrap();
        mount(device.path(), folder.path(), "ext4", MountFlags::empty(), None).unwrap();
        Self { folder, _device: Some(device) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A program that another test starts has copies of open descriptors until it runs.
        until("nobody to use it", || unmount(self.folder.path(), UnmountFlags::empty()).is_ok());
    }
}

fn open(image: &Path, discard: bool) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20);
    options.discard(discard).open(image).unwrap()
}

fn content(number: u32, len: usize) -> Vec<u8> {
    pattern::bytes(number, 0, len)
}

fn write(filesystem: &Filesystem, number: u32, len: usize) -> Result<(), Error> {
    let file = filesystem.root().create(number.to_string().as_bytes(), 0o644)?.open()?;
    file.write_at(&content(number, len), 0)?;
    file.close()
}

/// Writes until that fails; returns the number of durable files, and the error.
fn fill(filesystem: &Filesystem, len: usize) -> (u32, Error) {
    let at_once = if len == LARGE { 1 } else { SMALL_AT_ONCE };
    for first in (1..).step_by(at_once as usize) {
        let mut files = first..first + at_once;
        let written = files.try_for_each(|number| write(filesystem, number, len));
        if let Err(error) = written.and_then(|()| filesystem.commit()) {
            return (first - 1, error);
        }
    }
    unreachable!("nothing takes so many files")
}

/// Returns whether an error is an I/O error of the device, or the read-only state after one.
fn is_of_device(error: &Error) -> bool {
    matches!(errno(error), Errno::IO | Errno::ROFS)
}

fn assert_there(image: &Path, files: std::ops::Range<u32>, len: usize) {
    let filesystem = OpenOptions::new().subvolume_id(TreeId::FS).open(image).unwrap();
    for number in files {
        assert!(filesystem.read(format!("/{number}")).unwrap() == content(number, len), "{number}");
    }
}

/// Fills the disk with data or, with small files, with metadata.
fn judge(linux: &Linux, host: &Host, len: usize, discard: bool) {
    let image = host.at("image");
    let ballast = host.at("ballast");
    let what = format!("{}, files of {len} bytes", image.display());
    fs::write(&ballast, vec![1; BALLAST]).unwrap();
    kinds()[1].image().write_to(&image).unwrap();
    let filesystem = open(&image, discard);
    write(&filesystem, 0, LARGE).unwrap();
    filesystem.commit().unwrap();
    let (done, error) = fill(&filesystem, len);
    assert!(is_of_device(&error), "{what}: {error}");
    assert!(done > 0, "{what}: {error}");
    assert!(error.to_string().contains("No space left on device"), "{what}: {error}");
    let closed = filesystem.close();
    assert!(closed.as_ref().map_err(is_of_device) != Err(false), "{what}: {closed:?}");
    assert_there(&image, 0..1, LARGE);
    assert_there(&image, 1..done + 1, len);
    check_file(&what, &image);
    fs::remove_file(ballast).unwrap();
    judge_by_linux(linux, &what, &image);
    let filesystem = open(&image, discard);
    write(&filesystem, u32::MAX, 2 * LARGE).unwrap();
    filesystem.close().unwrap();
    let added = OpenOptions::new().subvolume_id(TreeId::FS).open(&image).unwrap();
    let added = added.read(format!("/{}", u32::MAX)).unwrap();
    assert!(added == content(u32::MAX, 2 * LARGE), "{what}");
    check_file(&what, &image);
    judge_by_linux(linux, &what, &image);
    use_by_linux(linux, &what, &image);
    judge_by_linux(linux, &what, &image);
    fs::remove_file(image).unwrap();
}

#[test]
fn a_full_disk_below_is_an_io_error_and_tears_no_commit() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for host in [Host::tmpfs(), Host::ext4(&linux, &folder.path().join("disk"))] {
        for (len, discard) in [(LARGE, false), (LARGE, true), (SMALL, false)] {
            judge(&linux, &host, len, discard);
        }
    }
    linux.assert_no_complaints().unwrap();
}
