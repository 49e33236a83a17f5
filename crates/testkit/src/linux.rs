//! Linux as the judge: loop devices, mounts, the kernel log and `btrfs check`.
//!
//! 1. [`Linux`] is held by one at a time on the whole machine, by a lock on a file: copies of one
//!    image have one filesystem id and Linux takes them for one another. Whatever attaches or
//!    mounts asks for it.
//! 2. A [`LoopDevice`] is detached and a [`Mount`] unmounted when dropped, also in a panic; a mount
//!    owns the devices below it. A failure there is a panic, unless one is under way.
//! 3. What Linux complains about while `Linux` is held, of devices attached here or of none, is in
//!    [`Linux::complaints`]; nothing may be there for an image to count as sound.

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

/// What is locked, wherever one's own temporary files are.
const LOCK: &str = "/tmp/userbtrfs-linux.lock";

/// The right to ask Linux: one holder at a time on this machine.
#[derive(Debug)]
pub struct Linux {
    log: Arc<KernelLog>,
    _lock: File,
}

impl Linux {
    /// Waits for the right, makes Linux forget the devices it knows and notes where its log ends.
    pub fn lock() -> anyhow::Result<Self> {
        let lock = File::create(LOCK).with_context(|| format!("creating {LOCK}"))?;
        lock.lock().context("locking")?;
        forget()?;
        Ok(Self { log: Arc::new(KernelLog::from_now()?), _lock: lock })
    }

    /// Attaches an image and mounts it; `options` as for mount(8): `ro`, `noatime` and those of
    /// btrfs.
    pub fn mount(&self, image: &Path, options: &str) -> anyhow::Result<Mount> {
        forget()?;
        let read_only = options.split(',').any(|option| option == "ro");
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        Mount::new(vec![LoopDevice::attach(self, image, access)?], options)
    }

    /// Copies an image to `copy`, lets Linux mount that, which replays the log that may be in it,
    /// and looks at it there. Fails where Linux complains, or `btrfs check` finds something.
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

    /// Has Linux read all of an image and compare the checksums; an error if it finds any.
    pub fn scrub(&self, image: &Path) -> anyhow::Result<()> {
        let mount = self.mount(image, "ro,noatime")?;
        let mut scrub = Command::new("btrfs");
        let said = run(scrub.args(["scrub", "start", "-B", "-r"]).arg(mount.path()))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        ensure!(said.contains("no errors found"), "{said}");
        Ok(())
    }

    /// The lines that btrfs wrote to the kernel log since the lock was taken or this was last
    /// called, of level warning or worse, about devices that were attached here or about none.
    pub fn complaints(&self) -> anyhow::Result<Vec<String>> {
        self.log.complaints()
    }

    /// Fails with Linux's complaints if there are any.
    pub fn assert_no_complaints(&self) -> anyhow::Result<()> {
        let complaints = self.complaints()?;
        ensure!(complaints.is_empty(), "Linux complains:\n{}", complaints.join("\n"));
        Ok(())
    }
}

/// Why Linux cannot be asked here, if it cannot.
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

/// Whether Linux can be asked. If not, says so as a skipped test does; where `CI` is `true` all
/// must be there, and this panics.
pub fn available_or_skip() -> bool {
    let Err(reason) = available() else { return true };
    test_env::skip(&reason);
    false
}

/// Returns from a test, reporting it as skipped, where Linux cannot be asked.
#[macro_export]
macro_rules! skip_unless_linux {
    () => {
        if !$crate::linux::available_or_skip() {
            return;
        }
    };
}

/// What `btrfs check --readonly` says of an image; an error if it finds any.
pub fn btrfs_check(image: &Path) -> anyhow::Result<String> {
    let output = run(Command::new("btrfs").args(["check", "--readonly"]).arg(image))?;
    let said = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Makes Linux forget every device that is not mounted.
pub fn forget() -> anyhow::Result<()> {
    run(Command::new("btrfs").args(["device", "scan", "--forget"])).map(drop)
}

/// Runs a command to its end; an error with all it said unless it succeeds.
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

/// How a guard reports that undoing failed: a panic, but never a second one.
fn undone(result: anyhow::Result<()>) {
    match result {
        Err(error) if std::thread::panicking() => eprintln!("while panicking: {error:#}"),
        result => result.expect("what a guard made can be undone"),
    }
}

#[cfg(test)]
mod tests;
