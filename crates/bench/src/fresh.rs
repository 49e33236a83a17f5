//! Images to write to, made for one turn.

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

/// The image file of one turn. Dropping this removes it, unless it is only reused.
pub(crate) struct Fresh {
    path: PathBuf,
    reused: bool,
}

impl Fresh {
    /// Makes a sparse file of this size.
    pub(crate) fn new(bench: &Bench, bytes: u64) -> Result<Self> {
        let path = bench.folder().join("fresh.img");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let fresh = Self { path, reused: false };
        file.set_len(bytes)?;
        Ok(fresh)
    }

    /// Empties an existing file of this size, which stays when this is dropped.
    pub(crate) fn reused(path: &Path, bytes: u64) -> Result<Self> {
        let file = File::options().write(true).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        file.set_len(0)?;
        file.set_len(bytes)?;
        Ok(Self { path: path.to_owned(), reused: true })
    }

    /// Makes a file of this size with all its space preallocated.
    pub(crate) fn preallocated(bench: &Bench, bytes: u64) -> Result<Self> {
        let fresh = Self::new(bench, bytes)?;
        let file = File::options().write(true).open(&fresh.path)?;
        fallocate(file, FallocateFlags::empty(), 0, bytes).context("the space of an image")?;
        Ok(fresh)
    }

    /// Makes a copy of an image, with all its space preallocated.
    pub(crate) fn copied(bench: &Bench, image: &Path) -> Result<Self> {
        let bytes = fs::metadata(image)?.len();
        let fresh = Self::new(bench, bytes)?;
        bench.call(Command::new("cp").arg("--sparse=always").arg(image).arg(&fresh.path))?;
        let file = File::options().write(true).open(&fresh.path)?;
        fallocate(file, FallocateFlags::empty(), 0, bytes).context("the space of an image")?;
        Ok(fresh)
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a filesystem in it by the library.
    pub(crate) fn format(&self) -> Result<()> {
        let options = FileOptions { writable: true, ..FileOptions::default() };
        let device = FileDevice::open(&self.path, options)?;
        mkfs::make(&device, &Options::default())?;
        Ok(())
    }

    /// Makes a filesystem in it by `mkfs.btrfs`.
    pub(crate) fn format_by_progs(&self, arguments: &[&Path]) -> Result<()> {
        let mut mkfs = Command::new("mkfs.btrfs");
        linux::run(mkfs.arg("--quiet").args(arguments).arg(&self.path)).map(drop)
    }

    /// Makes the file durable; returns the time that took.
    pub(crate) fn sync(&self) -> Result<Duration> {
        let file = File::open(&self.path)?;
        timed(|| Ok(file.sync_all()?)).map(|(time, ())| time)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.reused {
            // If this fails, the next turn truncates the file, or reports the error.
            let _ = fs::remove_file(&self.path);
        }
    }
}
