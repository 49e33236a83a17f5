//! Steps that only Linux supports so far, or that it needs a separate implementation for.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};
use rustix::fs::{Advice, copy_file_range, fadvise};
use rustix::io::{ReadWriteFlags, pwritev2};

use super::step::Step;
use crate::linux::run;
use crate::manifest::Bytes;
use crate::operation::{Object, Operation};
use crate::pattern;

/// Executes a step in the filesystem mounted at `root`.
pub(super) fn act(root: &Path, step: &Step) -> Result<()> {
    match step {
        Step::Evict => evict(root),
        Step::WriteThrough(write) => write_through(root, write),
        Step::Clone { from, offset, length, to, at } => {
            clone(&below(root, from), *offset, *length, &below(root, to), *at)
        }
        Step::Subvolume(path) => subvolume("create", &[], &[below(root, path)]),
        Step::Snapshot(of, at) => subvolume("snapshot", &[], &[below(root, of), below(root, at)]),
        Step::Delete(path) => subvolume("delete", &[], &[below(root, path)]),
        other => bail!("no step of Linux alone: {other:?}"),
    }
}

/// Evicts everything unused from memory: the pages of all files here, and then the inodes.
fn evict(root: &Path) -> Result<()> {
    forget_pages(root)?;
    // Not 3: that also waits for all other filesystems of the machine.
    Ok(fs::write("/proc/sys/vm/drop_caches", "2")?)
}

fn forget_pages(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget_pages(&entry.path())?;
        } else if kind.is_file() {
            fadvise(File::open(entry.path())?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

fn below(root: &Path, path: &Bytes) -> PathBuf {
    root.join(OsStr::from_bytes(path.as_slice()))
}

fn subvolume(verb: &str, options: &[&str], paths: &[PathBuf]) -> Result<()> {
    let mut btrfs = Command::new("btrfs");
    run(btrfs.args(["subvolume", verb]).args(options).args(paths)).map(drop)
}

fn write_through(root: &Path, write: &Operation) -> Result<()> {
    let Operation::Write { object: Object::Path(path), offset, length, seed } = write else {
        bail!("no write of a path: {write}");
    };
    let file = File::options().write(true).open(below(root, path))?;
    let bytes = pattern::bytes(*seed, *offset, usize::try_from(*length)?);
    let done = pwritev2(&file, &[IoSlice::new(&bytes)], *offset, ReadWriteFlags::DSYNC)?;
    ensure!(done == bytes.len(), "only {done} bytes were written");
    Ok(())
}

/// Clones a range: in a btrfs, Linux implements a copy of whole sectors by sharing extents.
fn clone(from: &Path, offset: u64, length: u64, to: &Path, at: u64) -> Result<()> {
    let from = File::open(from)?;
    let to = File::options().write(true).open(to)?;
    let mut offset = offset;
    let mut at = at;
    let done = copy_file_range(&from, Some(&mut offset), &to, Some(&mut at), length.try_into()?)?;
    ensure!(u64::try_from(done)? == length, "only {done} bytes were cloned");
    Ok(())
}
