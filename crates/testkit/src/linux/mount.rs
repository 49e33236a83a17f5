//! A mounted filesystem.

use std::ffi::CString;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;
use rustix::mount::{self, MountFlags, UnmountFlags};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use super::{LoopDevice, undone};

/// How long a busy mount is waited for, and how often it is tried.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// How often its clock is looked at.
const MOMENT: Duration = Duration::from_millis(1);

/// A btrfs that Linux has mounted on a directory made for it; unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    directory: TempDir,
    devices: Vec<LoopDevice>,
}

impl Mount {
    /// Mounts the filesystem of these devices (at least one) with options as for mount(8).
    pub fn new(devices: Vec<LoopDevice>, options: &str) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("userbtrfs-fuse-server-").tempdir()?;
        let (flags, own) = split(options);
        let others =
            devices.iter().skip(1).map(|other| format!("device={}", other.path().display()));
        let own = CString::new(own.into_iter().chain(others).collect::<Vec<_>>().join(","))?;
        wait_for_its_clock();
        let first = devices.first().context("no device to mount")?.path();
        mount::mount(first, directory.path(), "btrfs", flags, own.as_c_str())
            .with_context(|| format!("mounting with {options:?}"))?;
        Ok(Self { directory, devices })
    }

    /// What it is on.
    pub fn devices(&self) -> &[LoopDevice] {
        &self.devices
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        undone(unmount(self.path()).context("unmounting"));
    }
}

/// Linux stamps what it does by a clock that it looks at once in a while: waits until that is past
/// what was done by now, so that a replay is stamped after it.
fn wait_for_its_clock() {
    let by = |clock| {
        let time = clock_gettime(clock);
        (time.tv_sec, time.tv_nsec)
    };
    let now = by(ClockId::Realtime);
    while by(ClockId::RealtimeCoarse) <= now {
        thread::sleep(MOMENT);
    }
}

/// Unmounts, waiting a while for others, say a listing of all mounts, that look at it.
fn unmount(path: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match mount::unmount(path, UnmountFlags::empty()) {
            Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(PAUSE),
            result => return Ok(result?),
        }
    }
}

/// The options that are flags of mount(2), and those left for btrfs.
fn split(options: &str) -> (MountFlags, Vec<String>) {
    let mut flags = MountFlags::empty();
    let mut own = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => flags |= MountFlags::RDONLY,
            "noatime" => flags |= MountFlags::NOATIME,
            "nodev" => flags |= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            "nosuid" => flags |= MountFlags::NOSUID,
            "rw" => {}
            _ => own.push(option.to_owned()),
        }
    }
    (flags, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_told_from_options_of_btrfs() {
        let (flags, own) = split("ro,noatime,subvolid=5,rescue=nologreplay");
        assert_eq!(flags, MountFlags::RDONLY | MountFlags::NOATIME);
        assert_eq!(own, ["subvolid=5", "rescue=nologreplay"]);
    }
}
