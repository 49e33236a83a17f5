//! Tests of a mounted block device: the kernel forwards sync(2), and unmounting waits for DESTROY.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;
use userbtrfs_fuse::{Mount, MountError, MountMethod, MountOptions};
use userbtrfs_testkit::test_env::{fuse_or_skip, skip, until};

use crate::harness::{Mounted, config, options};
use crate::memory::Behavior;

/// A loop device of a file. Dropping this detaches it.
struct LoopDevice {
    path: String,
    _image: NamedTempFile,
}

impl LoopDevice {
    fn new() -> Option<Self> {
        if !fuse_or_skip() {
            return None;
        }
        if !Path::new("/dev/loop-control").exists() {
            skip("no loop devices");
            return None;
        }
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let mut losetup = Command::new("losetup");
        let output = losetup.args(["--find", "--show"]).arg(image.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Some(Self { path, _image: image })
    }

    fn options(&self) -> MountOptions {
        let source = self.path.clone().into();
        let block_size = Some(4096);
        MountOptions { source, block_size, ..options() }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.path).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} stays", self.path);
    }
}

#[test]
fn unmounting_waits_for_the_server() {
    let Some(device) = LoopDevice::new() else { return };
    let behavior = Behavior { destroy_takes: 300, ..Behavior::default() };
    let mounted = Mounted::with(behavior, &config(), &device.options()).unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.starts_with(&device.path)).unwrap();
    assert!(line.contains(" fuseblk.memory "), "{line}");
    fs::write(mounted.path("file"), "x").unwrap();
    let began = Instant::now();
    mounted.run_umount();
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(mounted.memory.seen.change(|state| state.destroyed));
    mounted.session.wait().unwrap();
}

#[test]
fn sync_reaches_the_server() {
    let Some(device) = LoopDevice::new() else { return };
    let mounted = Mounted::with(Behavior::default(), &config(), &device.options()).unwrap();
    rustix::fs::syncfs(File::open(mounted.root()).unwrap()).unwrap();
    rustix::fs::syncfs(File::open(mounted.root()).unwrap()).unwrap();
    assert!(mounted.memory.seen.change(|state| state.syncs) >= 2);
}

#[test]
fn device_in_use_is_released_after_the_last_close() {
    let Some(device) = LoopDevice::new() else { return };
    let mounted = Mounted::with(Behavior::default(), &config(), &device.options()).unwrap();
    let file = File::create_new(mounted.path("file")).unwrap();
    assert!(mounted.session.unmount().unwrap_err().is_busy());
    mounted.session.stop().unwrap();
    mounted.session.wait().unwrap();
    assert!(file.metadata().is_err() || file.sync_all().is_err());
    drop(file);
    drop(mounted);
    let point = tempfile::TempDir::new().unwrap();
    until("the device to be free", || Mount::new(point.path(), &device.options()).is_ok());
}

#[test]
fn a_block_device_is_not_mounted_by_the_helper() {
    let Some(device) = LoopDevice::new() else { return };
    let options = MountOptions { method: MountMethod::Helper, ..device.options() };
    let point = tempfile::TempDir::new().unwrap();
    let refused = Mount::new(point.path(), &options).unwrap_err();
    assert_eq!(refused, MountError::BlockDevice);
}
