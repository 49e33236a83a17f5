//! Copies trees into a filesystem, as `cp -a` does: trees of the machine, or its own.
//!
//! | file         | holds                                          |
//! |--------------|------------------------------------------------|
//! | `event`      | the events of a walk through a tree            |
//! | `host_tree`  | a walk through the host's files                |
//! | `image_tree` | a walk through the files of an image           |
//! | `prefetch`   | a thread that reads events and file data ahead |
//! | `target`     | makes the files in the image                   |
//!
//! 1. Of the source nothing is followed but the path that is given.
//! 2. A directory gets its attributes after everything in it was made.
//! 3. What has several names in the sources of one [`Importer`] has them in the filesystem.
//! 4. What fails is reported, and the rest goes on; an error of the filesystem after which nothing
//!    can succeed ends the copy. Extended attributes that cannot be kept are counted apart.
//! 5. A file is copied whole, with its holes, or not at all. One that changes meanwhile is kept as
//!    it was read, and is reported.
//! 6. Memory is bounded, whatever the size of the files: a few MiB.
//! 7. Nothing is committed here, but for [`ImportOptions::fsync`]: whoever opened the filesystem
//!    does that.

mod event;
mod host_tree;
mod image_tree;
mod prefetch;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use thiserror::Error;
use userbtrfs_engine::api::{Dir, Error, Inode};

pub use crate::copy::progress::Progress;
use host_tree::HostTree;
use image_tree::ImageTree;
use prefetch::{Cancelled, Source, each_step};
use target::{Links, Target};

/// How to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// The owner of all that is made; as in the source where this is nothing.
    pub uid: Option<u32>,
    /// The group of all that is made; as in the source where this is nothing.
    pub gid: Option<u32>,
    /// What is kept of the source.
    pub keep: Keep,
    /// Whether each file is made durable when it is complete.
    pub fsync: bool,
    /// The device and inode number of a file of the host that is left out with an error: the image
    /// that is copied into.
    pub except: Option<(u64, u64)>,
}

/// What is kept of a source beside names and contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Permissions without the set-id bits, as `cp` does; all else is new.
    Mode,
    /// Permissions, owners and times, as `cp -p` does.
    Attributes,
    /// All that there is, hard links and extended attributes, too, as `cp -a` does.
    #[default]
    Everything,
}

/// Why something was not copied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The source cannot be read.
    #[error("{}: {doing}: {error}", path.display())]
    Source {
        /// Where in the source.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        error: std::io::Error,
    },
    /// The file is the image that is copied into.
    #[error("{}: is the image itself; skipped", path.display())]
    Itself {
        /// Where in the source.
        path: PathBuf,
    },
    /// No thread can be started to read with.
    #[error("cannot start a thread: {0}")]
    NoThread(std::io::Error),
    /// The file changed while it was read. What was read is kept.
    #[error("{}: it changed while it was read; kept as it was read", path.display())]
    Changed {
        /// Where in the source.
        path: PathBuf,
    },
    /// The filesystem does not take it.
    #[error("{}: {error}", path.display())]
    Target {
        /// Where in the source.
        path: PathBuf,
        /// What the filesystem says.
        error: Box<Error>,
    },
    /// An extended attribute of the source that is listed and cannot be read; it is left out.
    #[error("{}: {name} could not be read: {error}", path.display())]
    NotRead {
        /// Where in the source.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// An extended attribute that the filesystem does not take.
    #[error("{}: {name} could not be kept: {error}", path.display())]
    NotKept {
        /// Where in the source.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// What the filesystem says.
        error: Box<Error>,
    },
}

/// Who is told of what fails.
type Report<'a> = dyn Fn(ImportError) + 'a;

/// A copy into a filesystem, of one tree or several: what has names in more than one of them
/// keeps them, as with one call of `cp -a`.
pub struct Importer<'a> {
    options: ImportOptions,
    progress: &'a Progress,
    links: Mutex<Links>,
}

impl<'a> Importer<'a> {
    /// A copy that counts what it does in `progress`.
    pub fn new(options: ImportOptions, progress: &'a Progress) -> Self {
        Self { options, progress, links: Mutex::default() }
    }

    /// Copies what is at `source`, and everything below it, to `name` in `dir`. A directory that
    /// exists is filled; other things in the way are replaced, but never a directory.
    ///
    /// What fails is given to `report`, and the rest goes on; [`Progress::errors`] counts it, or
    /// [`Progress::not_kept`] where it is [`ImportError::NotKept`] or [`ImportError::NotRead`].
    pub fn insert(&self, source: &Path, dir: &Dir, name: &[u8], report: &Report<'_>) {
        self.run(HostTree::of(source, name, self.options.except), dir, report);
    }

    /// Copies what is in the directory `source` into `dir`, which gets its attributes.
    pub fn insert_content(&self, source: &Path, dir: &Dir, report: &Report<'_>) {
        self.run(HostTree::inside(source, self.options.except), dir, report);
    }

    /// Copies what is at `source` of the filesystem itself, whose path is `path`, and everything
    /// below it, to `name` in `dir`; otherwise as [`Self::insert`]. Without a name, what is in the
    /// directory `source` goes into `dir`.
    ///
    /// [`Error::IntoItself`] where `dir` is the source or below it.
    pub fn copy(
        &self,
        (source, path): (&Inode, &[u8]),
        dir: &Dir,
        name: Option<&[u8]>,
        report: &Report<'_>,
    ) {
        self.run(ImageTree::new(source, path, dir, name), dir, report);
    }

    fn run<S: Source + Send>(
        &self,
        source: Result<S, ImportError>,
        dir: &Dir,
        report: &Report<'_>,
    ) {
        let counted = |error| {
            let kept = !matches!(error, ImportError::NotKept { .. } | ImportError::NotRead { .. });
            let counter = if kept { &self.progress.errors } else { &self.progress.not_kept };
            Progress::add(counter, 1);
            report(error);
        };
        let source = match source {
            Ok(source) => source,
            Err(error) => return counted(error),
        };
        let given_up = Cancelled::default();
        let mut target = Target::new(self, dir, &counted, &given_up);
        let read = each_step(source, &given_up, |step, bytes| {
            let Err(error) = target.take(step, bytes) else { return !self.progress.is_stopped() };
            let is_final = is_final(&error);
            counted(error);
            !is_final && !self.progress.is_stopped()
        });
        target.discard();
        if let Err(error) = read {
            counted(ImportError::NoThread(error));
        }
    }
}

/// Whether nothing can succeed after this.
fn is_final(error: &ImportError) -> bool {
    const EROFS: i32 = 30;
    matches!(error, ImportError::Target { error, .. } if error.errno() == EROFS)
}
