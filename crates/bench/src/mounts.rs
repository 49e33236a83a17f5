//! New mounted filesystems for programs.
//!
//! 1. All have the same size, are in a new image file on the same disk, and are mounted `noatime`;
//!    the kernel's loop device has direct I/O.
//! 2. Ours, `nothing` and `floor` are served by this process, so that their requests can be
//!    counted. Ours is on a `DropWritesDevice`, as with `userbtrfs mount`.
//! 3. Dropping the value unmounts; [`Mounted::end`] returns the time that took, with all data made
//!    durable.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use userbtrfs::device::{DropWritesDevice, FileDevice, FileOptions};
use userbtrfs::mount::{Mount, MountFlags, MountOptions, Opcode, Options};
use userbtrfs::{Filesystem, OpenOptions};
use userbtrfs_fuse::Session;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::linux::{self, Mount as KernelMount};
use userbtrfs_testkit::test_env::until_mounted;

use crate::bench::Bench;
use crate::fresh::Fresh;
use crate::nothing;
use crate::sample::timed;
use crate::target::Target;

/// The size of each filesystem in bytes, most of which is never written.
pub(crate) const BYTES: u64 = 32 << 30;

/// The default seconds between commits, of the kernel's btrfs and of ours.
pub(crate) const COMMIT_SECONDS: u64 = 30;

/// A mounted filesystem.
pub(crate) struct Mounted {
    /// `None` only while it is unmounted.
    served: Option<Served>,
    point: PathBuf,
    /// Dropped last.
    _image: Fresh,
}

/// The server of a mount.
enum Served {
    Kernel(KernelMount),
    Ours(userbtrfs::mount::Mounted),
    Nothing(Session),
    Program(Child),
}

/// The number of requests of each kind; empty if they are not counted.
pub(crate) type Requests = BTreeMap<String, u64>;

impl Mounted {
    /// Makes the filesystem of a target and mounts it; also returns the time of mounting.
    pub(crate) fn new(bench: &Bench, target: Target) -> Result<(Duration, Self)> {
        Self::on(bench, target, Fresh::new(bench, BYTES)?, COMMIT_SECONDS)
    }

    /// Like `new`, in this file, and with these seconds between commits of btrfs.
    pub(crate) fn on(
        bench: &Bench,
        target: Target,
        image: Fresh,
        commit_seconds: u64,
    ) -> Result<(Duration, Self)> {
        let point = bench.folder().join("point");
        match target {
            Target::Btrfs | Target::Fuse => image.format_by_progs(&[])?,
            Target::Fuse2fs => {
                let mut mkfs = Command::new("mke2fs");
                linux::run(mkfs.args(["-q", "-F", "-t", "ext4"]).arg(image.path()))?;
            }
            Target::Nothing | Target::Floor => {}
            other => bail!("{other} is not mounted"),
        }
        image.sync()?;
        if target != Target::Btrfs {
            fs::create_dir_all(&point).with_context(|| point.display().to_string())?;
        }
        let (time, served) = timed(|| serve(bench, target, &image, &point, commit_seconds))?;
        let point = match &served {
            Served::Kernel(mount) => mount.path().to_owned(),
            _ => point,
        };
        Ok((time, Self { served: Some(served), point, _image: image }))
    }

    /// Returns the mount point.
    pub(crate) fn path(&self) -> &Path {
        &self.point
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> Requests {
        let of = |count: &dyn Fn(Opcode) -> u64| {
            let all = Opcode::ALL.iter().map(|kind| (kind.to_string(), count(*kind)));
            all.filter(|(_, count)| *count > 0).collect()
        };
        match self.served.as_ref() {
            Some(Served::Ours(mounted)) => of(&|kind| mounted.requests(kind)),
            Some(Served::Nothing(session)) => of(&|kind| session.requests(kind)),
            _ => Requests::new(),
        }
    }

    /// Unmounts, and waits until all data is durable; returns the time that took.
    pub(crate) fn end(mut self) -> Result<Duration> {
        let (time, ()) = timed(|| self.unmount())?;
        Ok(time)
    }

    fn unmount(&mut self) -> Result<()> {
        match self.served.take() {
            None => return Ok(()),
            Some(Served::Kernel(mount)) => {
                drop(mount);
                return Ok(());
            }
            Some(Served::Ours(mounted)) => {
                mounted.unmount_handle().stop()?;
                mounted.end()?;
            }
            Some(Served::Nothing(session)) => {
                session.stop()?;
                session.wait()?;
            }
            Some(Served::Program(mut child)) => {
                linux::run(Command::new("umount").arg(&self.point))?;
                let status = child.wait()?;
                ensure!(status.success(), "fuse2fs: {status}");
            }
        }
        Ok(fs::remove_dir(&self.point)?)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("userbtrfs-bench: {}: {error:#}", self.point.display());
        }
    }
}

fn serve(
    bench: &Bench,
    target: Target,
    image: &Fresh,
    point: &Path,
    commit_seconds: u64,
) -> Result<Served> {
    if target == Target::Btrfs {
        let options = format!("noatime,commit={commit_seconds}");
        return Ok(Served::Kernel(bench.mount_with(image.path(), &options)?));
    }
    let options = MountOptions {
        source: target.to_string().into(),
        flags: MountFlags::DEFAULT_PERMISSIONS | MountFlags::ALLOW_OTHER | MountFlags::NO_ATIME,
        ..MountOptions::default()
    };
    match target {
        Target::Fuse => {
            let filesystem = open(image.path(), commit_seconds)?;
            let mount = Mount::new(point, &options)?;
            let options = Options { device: image.path().to_owned(), ..Options::default() };
            Ok(Served::Ours(userbtrfs::mount::Mounted::start(mount, filesystem, &options)?))
        }
        Target::Nothing | Target::Floor => {
            let disk = (target == Target::Floor).then(|| image.path());
            Ok(Served::Nothing(nothing::serve(Mount::new(point, &options)?, disk)?))
        }
        _ => fuse2fs(image, point),
    }
}

/// Opens an image as `userbtrfs mount` does; writes are never dropped here.
fn open(image: &Path, commit_seconds: u64) -> Result<Filesystem> {
    let device = FileDevice::open(image, FileOptions { writable: true, ..FileOptions::default() })?;
    let switch = Arc::new(DropWritesDevice::new(Arc::new(device), 0));
    let mut options = OpenOptions::new();
    options.write(true).commit_seconds(commit_seconds);
    Ok(options.open_devices(vec![switch])?)
}

/// Starts fuse2fs in the foreground, as a child process.
fn fuse2fs(image: &Fresh, point: &Path) -> Result<Served> {
    let mut command = Command::new("fuse2fs");
    command.arg("-f").args(["-o", "noatime"]).arg(image.path()).arg(point);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().context("fuse2fs, of the package of that name")?;
    until_mounted("fuse2fs", &mut child, point)?;
    Ok(Served::Program(child))
}
