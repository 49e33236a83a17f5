//! Copies trees out of a filesystem, as `cp -a` does.
//!
//! One thread walks the source, makes directories and names, and hands opened files to workers,
//! which fill them and give them their attributes.
//!
//! 1. Nothing is made outside the destination: every name is made relative to its opened parent
//!    directory, links in the way are never followed, and a name that holds `/` or NUL, or is
//!    `.` or `..`, is refused.
//! 2. A directory gets its attributes after everything in it was made.
//! 3. A file gets its attributes after its content: owner, then extended attributes, then mode,
//!    then times, each of which would undo the one after it.
//! 4. What fails is reported, and the rest goes on. Owners and extended attributes that cannot be
//!    kept are counted apart: they are no errors, as with `cp -a`.
//! 5. Access lists that the destination gives to what is made in it do not stay.
//! 6. A file whose content cannot be copied is removed; one that lacks an attribute is not. When
//!    stopped, a file that is not complete is removed.

mod attributes;
mod content;
mod job;
mod target;
mod tree;
mod worker;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use thiserror::Error;
use userbtrfs_engine::api::{Inode, InodeId};

pub use crate::copy::progress::Progress;

/// What to copy, and how.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// How many files are filled at the same time.
    pub workers: usize,
    /// Whether subvolumes inside the source are left out; their places are empty directories.
    pub one_subvolume: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        // More than processors, since reads of small files are waited for.
        Self { workers: (2 * cpus).max(4), one_subvolume: false }
    }
}

/// Why something was not copied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The source cannot be read.
    #[error("{path}: {error}")]
    Source {
        /// Where in the source.
        path: String,
        /// What is wrong.
        error: Box<userbtrfs_engine::Error>,
    },
    /// The destination cannot be made.
    #[error("{}: {doing}: {error}", path.display())]
    Target {
        /// Where in the destination.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        error: std::io::Error,
    },
    /// Something that the destination or the user's rights do not allow to keep.
    #[error("{}: {what} could not be kept: {error}", path.display())]
    NotKept {
        /// Where in the destination.
        path: PathBuf,
        /// What it is: the owner, or the name of an extended attribute.
        what: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// A name that would lead elsewhere.
    #[error("{path}: refused: the name is not one that a directory can hold")]
    Name {
        /// Where in the source.
        path: String,
    },
    /// No thread can be started to copy with.
    #[error("cannot start a thread: {0}")]
    NoThread(std::io::Error),
    /// Stopped before the end.
    #[error("stopped")]
    Stopped,
}

/// Who is told of what fails.
type Report<'a> = dyn Fn(ExportError) + Sync + 'a;

/// A copy out of a filesystem, of one tree or several: what has names in more than one of them
/// keeps them, as with one call of `cp -a`.
pub struct Exporter<'a> {
    options: ExportOptions,
    progress: &'a Progress,
    /// The names made so far of those inodes that have several.
    names: Mutex<HashMap<InodeId, Vec<PathBuf>>>,
}

impl<'a> Exporter<'a> {
    /// A copy that counts what it does in `progress`.
    pub fn new(options: ExportOptions, progress: &'a Progress) -> Self {
        Self { options, progress, names: Mutex::default() }
    }

    /// Copies what is at `source`, and everything below it, to `target`, which is made; its
    /// parent must exist. A directory that exists is filled; other things in the way are
    /// replaced, but never a directory.
    ///
    /// What fails is given to `report`, and the rest goes on; [`Progress::errors`] counts it,
    /// or [`Progress::not_kept`] where it is [`ExportError::NotKept`].
    pub fn extract(
        &self,
        source: &Inode,
        path: &[u8],
        target: &Path,
        report: &(dyn Fn(ExportError) + Sync),
    ) {
        let counted = |error| {
            let kept = !matches!(error, ExportError::NotKept { .. });
            let counter = if kept { &self.progress.errors } else { &self.progress.not_kept };
            Progress::add(counter, 1);
            report(error);
        };
        tree::copy(self, source, path, target, &counted);
    }
}
