//! Loop devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use userbtrfs_sync::Arc;

use super::command::{run, undone};
use super::kernel_log::KernelLog;
use super::lock::Linux;

/// The access mode of a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Linux cannot change the file, not even to replay a log.
    ReadOnly,
    /// Linux may change the file.
    ReadWrite,
}

/// A file attached as a loop device; detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    log: Arc<KernelLog>,
}

impl LoopDevice {
    /// Attaches `image` to a free loop device.
    pub fn attach(linux: &Linux, image: &Path, access: Access) -> anyhow::Result<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]);
        if access == Access::ReadOnly {
            losetup.arg("--read-only");
        }
        let name = String::from_utf8(run(losetup.arg(image))?.stdout)?;
        let device = Self { path: name.trim_end().into(), log: Arc::clone(&linux.log) };
        device.log.hold(&device.path)?;
        Ok(device)
    }

    /// Returns the path of the block device, `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bytes written since it was attached, from its statistics.
    pub fn bytes_written(&self) -> anyhow::Result<u64> {
        let name = self.path.file_name().context("a device in /dev")?;
        let statistics = Path::new("/sys/block").join(name).join("stat");
        let text = fs::read_to_string(statistics)?;
        // In units of 512 bytes, independent of the sector size of the device.
        let units = text.split_whitespace().nth(6).context("statistics of a block device")?;
        Ok(512 * units.parse::<u64>()?)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        undone(self.log.let_go(&self.path));
        undone(run(Command::new("losetup").arg("--detach").arg(&self.path)).map(drop));
    }
}
