//! Images to write to: made for one turn, removed with the value.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate};
use userbtrfs::device::{FileDevice, FileOptions};
use userbtrfs::mkfs::{self, Options};
use userbtrfs_testkit::linux;

use crate::bench::Bench;
use crate::sample::timed;

/// An image file that only its turn knows.
pub(crate) struct Fresh(PathBuf);

impl Fresh {
    /// Makes a file of so many bytes, all of it a hole.
    pub(crate) fn new(bench: &Bench, bytes: u64) -> Result<Self> {
        let path = bench.folder().join("fresh.img");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let fresh = Self(path);
        file.set_len(bytes)?;
        Ok(fresh)
    }

    /// Makes a file of so many bytes that has all its space, though nothing was written to it.
    pub(crate) fn preallocated(bench: &Bench, bytes: u64) -> Result<Self> {
        let fresh = Self::new(bench, bytes)?;
        let file = File::options().write(true).open(&fresh.0)?;
        fallocate(file, FallocateFlags::empty(), 0, bytes).context("the space of an image")?;
        Ok(fresh)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a filesystem in it, as the library does.
    pub(crate) fn format(&self) -> Result<()> {
        let options = FileOptions { writable: true, ..FileOptions::default() };
        let device = FileDevice::open(&self.0, options)?;
        mkfs::make(&device, &Options::default())?;
        Ok(())
    }

    /// Makes a filesystem in it by `mkfs.btrfs`.
    pub(crate) fn format_by_progs(&self, arguments: &[&Path]) -> Result<()> {
        let mut mkfs = Command::new("mkfs.btrfs");
        linux::run(mkfs.arg("--quiet").args(arguments).arg(&self.0)).map(drop)
    }

    /// Makes it durable; gives how long that took.
    pub(crate) fn sync(&self) -> Result<Duration> {
        let file = File::open(&self.0)?;
        timed(|| Ok(file.sync_all()?)).map(|(time, ())| time)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // The next one is made over what is left, or says why not.
        let _ = fs::remove_file(&self.0);
    }
}
