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

use super::command::undone;
use super::loop_device::LoopDevice;

/// How long unmounting a busy mount is retried, and the interval.
const PATIENCE: Duration = Duration::from_mins(5);
const PAUSE: Duration = Duration::from_millis(10);
/// The interval at which the coarse clock is polled.
const MOMENT: Duration = Duration::from_millis(1);

/// A btrfs that Linux has mounted on a directory made for it; unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    directory: TempDir,
    devices: Vec<LoopDevice>,
}

impl Mount {
    /// Mounts the filesystem on these devices (at least one) with options of mount(8).
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

    /// Returns the devices of the filesystem.
    pub fn devices(&self) -> &[LoopDevice] {
        &self.devices
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        undone(unmount(self.path()).context("unmounting"));
    }
}

/// Waits until the coarse clock, which Linux uses for timestamps, passes the current time, so that
/// a replay gets a timestamp later than everything done so far.
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

/// Unmounts; retries for a while if others use the mount, for example to list all mounts.
fn unmount(path: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match mount::unmount(path, UnmountFlags::empty()) {
            Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(PAUSE),
            result => return Ok(result?),
        }
    }
}

/// Splits options into flags of mount(2) and those for btrfs.
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
    fn mount_flags_are_separated_from_btrfs_options() {
        let (flags, own) = split("ro,noatime,subvolid=5,rescue=nologreplay");
        assert_eq!(flags, MountFlags::RDONLY | MountFlags::NOATIME);
        assert_eq!(own, ["subvolid=5", "rescue=nologreplay"]);
    }
}
