//! Random changes to a mounted filesystem, from a seed.
//!
//! 1. The changes that are tried, and their targets, depend on the seed and the initial tree.
//! 2. A change that the system refuses (a directory is not empty, the target is in another
//!    subvolume ...) is skipped. A device error, no space, or detected damage is an error.
//! 3. Each kind of change (`KINDS`) succeeds at least once.

mod content;
mod names;
mod subvolumes;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::io::Errno;

use crate::random::Random;

/// A kind of change: its weight, its name, and its function.
type KindOfChange = (u64, &'static str, fn(&mut RandomWorkload) -> io::Result<()>);

/// All kinds of changes, each before those that need its results.
const KINDS: &[KindOfChange] = &[
    (20, "overwrite", content::overwrite),
    (8, "truncate", content::truncate),
    (8, "punch", content::punch),
    (4, "zero", content::zero),
    (8, "preallocate", content::preallocate),
    (12, "share a range", content::share_range),
    (6, "share all", content::share_all),
    (6, "write far", content::write_far),
    (6, "nocow", content::nocow),
    (4, "wish compression", content::wish_compression),
    (3, "fsync", content::fsync),
    (10, "create", names::create),
    (4, "make directory", names::make_dir),
    (8, "rename", names::rename),
    (3, "rename directory", names::rename_dir),
    (3, "exchange", names::exchange),
    (8, "unlink", names::unlink),
    (8, "link", names::link),
    (4, "symlink", names::symlink),
    (2, "special file", names::special),
    (8, "set xattr", names::set_xattr),
    (4, "remove xattr", names::remove_xattr),
    (4, "mode and owner", names::mode_and_owner),
    (4, "times", names::times),
    (2, "commit", subvolumes::commit),
    (1, "make subvolume", subvolumes::make),
    (1, "snapshot", subvolumes::snapshot),
    (1, "read-only snapshot", subvolumes::snapshot_read_only),
    (1, "delete subvolume", subvolumes::delete),
];

/// The number of attempts until each kind succeeds once: with one directory to move and one
/// possible target, the chance is one in sixteen.
const TRIES: u32 = 1000;

/// A file tree under random changes.
pub struct RandomWorkload {
    random: Random,
    root: PathBuf,
    /// Regular files that existed; some may be removed.
    files: Vec<PathBuf>,
    /// Directories that existed; some may be removed.
    dirs: Vec<PathBuf>,
    /// Subvolumes that may be snapshotted.
    sources: Vec<PathBuf>,
    /// Subvolumes that may be deleted.
    deletable: Vec<PathBuf>,
    /// The number of names generated so far.
    names: u64,
}

impl RandomWorkload {
    /// Starts with the tree below `root`. `sources` are its subvolumes that may be snapshotted.
    pub fn new(root: &Path, sources: Vec<PathBuf>, seed: u64) -> io::Result<Self> {
        let random = Random::new(seed);
        let (root, files, dirs) = (root.to_owned(), Vec::new(), vec![root.to_owned()]);
        let mut churn =
            Self { random, root, files, dirs, sources, deletable: Vec::new(), names: 0 };
        let mut next = 0;
        while let Some(dir) = churn.dirs.get(next).cloned() {
            churn.list(&dir)?;
            next += 1;
        }
        Ok(churn)
    }

    fn list(&mut self, dir: &Path) -> io::Result<()> {
        let mut entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.dirs.push(entry.path());
            } else if kind.is_file() {
                self.files.push(entry.path());
            }
        }
        Ok(())
    }

    /// Makes each kind of change once, in their order, and then `changes` random ones.
    pub fn run(&mut self, changes: u64) -> anyhow::Result<()> {
        for (_, name, change) in KINDS {
            let mut tries = (0..TRIES).map(|_| self.attempt(*change));
            let done = tries.find(|done| !matches!(done, Ok(false)));
            let done = done.unwrap_or(Ok(false)).with_context(|| (*name).to_owned())?;
            ensure!(done, "{name}: not once in {TRIES} tries");
        }
        for _ in 0..changes {
            let (name, change) = self.kind();
            self.attempt(change).with_context(|| name.to_owned())?;
        }
        Ok(())
    }

    fn kind(&mut self) -> (&'static str, fn(&mut Self) -> io::Result<()>) {
        let mut left = self.random.below(KINDS.iter().map(|(weight, ..)| weight).sum());
        for (weight, name, change) in KINDS {
            if left < *weight {
                return (name, *change);
            }
            left -= weight;
        }
        unreachable!("a number below the sum of the weights")
    }

    /// Tries a change; returns whether it succeeded.
    fn attempt(&mut self, change: fn(&mut Self) -> io::Result<()>) -> anyhow::Result<bool> {
        const FATAL: &[Errno] = &[Errno::IO, Errno::NOSPC, Errno::UCLEAN];
        match change(self) {
            Ok(()) => Ok(true),
            Err(e) if Errno::from_io_error(&e).is_some_and(|e| FATAL.contains(&e)) => Err(e.into()),
            Err(_) => Ok(false),
        }
    }

    fn file(&mut self) -> io::Result<PathBuf> {
        self.random.pick(&self.files).cloned().ok_or_else(nothing)
    }

    fn dir(&mut self) -> io::Result<PathBuf> {
        self.random.pick(&self.dirs).cloned().ok_or_else(nothing)
    }

    /// Returns an unused path in some directory.
    fn new_path(&mut self) -> io::Result<PathBuf> {
        let padding = if self.random.one_in(8) { "-padded".repeat(30) } else { String::new() };
        let dir = self.dir()?;
        loop {
            self.names += 1;
            let path = dir.join(format!("new{}{padding}", self.names));
            if fs::symlink_metadata(&path).is_err() {
                return Ok(path);
            }
        }
    }

    /// Forgets everything at and below `path`.
    fn forget(&mut self, path: &Path) {
        for list in [&mut self.files, &mut self.dirs, &mut self.sources, &mut self.deletable] {
            list.retain(|known| !known.starts_with(path));
        }
    }

    /// Adds copies at `to` of everything known at and below `from`.
    fn copy_known(&mut self, from: &Path, to: &Path) {
        for list in [&mut self.files, &mut self.dirs] {
            let below = list.iter().filter_map(|known| known.strip_prefix(from).ok());
            let copies: Vec<_> = below.map(|below| to.join(below)).collect();
            list.extend(copies);
        }
    }
}

fn nothing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// Writing to a FIFO left by an earlier workload would wait for a reader forever.
    #[test]
    fn new_path_avoids_files_of_earlier_workloads() {
        let folder = tempfile::tempdir().unwrap();
        mknodat(CWD, folder.path().join("new1"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let mut churn = RandomWorkload::new(folder.path(), Vec::new(), 1).unwrap();
        for _ in 0..20 {
            let path = churn.new_path().unwrap();
            assert!(fs::symlink_metadata(&path).is_err(), "{}", path.display());
        }
    }
}
