//! Images: made once by `mkfs.btrfs` and the kernel, then only read.
//!
//! 1. An image is complete if a file that describes its contents is beside it; one without is made
//!    again.
//! 2. Dropping an image removes it if this run made it, unless images are kept; an image that
//!    existed before is left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use userbtrfs_testkit::linux;

use crate::args::Compression;
use crate::bench::{Bench, say};
use crate::tally::Tally;
use crate::workload::Workload;

/// An image on disk.
pub(crate) struct Image {
    name: String,
    path: PathBuf,
    contents: Contents,
    remove: bool,
}

/// The contents of an image.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Contents {
    /// The counts of the tree.
    pub(crate) tally: Tally,
    /// The number of bytes that the filesystem uses for it.
    pub(crate) used: u64,
}

impl Image {
    /// Returns the image of a workload; makes it if it does not exist.
    pub(crate) fn ensure(
        bench: &Bench,
        workload: Workload,
        compression: Compression,
    ) -> Result<Self> {
        let name = match workload {
            Workload::Empty { .. } => workload.name(),
            _ => format!("{}-{}", workload.name(), compression.name()),
        };
        let path = bench.folder().join(format!("{name}.img"));
        if let Some(contents) = contents_beside(&path) {
            return Ok(Self { name, path, contents, remove: false });
        }
        say(&format!("making {name}"));
        let contents = Contents::default();
        let mut image = Self { name, path, contents, remove: true };
        image.contents = make(bench, &image.path, workload, compression)?;
        serde_json::to_writer(File::create(beside(&image.path))?, &image.contents)?;
        image.remove = !bench.keeps();
        Ok(image)
    }

    /// Returns the name of the workload and its compression.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the image.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the contents.
    pub(crate) fn contents(&self) -> Contents {
        self.contents
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.remove {
            // An error here must not discard the results.
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(beside(&self.path));
        }
    }
}

/// Returns the path of the file that describes an image.
fn beside(image: &Path) -> PathBuf {
    image.with_extension("json")
}

fn contents_beside(image: &Path) -> Option<Contents> {
    let text = fs::read(beside(image)).ok()?;
    image.is_file().then(|| serde_json::from_slice(&text).ok()).flatten()
}

fn make(
    bench: &Bench,
    image: &Path,
    workload: Workload,
    compression: Compression,
) -> Result<Contents> {
    let file = File::create(image).with_context(|| image.display().to_string())?;
    file.set_len(workload.room())?;
    linux::run(Command::new("mkfs.btrfs").arg("--quiet").arg(image))?;
    let options = match compression {
        Compression::None => "noatime".to_owned(),
        _ => format!("noatime,compress={}", compression.name()),
    };
    let mount = bench.mount_with(image, &options)?;
    let fill = || -> Result<Contents> {
        workload.fill(mount.path(), bench.interrupt())?;
        rustix::fs::syncfs(File::open(mount.path())?)?;
        let stat = rustix::fs::statvfs(mount.path())?;
        let used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
        Ok(Contents { tally: Tally::of(mount.path())?, used })
    };
    let contents = fill().context("filling the image")?;
    drop(mount);
    file.sync_all()?;
    Ok(contents)
}
