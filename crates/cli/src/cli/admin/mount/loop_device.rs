//! A loop device for an image file, so that the mount is that of a block device to the kernel:
//! sync(2) and umount(8) then wait for the server. The server reads and writes the file itself.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cli::report::print_error;

/// A loop device. The drop detaches it, at once or with the end of its mount.
pub(super) struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches the image to a free loop device, by losetup(8).
    pub(super) fn attach(image: &Path) -> Result<Self> {
        let ran = Command::new("losetup").args(["--find", "--show", "--"]).arg(image).output();
        let ran = ran.context("losetup")?;
        let stderr = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "no loop device: {}", stderr.trim_end());
        let mut path = ran.stdout;
        path.truncate(path.trim_ascii_end().len());
        Ok(Self(OsString::from_vec(path).into()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let ran = Command::new("losetup").arg("-d").arg(&self.0).status();
        if !ran.is_ok_and(|status| status.success()) {
            print_error(&format!("{}: cannot be detached", self.0.display()));
        }
    }
}
