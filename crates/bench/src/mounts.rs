//! New filesystems, mounted for programs.
//!
//! 1. Each is of the same size, in a new image file on the same disk, and mounted `noatime`.
//! 2. Ours, and the one that does nothing, or no more than make durable what is synced, are served
//!    by this process: so their requests can be counted. Ours has the same switch in the way to its
//!    device as `userbtrfs mount` has.
//! 3. What is mounted is unmounted when the value is dropped; [`Mounted::end`] tells how long that
//!    took, with all made durable.

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

/// Bytes of each filesystem, most of which are never written.
const BYTES: u64 = 32 << 30;

/// A filesystem that is mounted.
pub(crate) struct Mounted {
    /// None only while it ends.
    served: Option<Served>,
    point: PathBuf,
    /// Removed after all else.
    _image: Fresh,
}

/// Who serves it.
enum Served {
    Kernel(KernelMount),
    Ours(userbtrfs::mount::Mounted),
    Nothing(Session),
    Program(Child),
}

/// How many requests there were, by their kind; none where nobody counts.
pub(crate) type Requests = BTreeMap<String, u64>;

impl Mounted {
    /// Makes one of a target's, and mounts it; also gives how long the mounting took.
    pub(crate) fn new(bench: &Bench, target: Target) -> Result<(Duration, Self)> {
        let image = Fresh::new(bench, BYTES)?;
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
        let (time, served) = timed(|| serve(bench, target, &image, &point))?;
        let point = match &served {
            Served::Kernel(mount) => mount.path().to_owned(),
            _ => point,
        };
        Ok((time, Self { served: Some(served), point, _image: image }))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.point
    }

    /// How many requests were made so far.
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

    /// Unmounts it, and waits until all is durable.
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

fn serve(bench: &Bench, target: Target, image: &Fresh, point: &Path) -> Result<Served> {
    if target == Target::Btrfs {
        return Ok(Served::Kernel(bench.linux().mount(image.path(), "noatime")?));
    }
    let options = MountOptions {
        source: target.to_string().into(),
        flags: MountFlags::DEFAULT_PERMISSIONS | MountFlags::ALLOW_OTHER | MountFlags::NO_ATIME,
        ..MountOptions::default()
    };
    match target {
        Target::Fuse => {
            let filesystem = open(image.path())?;
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

/// As the command opens what it mounts; here the switch stays on.
fn open(image: &Path) -> Result<Filesystem> {
    let device = FileDevice::open(image, FileOptions { writable: true, ..FileOptions::default() })?;
    let switch = Arc::new(DropWritesDevice::new(Arc::new(device), 0));
    Ok(OpenOptions::new().write(true).open_devices(vec![switch])?)
}

/// In the foreground of another process.
fn fuse2fs(image: &Fresh, point: &Path) -> Result<Served> {
    let mut command = Command::new("fuse2fs");
    command.arg("-f").args(["-o", "noatime"]).arg(image.path()).arg(point);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().context("fuse2fs, of the package of that name")?;
    until_mounted("fuse2fs", &mut child, point)?;
    Ok(Served::Program(child))
}
