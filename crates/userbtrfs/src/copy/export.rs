//! Copies trees out of a filesystem, as `cp -a` does.
//!
//! One thread walks the source, makes directories and names, and hands opened files to workers,
//! which write their content and set their attributes.
//!
//! 1. Nothing is made outside the destination: every name is made relative to its opened parent
//!    directory, links in the way are never followed, and a name that holds `/` or NUL, or is
//!    `.` or `..`, is refused.
//! 2. A directory gets its attributes after everything in it was made.
//! 3. A file gets its attributes after its content: owner, then extended attributes, then mode,
//!    then times, since setting each of them can change the ones after it.
//! 4. A failure is reported, and the copy continues. Owners and extended attributes that cannot be
//!    kept are counted separately: they are not errors, as with `cp -a`.
//! 5. POSIX ACLs that the source does not have (inherited from the destination, or left from an
//!    existing directory) are removed.
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

/// Options of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The number of files that are filled at the same time.
    pub workers: usize,
    /// Leaves out subvolumes inside the source; empty directories are made in their place.
    pub one_subvolume: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        // More workers than processors, since workers wait for reads of small files.
        Self { workers: (2 * cpus).max(4), one_subvolume: false }
    }
}

/// An error of an export.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The source cannot be read.
    #[error("{path}: {error}")]
    Source {
        /// The path in the source.
        path: String,
        /// The filesystem's error.
        error: Box<userbtrfs_engine::Error>,
    },
    /// The destination cannot be created or written.
    #[error("{}: {doing}: {error}", path.display())]
    Target {
        /// The path in the destination.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// An attribute that the destination or the user's rights do not allow to keep.
    #[error("{}: {what} could not be kept: {error}", path.display())]
    NotKept {
        /// The path in the destination.
        path: PathBuf,
        /// The attribute: the owner, or the name of an extended attribute.
        what: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// A name that would lead out of its directory.
    #[error("{path}: refused: the name is not one that a directory can hold")]
    Name {
        /// The path in the source.
        path: String,
    },
    /// No worker thread can be started.
    #[error("cannot start a thread: {0}")]
    NoThread(std::io::Error),
    /// The copy was stopped before its end.
    #[error("stopped")]
    Stopped,
}

/// A callback for each failure.
type Report<'a> = dyn Fn(ExportError) + Sync + 'a;

/// A copy of one or more trees out of a filesystem. Hard links between the trees are kept, as with
/// one call of `cp -a`.
pub struct Exporter<'a> {
    options: ExportOptions,
    progress: &'a Progress,
    /// The names made so far of inodes with several names.
    names: Mutex<HashMap<InodeId, Vec<PathBuf>>>,
}

impl<'a> Exporter<'a> {
    /// Creates a copy that counts its work in `progress`.
    pub fn new(options: ExportOptions, progress: &'a Progress) -> Self {
        Self { options, progress, names: Mutex::default() }
    }

    /// Copies the tree at `source` to `target`, which is created; its parent must exist. An
    /// existing directory is filled; an existing non-directory is replaced, but never a directory.
    ///
    /// Each failure is passed to `report`, and the copy continues; [`Progress::errors`] counts it,
    /// or [`Progress::not_kept`] if it is [`ExportError::NotKept`].
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
