//! Linux as an oracle: loop devices, mounts, the kernel log and `btrfs check`.
//!
//! 1. Only one [`Linux`] exists at a time on the machine, ensured by a file lock: copies of one
//!    image have the same filesystem id, and Linux mistakes them for one another. Attaching and
//!    mounting need it.
//! 2. A [`LoopDevice`] is detached and a [`Mount`] unmounted when dropped, also in a panic; a mount
//!    owns its devices. A failure to do so panics, unless the thread panics already.
//! 3. [`Linux::complaints`] has the kernel messages since `Linux` was locked about devices attached
//!    here or about no device; an image is sound only if there are none.

mod command;
mod kernel_log;
mod lock;
mod loop_device;
mod mount;
mod share_range;
mod shutdown;

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use crate::test_env;
use crate::time_limit::limit_time;

pub use command::{forget, run};
pub use kernel_log::KernelLog;
pub use lock::Linux;
pub use loop_device::{Access, LoopDevice};
pub use mount::Mount;
pub use share_range::{clone_range, dedupe_range, defragment};
pub use shutdown::shutdown;

impl Linux {
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
    limit_time();
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

#[cfg(test)]
mod tests;
