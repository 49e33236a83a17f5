//! A recursive walk of a directory.
//!
//! 1. Parents are visited before their children; entries in the order of their directory.
//! 2. Each directory is visited once: one that contains itself, or that has a second name, is an
//!    error there, and not entered ([`Dir::enter`]).
//! 3. The memory is that of the path to the current entry.

use std::fmt;

use userbtrfs_format::FileKind;

use super::{Dir, DirEntries, DirEntry, FileType, Inode, join_path};
use crate::error::{Error, InodeId, PathError, PathOperation, PathResult, Result};

/// A walk of everything at and below an inode. It continues after an error where it can.
pub struct Walk {
    start: Option<(Inode, Vec<u8>)>,
    levels: Vec<Level>,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("depth", &self.levels.len()).finish_non_exhaustive()
    }
}

struct Level {
    id: InodeId,
    dir: Dir,
    path: Vec<u8>,
    entries: DirEntries,
}

/// An entry that a walk visits.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// The path.
    pub path: Vec<u8>,
    /// The type.
    pub kind: FileType,
    /// The number of directories from the start to it.
    pub depth: usize,
    /// The handle on it.
    pub inode: Inode,
}

impl Walk {
    pub(crate) fn new(start: Inode, path: &[u8]) -> Self {
        Self { start: Some((start, path.to_vec())), levels: Vec::new() }
    }

    /// Enters the directory of an entry of the innermost one.
    fn enter(&mut self, inode: &Inode, entry: &DirEntry, path: &[u8]) -> Result<()> {
        let id = inode.id();
        if self.levels.iter().any(|level| level.id == id) {
            return Err(Error::DirectoryLoop(id));
        }
        let level = self.levels.last().expect("the entry is of a directory");
        let dir = level.dir.enter(entry)?;
        self.push(dir, path);
        Ok(())
    }

    /// Returns the inode of an entry of the innermost directory and its type; enters a directory.
    fn visit(&mut self, entry: &DirEntry, path: &[u8]) -> Result<(Inode, FileType)> {
        let level = self.levels.last().expect("the entry is of a directory");
        let inode = level.dir.follow(entry)?;
        let kind = match entry.kind() {
            Some(kind) => kind,
            None => inode.metadata()?.kind,
        };
        if kind == FileKind::Directory {
            self.enter(&inode, entry, path)?;
        }
        Ok((inode, kind))
    }

    fn push(&mut self, dir: Dir, path: &[u8]) {
        let id = dir.inode().id();
        let entries = dir.entries();
        self.levels.push(Level { id, dir, path: path.to_vec(), entries });
    }

    fn step(&mut self) -> PathResult<Option<WalkEntry>> {
        if let Some((inode, path)) = self.start.take() {
            let kind = inode.metadata().map_err(failure(&path))?.kind;
            if kind == FileKind::Directory {
                self.push(Dir::new(inode.clone()), &path);
            }
            return Ok(Some(WalkEntry { path, kind, depth: 0, inode }));
        }
        while let Some(level) = self.levels.last_mut() {
            let Some(entry) = level.entries.next() else {
                self.levels.pop();
                continue;
            };
            let entry = entry.map_err(failure(&level.path))?;
            let path = join_path(&level.path, entry.name());
            let depth = self.levels.len();
            let (inode, kind) = self.visit(&entry, &path).map_err(failure(&path))?;
            return Ok(Some(WalkEntry { path, kind, depth, inode }));
        }
        Ok(None)
    }

    /// Skips the content of the directory that was returned last.
    pub fn skip_dir(&mut self) {
        self.levels.pop();
    }
}

/// Returns the conversion of an error at a path of a walk.
fn failure(path: &[u8]) -> impl Fn(Error) -> PathError {
    PathError::at(PathOperation::Walk, path)
}

impl Inode {
    /// Walks everything at and below it, parents before children; `path` is its path in the
    /// results.
    pub fn walk(&self, path: &[u8]) -> Walk {
        Walk::new(self.clone(), path)
    }
}

impl Iterator for Walk {
    type Item = PathResult<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
