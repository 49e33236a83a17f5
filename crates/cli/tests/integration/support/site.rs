//! A filesystem with a mount point, and the mounts and servers of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use userbtrfs::OpenOptions;
use userbtrfs_testkit::linux::{self, btrfs_check};
use userbtrfs_testkit::test_env::{fuse_or_skip, until};

use super::command::{Ran, command, run};
use super::made::Made;

/// A filesystem and a mount point, which is unmounted when this is dropped.
pub(crate) struct Site {
    pub(crate) made: Made,
}

impl Site {
    pub(crate) fn new() -> Option<Self> {
        if !linux::available_or_skip() || !fuse_or_skip() {
            return None;
        }
        let made = Made::new();
        fs::create_dir(made.at("point")).unwrap();
        Some(Self { made })
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.made.image()
    }

    pub(crate) fn point(&self) -> PathBuf {
        self.made.at("point")
    }

    pub(crate) fn arguments(&self, options: &[&str]) -> Vec<std::ffi::OsString> {
        self.arguments_of(&self.image(), options)
    }

    fn arguments_of(&self, device: &Path, options: &[&str]) -> Vec<std::ffi::OsString> {
        let words = ["mount"].iter().chain(options).map(Into::into);
        words.chain([device.into(), self.point().into()]).collect()
    }

    /// Mounts in the background.
    pub(crate) fn mount(&self, options: &[&str]) -> Ran {
        run(self.arguments(options))
    }

    /// Mounts in the foreground of another process.
    pub(crate) fn serve(&self, options: &[&str]) -> Child {
        self.serve_device(&self.image(), options)
    }

    /// Mounts a device in the foreground of another process.
    pub(crate) fn serve_device(&self, device: &Path, options: &[&str]) -> Child {
        let options = [&["-f"], options].concat();
        let mut command = command(self.arguments_of(device, &options));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the mount", || self.is_mounted());
        child
    }

    pub(crate) fn is_mounted(&self) -> bool {
        self.line().is_some()
    }

    /// Returns its line in the table of mounts.
    pub(crate) fn line(&self) -> Option<String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let point = self.point();
        let is_it = |line: &&str| line.split(' ').nth(1) == point.to_str();
        mounts.lines().find(is_it).map(str::to_owned)
    }

    pub(crate) fn umount(&self) {
        unmount(&self.point());
    }

    /// Waits until no process has the image open for writing, and checks it.
    pub(crate) fn judge(&self) {
        let opened = || OpenOptions::new().write(true).open(self.image());
        until("the end of the server", || opened().is_ok_and(|image| image.close().is_ok()));
        btrfs_check(&self.image()).unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        while self.is_mounted() {
            let detached = Command::new("umount").arg("-l").arg(self.point()).status();
            if !detached.is_ok_and(|status| status.success()) {
                return;
            }
        }
    }
}

/// Unmounts by umount(8). A process that looks at all mounts may have one open for a moment, and a
/// program that another test starts has copies of all open descriptors until it runs.
pub(crate) fn unmount(point: &Path) {
    let umount = || Command::new("umount").arg(point).output().unwrap();
    until("nobody to use it", || umount().status.success());
}

/// Unmounts by our verb a mount that is not in use, as [`unmount`] does.
pub(crate) fn umount_unused(options: &[&str], point: &Path) -> Ran {
    let mut last = None;
    until("nobody to use it", || {
        let words = ["umount"].iter().chain(options).map(AsRef::as_ref);
        let ran = run(words.chain([point.as_os_str()]));
        !last.insert(ran).stderr.contains("busy")
    });
    last.expect("it was tried")
}

/// Sends a signal to a child process.
pub(crate) fn send(signal: Signal, child: &Child) {
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
