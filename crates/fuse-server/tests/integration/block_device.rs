//! Mounts of block devices: after umount(8) has returned, no work is left.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use userbtrfs_engine::api::{Error, OpenOptions};
use userbtrfs_fuse_server::{Mount, MountOptions, Mounted, Opcode, Options};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::PausedDevice;
use userbtrfs_testkit::linux::{Access, Linux, LoopDevice, btrfs_check};
use userbtrfs_testkit::test_env::until;

use crate::support::{Site, mount_options, pattern};

/// The image, mounted as a block device, whose requests can be held.
struct Claimed {
    mounted: Mounted,
    held: Arc<PausedDevice>,
}

impl Claimed {
    fn new(site: &Site, device: &LoopDevice) -> Self {
        let point = site.at("point");
        fs::create_dir(&point).unwrap();
        let source = device.path().into();
        let block_size = Some(4096);
        let options = MountOptions { source, block_size, ..mount_options() };
        let mount = Mount::new(&point, &options).unwrap();
        let held = Arc::new(PausedDevice::mounted(device.path()).unwrap());
        let mut options = OpenOptions::new();
        let filesystem = options.write(true).discard(true).open_devices(vec![held.clone()]);
        let device = device.path().into();
        let options = Options { threads: Some(2), device, ..Options::default() };
        let mounted = Mounted::start(mount, filesystem.unwrap(), &options).unwrap();
        Self { mounted, held }
    }

    fn umount(&self) -> Command {
        let mut umount = Command::new("umount");
        umount.arg(self.mounted.point());
        umount
    }
}

/// An inode that an earlier run left without a name is deleted by then, too.
#[test]
fn nothing_is_written_after_umount_has_returned() {
    let Some(site) = Site::new() else { return };
    site.format();
    let filesystem = OpenOptions::new().write(true).open(site.image()).unwrap();
    let file = filesystem.root().create(b"file", 0o644).unwrap().open().unwrap();
    let removed = file.inode().id();
    file.write_all_at(&pattern(1 << 20), 0).unwrap();
    filesystem.commit().unwrap();
    filesystem.root().remove_file(b"file").unwrap();
    filesystem.commit().unwrap();
    filesystem.abandon();
    drop(file);
    let linux = Linux::lock().unwrap();
    let device = LoopDevice::attach(&linux, &site.image(), Access::ReadWrite).unwrap();
    let claimed = Claimed::new(&site, &device);
    until("nobody to use it", || claimed.umount().status().unwrap().success());
    let written = device.bytes_written().unwrap();
    claimed.mounted.end().unwrap();
    assert_eq!(device.bytes_written().unwrap(), written);
    drop(device);
    btrfs_check(&site.image()).unwrap();
    let filesystem = OpenOptions::new().open(site.image()).unwrap();
    assert!(matches!(filesystem.inode(removed).metadata(), Err(Error::NoInode(_))));
}

/// Nothing is discarded afterwards, not even space that is freed by a commit that had begun before.
#[test]
fn nothing_is_discarded_after_umount_has_returned() {
    let Some(site) = Site::new() else { return };
    site.format();
    let linux = Linux::lock().unwrap();
    let device = LoopDevice::attach(&linux, &site.image(), Access::ReadWrite).unwrap();
    let claimed = Claimed::new(&site, &device);
    fs::write(claimed.mounted.point().join("file"), "content").unwrap();
    let held = Held::new(&claimed.held);
    let stats_handle = claimed.mounted.stats_handle();
    let commit = thread::spawn(move || stats_handle.filesystem().commit());
    until("a commit that gives back", || claimed.held.is_waited_for());
    let mut umount = claimed.umount().spawn().unwrap();
    until("the end", || {
        // A program that another test starts has copies of open descriptors until it runs.
        if umount.try_wait().unwrap().is_some_and(|status| !status.success()) {
            umount = claimed.umount().spawn().unwrap();
        }
        claimed.mounted.requests(Opcode::Destroy) == 1
    });
    // If it did not wait, it would usually have returned by now.
    thread::sleep(Duration::from_millis(300));
    let returned = umount.try_wait().unwrap();
    drop(held);
    assert!(umount.wait().unwrap().success());
    assert_eq!(returned, None, "not while something is given back");
    commit.join().unwrap().unwrap();
    claimed.mounted.end().unwrap();
    drop(device);
    btrfs_check(&site.image()).unwrap();
}

/// A guard: while it exists, discards are held.
struct Held(Arc<PausedDevice>);

impl Held {
    fn new(device: &Arc<PausedDevice>) -> Self {
        device.hold_discards();
        Self(Arc::clone(device))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}
