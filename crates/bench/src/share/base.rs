//! The images that turns begin with: made once by `mkfs.btrfs` and the kernel, and copied for each
//! turn.
//!
//! 1. The files of the subvolume `source` are small: three of four are stored inline, each fourth
//!    has an extent.
//! 2. If there is a snapshot, each tenth directory has changes in it: each tenth file there is
//!    written anew. So about nine tenths of its blocks are shared.
//! 3. The file to clone has one extent for each 128 KiB.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use userbtrfs::Filesystem;
use userbtrfs_testkit::linux;

use crate::bench::{Bench, say};
use crate::content::Content;

/// The subvolume with the files, its snapshot, and the file to clone.
pub(super) const SOURCE: &str = "source";
pub(super) const SNAPSHOT: &str = "snapshot";
pub(super) const FILE: &str = "file";

/// The number of extents in 1 MiB of the file to clone, and the size of each in KiB.
pub(super) const EXTENTS_PER_MIB: u64 = 8;
const EXTENT_KIB: u64 = 128;

/// The number of files in a directory.
const PER_DIR: u64 = 1000;
/// Each of so many directories has changes, in each of so many files.
const CHANGED: u64 = 10;
/// Each of so many files has an extent.
const WITH_EXTENT: u64 = 4;
/// The sizes of files without and with an extent, in bytes.
const INLINE: usize = 200;
const SECTOR: usize = 4096;
/// The space of a filesystem for each file, and in addition, in bytes.
const ROOM_PER_FILE: u64 = 8 << 10;
const ROOM: u64 = 2 << 30;

/// An image that is copied for each turn. Dropping this removes it.
pub(super) struct Base {
    path: PathBuf,
}

impl Base {
    /// Makes an image with a subvolume of so many files, and if `snapshot` with a changed snapshot
    /// of it.
    pub(super) fn of_tree(bench: &Bench, files: u64, snapshot: bool) -> Result<Self> {
        say(&format!("making a subvolume of {files} files"));
        let base = Self::new(bench, ROOM + files * ROOM_PER_FILE)?;
        let mount = bench.mount_with(&base.path, "noatime")?;
        let source = mount.path().join(SOURCE);
        linux::run(Command::new("btrfs").args(["subvolume", "create"]).arg(&source))?;
        let mut content = Content::new(files);
        each(bench, files, &mut |number| {
            let path = path_of(&source, number);
            if number.is_multiple_of(PER_DIR) {
                fs::create_dir(path.parent().expect("a directory"))?;
            }
            write(&mut content, &path, number)
        })?;
        sync(mount.path())?;
        if snapshot {
            let copy = mount.path().join(SNAPSHOT);
            let mut command = Command::new("btrfs");
            linux::run(command.args(["subvolume", "snapshot"]).arg(&source).arg(&copy))?;
            each(bench, files, &mut |number| {
                if is_changed(number) {
                    write(&mut content, &path_of(&copy, number), number)?;
                }
                Ok(())
            })?;
            sync(mount.path())?;
        }
        drop(mount);
        base.finish()
    }

    /// Makes an image with a file of so many MiB.
    pub(super) fn of_file(bench: &Bench, mebibytes: u64) -> Result<Self> {
        say(&format!("making a file of {mebibytes} MiB"));
        let base = Self::new(bench, ROOM + 2 * (mebibytes << 20))?;
        let mount = bench.mount_with(&base.path, "noatime")?;
        let extents = mebibytes * EXTENTS_PER_MIB;
        let mut dd = Command::new("dd");
        // Each direct write makes an extent of its own.
        dd.args(["if=/dev/urandom", "iflag=fullblock", "oflag=direct"]);
        dd.args([format!("bs={EXTENT_KIB}K"), format!("count={extents}")]);
        bench.call(dd.arg(format!("of={}", mount.path().join(FILE).display())))?;
        sync(mount.path())?;
        drop(mount);
        let found = Filesystem::open(&base.path)?.open_file(FILE)?.extents()?.len() as u64;
        ensure!(found == extents, "the file has {found} extents in place of {extents}");
        base.finish()
    }

    fn new(bench: &Bench, bytes: u64) -> Result<Self> {
        let base = Self { path: bench.folder().join("base.img") };
        File::create(&base.path)?.set_len(bytes)?;
        linux::run(Command::new("mkfs.btrfs").arg("--quiet").arg(&base.path))?;
        Ok(base)
    }

    fn finish(self) -> Result<Self> {
        File::open(&self.path)?.sync_all()?;
        Ok(self)
    }

    /// Returns the path of the image.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // If this fails, the next image replaces it, or reports the error.
        let _ = fs::remove_file(&self.path);
    }
}

fn each(bench: &Bench, files: u64, act: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
    for number in 0..files {
        if number.is_multiple_of(PER_DIR) {
            bench.interrupt().check()?;
        }
        act(number)?;
    }
    Ok(())
}

fn path_of(root: &Path, number: u64) -> PathBuf {
    root.join(format!("dir-{:05}", number / PER_DIR)).join(format!("file-{number:08}"))
}

fn is_changed(number: u64) -> bool {
    (number / PER_DIR).is_multiple_of(CHANGED) && number.is_multiple_of(CHANGED)
}

fn write(content: &mut Content, path: &Path, number: u64) -> Result<()> {
    let mut bytes = Vec::new();
    let len = if number.is_multiple_of(WITH_EXTENT) { SECTOR } else { INLINE };
    content.fill(&mut bytes, len);
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn sync(mount: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(mount)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundredth_of_the_files_is_changed_in_a_tenth_of_the_directories() {
        let changed: Vec<_> = (0..20_000).filter(|number| is_changed(*number)).collect();
        assert_eq!(changed.len(), 200);
        let dirs: std::collections::BTreeSet<_> =
            changed.iter().map(|number| number / PER_DIR).collect();
        assert_eq!(dirs.into_iter().collect::<Vec<_>>(), [0, 10]);
    }
}
