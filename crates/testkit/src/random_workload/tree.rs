//! The files of a tree, as far as random changes know them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::random::Random;

/// The files of a tree under random changes.
pub(super) struct Tree {
    pub(super) random: Random,
    pub(super) root: PathBuf,
    /// Regular files that existed; some may be removed.
    pub(super) files: Vec<PathBuf>,
    /// Directories that existed; some may be removed.
    pub(super) dirs: Vec<PathBuf>,
    /// Subvolumes that may be snapshotted.
    pub(super) sources: Vec<PathBuf>,
    /// Subvolumes that may be deleted.
    pub(super) deletable: Vec<PathBuf>,
    /// The number of names generated so far.
    names: u64,
}

impl Tree {
    /// Starts with the tree below `root`. `sources` are its subvolumes that may be snapshotted.
    pub(super) fn new(root: &Path, sources: Vec<PathBuf>, seed: u64) -> io::Result<Self> {
        let random = Random::new(seed);
        let root = root.to_owned();
        let files = Vec::new();
        let dirs = vec![root.clone()];
        let mut tree = Self { random, root, files, dirs, sources, deletable: Vec::new(), names: 0 };
        let mut next = 0;
        while let Some(dir) = tree.dirs.get(next).cloned() {
            tree.list(&dir)?;
            next += 1;
        }
        Ok(tree)
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

    pub(super) fn file(&mut self) -> io::Result<PathBuf> {
        self.random.pick(&self.files).cloned().ok_or_else(nothing)
    }

    pub(super) fn dir(&mut self) -> io::Result<PathBuf> {
        self.random.pick(&self.dirs).cloned().ok_or_else(nothing)
    }

    /// Returns an unused path in some directory.
    pub(super) fn new_path(&mut self) -> io::Result<PathBuf> {
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
    pub(super) fn forget(&mut self, path: &Path) {
        for list in [&mut self.files, &mut self.dirs, &mut self.sources, &mut self.deletable] {
            list.retain(|known| !known.starts_with(path));
        }
    }

    /// Adds copies at `to` of everything known at and below `from`.
    pub(super) fn copy_known(&mut self, from: &Path, to: &Path) {
        for list in [&mut self.files, &mut self.dirs] {
            let below = list.iter().filter_map(|known| known.strip_prefix(from).ok());
            let copies: Vec<_> = below.map(|below| to.join(below)).collect();
            list.extend(copies);
        }
    }
}

/// Returns the error of a change for which there is no object.
pub(super) fn nothing() -> io::Error {
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
        let mut tree = Tree::new(folder.path(), Vec::new(), 1).unwrap();
        for _ in 0..20 {
            let path = tree.new_path().unwrap();
            assert!(fs::symlink_metadata(&path).is_err(), "{}", path.display());
        }
    }
}
