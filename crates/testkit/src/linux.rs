//! Linux as an oracle: loop devices, mounts, the kernel log and `btrfs check`.
//!
//! 1. Only one [`Linux`] exists at a time on the machine, ensured by a file lock: copies of one
//!    image have the same filesystem id, and Linux mistakes them for one another. Attaching and
//!    mounting need it.
//! 2. A [`LoopDevice`] is detached and a [`Mount`] unmounted when dropped, also in a panic; a mount
//!    owns its devices. A failure to do so panics, unless the thread panics already.
//! 3. [`Linux::complaints`] has the kernel messages since `Linux` was locked about devices attached
//!    here or about no device; an image is sound only if there are none.

mod kernel_log;
mod loop_device;
mod mount;
mod shutdown;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use userbtrfs_sync::Arc;

use crate::test_env;

pub use kernel_log::KernelLog;
pub use loop_device::{Access, LoopDevice};
pub use mount::Mount;
pub use shutdown::shutdown;

/// The lock file; its path does not depend on `TMPDIR`.
const LOCK: &str = "/tmp/userbtrfs-linux.lock";

/// The exclusive right to use Linux on this machine.
#[derive(Debug)]
pub struct Linux {
    log: Arc<KernelLog>,
    _lock: File,
}

impl Linux {
    /// Waits for the lock, makes Linux forget unmounted devices, and starts reading the kernel log
    /// at its end.
    pub fn lock() -> anyhow::Result<Self> {
        let lock = File::create(LOCK).with_context(|| format!("creating {LOCK}"))?;
        lock.lock().context("locking")?;
        forget()?;
        Ok(Self { log: Arc::new(KernelLog::from_now()?), _lock: lock })
    }

    /// Attaches an image and mounts it; `options` are those of mount(8): `ro`, `noatime` and those
    /// of btrfs.
    pub fn mount(&self, image: &Path, options: &str) -> anyhow::Result<Mount> {
        forget()?;
        let read_only = options.split(',').any(|option| option == "ro");
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        Mount::new(vec![LoopDevice::attach(self, image, access)?], options)
    }

    /// Copies an image to `copy`, mounts the copy with Linux, which replays its log if any, and
    /// calls `look` with the mount point. Fails if Linux complains, or if `btrfs check` finds
    /// errors.
    pub fn with_copy<R>(
        &self,
        image: &Path,
        copy: &Path,
        look: impl FnOnce(&Path) -> R,
    ) -> anyhow::Result<R> {
        run(Command::new("cp").arg("--sparse=always").arg(image).arg(copy))?;
        let mount = self.mount(copy, "noatime")?;
        let result = look(mount.path());
        drop(mount);
        self.assert_no_complaints()?;
        btrfs_check(copy)?;
        Ok(result)
    }

    /// Scrubs an image with Linux; fails if it finds errors.
    pub fn scrub(&self, image: &Path) -> anyhow::Result<()> {
        let mount = self.mount(image, "ro,noatime")?;
        let mut scrub = Command::new("btrfs");
        let said = run(scrub.args(["scrub", "start", "-B", "-r"]).arg(mount.path()))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        ensure!(said.contains("no errors found"), "{said}");
        Ok(())
    }

    /// Returns the kernel messages of btrfs of level warning or worse since the lock was taken or
    /// the last call, about devices that were attached here or about no device.
    pub fn complaints(&self) -> anyhow::Result<Vec<String>> {
        self.log.complaints()
    }

    /// Fails with the complaints of Linux if there are any.
    pub fn assert_no_complaints(&self) -> anyhow::Result<()> {
        let complaints = self.complaints()?;
        ensure!(complaints.is_empty(), "Linux complains:\n{}", complaints.join("\n"));
        Ok(())
    }
}

/// Returns an error with the reason if Linux cannot be used here.
pub fn available() -> Result<(), String> {
    let need = |there: bool, lack: &str| if there { Ok(()) } else { Err(lack.to_owned()) };
    let lists = |file: &str, word: &str| {
        std::fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|w| w == word))
    };
    need(rustix::process::geteuid().is_root(), "not root")?;
    need(Path::new("/dev/loop-control").exists(), "no loop devices")?;
    need(lists("/proc/filesystems", "btrfs"), "no btrfs in this kernel")?;
    for tool in ["losetup", "mkfs.btrfs", "btrfs"] {
        need(run(Command::new(tool).arg("--version")).is_ok(), &format!("no {tool}"))?;
    }
    Ok(())
}

/// Returns whether Linux can be used. If not, reports a skipped test; panics if `CI` is `true`, as
/// nothing may be missing then.
pub fn available_or_skip() -> bool {
    let Err(reason) = available() else { return true };
    test_env::skip(&reason);
    false
}

/// Returns from a test, reporting it as skipped, if Linux cannot be used.
#[macro_export]
macro_rules! skip_unless_linux {
    () => {
        if !$crate::linux::available_or_skip() {
            return;
        }
    };
}

/// Returns the output of `btrfs check --readonly`; fails if it finds errors.
pub fn btrfs_check(image: &Path) -> anyhow::Result<String> {
    let output = run(Command::new("btrfs").args(["check", "--readonly"]).arg(image))?;
    let said = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Makes Linux forget every device that is not mounted.
pub fn forget() -> anyhow::Result<()> {
    run(Command::new("btrfs").args(["device", "scan", "--forget"])).map(drop)
}

/// Runs a command to completion; fails with its output unless it succeeds.
pub fn run(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(output)
}

/// Reports a failed cleanup of a guard: by a panic, unless the thread panics already.
fn undone(result: anyhow::Result<()>) {
    match result {
        Err(error) if std::thread::panicking() => eprintln!("while panicking: {error:#}"),
        result => result.expect("what a guard made can be undone"),
    }
}

#[cfg(test)]
mod tests;
