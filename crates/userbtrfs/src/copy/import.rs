//! Copies trees into a filesystem, as `cp -a` does: trees of the host, or of the same filesystem.
//!
//! | file         | holds                                          |
//! |--------------|------------------------------------------------|
//! | `event`      | the events of a walk through a tree            |
//! | `host_tree`  | a walk through the host's files                |
//! | `image_tree` | a walk through the files of an image           |
//! | `prefetch`   | a thread that reads events and file data ahead |
//! | `target`     | makes the files in the image                   |
//!
//! 1. In the source, no symbolic link is followed, except in the path that the caller gives.
//! 2. A directory gets its attributes after everything in it was made.
//! 3. Hard links within the sources of one [`Importer`] are kept with [`Keep::Everything`].
//! 4. A failure is reported, and the copy continues; an error of the filesystem after which nothing
//!    can succeed ends the copy. Extended attributes that cannot be kept are counted separately.
//! 5. A file is copied whole, with its holes, or not at all. One that changes while it is read is
//!    kept as it was read, and is reported.
//! 6. Memory is bounded, whatever the size of the files: a few MiB.
//! 7. Nothing is committed here, except for [`ImportOptions::fsync`]: the commit is up to the code
//!    that opened the filesystem.

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

/// Options of an import.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// The owner of all new files; `None` leaves it to `keep`.
    pub uid: Option<u32>,
    /// The group of all new files; `None` leaves it to `keep`.
    pub gid: Option<u32>,
    /// The attributes of the source to keep.
    pub keep: Keep,
    /// Makes each file durable when it is complete.
    pub fsync: bool,
    /// Whether the copies of files of the same filesystem share their extents.
    pub reflink: Reflink,
    /// The device and inode number of the image file on the host, which is skipped with an error.
    pub except: Option<(u64, u64)>,
}

/// Whether a copy shares the extents of its source, as `cp --reflink` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// It does if that is possible; otherwise the data is copied.
    #[default]
    Auto,
    /// It does; a file for which that is not possible is not copied.
    Always,
    /// The data is copied.
    Never,
}

/// The attributes of a source that are kept, beside names and contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Permissions without the set-id and sticky bits, as `cp` does; all else is new.
    Mode,
    /// Permissions, owners and times, as `cp -p` does.
    Attributes,
    /// Everything, including hard links and extended attributes, as `cp -a` does.
    #[default]
    Everything,
}

impl Keep {
    /// Returns the directory with the treatment of its default ACL for new inodes in it.
    fn acls_in(self, dir: Dir) -> Dir {
        match self {
            Self::Mode => dir,
            Self::Attributes | Self::Everything => dir.ignoring_default_acl(),
        }
    }
}

/// An error of an import.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The source cannot be read.
    #[error("{}: {doing}: {error}", path.display())]
    Source {
        /// The path in the source.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file is the image that is copied into.
    #[error("{}: is the image itself; skipped", path.display())]
    Itself {
        /// The path in the source.
        path: PathBuf,
    },
    /// The thread that reads cannot be started.
    #[error("cannot start a thread: {0}")]
    NoThread(std::io::Error),
    /// The file changed while it was read. It is kept as it was read.
    #[error("{}: it changed while it was read; kept as it was read", path.display())]
    Changed {
        /// The path in the source.
        path: PathBuf,
    },
    /// The file cannot be made in the filesystem.
    #[error("{}: {error}", path.display())]
    Target {
        /// The path in the source.
        path: PathBuf,
        /// The filesystem's error.
        error: Box<Error>,
    },
    /// An extended attribute of the source that is listed but cannot be read; it is left out.
    #[error("{}: {name} could not be read: {error}", path.display())]
    NotRead {
        /// The path in the source.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// An extended attribute that the filesystem does not accept.
    #[error("{}: {name} could not be kept: {error}", path.display())]
    NotKept {
        /// The path in the source.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// The filesystem's error.
        error: Box<Error>,
    },
}

/// A callback for each failure.
type Report<'a> = dyn Fn(ImportError) + 'a;

/// A callback for each new file and directory, with its path in the source, and its path below the
/// copy of the whole source, which is empty for that itself.
pub type Observer<'a> = dyn Fn(&Path, &[u8]) + Sync + 'a;

/// A copy of one or more trees into a filesystem. Hard links between the trees are kept, as with
/// one call of `cp -a`.
pub struct Importer<'a> {
    options: ImportOptions,
    progress: &'a Progress,
    links: Mutex<Links>,
    observer: Option<&'a Observer<'a>>,
}

impl<'a> Importer<'a> {
    /// Creates a copy that counts its work in `progress`.
    pub fn new(options: ImportOptions, progress: &'a Progress) -> Self {
        Self { options, progress, links: Mutex::default(), observer: None }
    }

    /// Sets a callback for each file that is complete, and each directory that is made.
    #[must_use]
    pub fn observe(self, observer: &'a Observer<'a>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Copies the tree at `source` to `name` in `dir`. An existing directory is filled; an existing
    /// non-directory is replaced, but never a directory.
    ///
    /// Each failure is passed to `report`, and the copy continues; [`Progress::errors`] counts it,
    /// or [`Progress::not_kept`] if it is [`ImportError::NotKept`] or [`ImportError::NotRead`].
    pub fn insert(&self, source: &Path, dir: &Dir, name: &[u8], report: &Report<'_>) {
        self.run(HostTree::of(source, name, self.options.except), dir, report);
    }

    /// Copies the entries of the directory `source` into `dir`, which gets its attributes.
    pub fn insert_content(&self, source: &Path, dir: &Dir, report: &Report<'_>) {
        self.run(HostTree::inside(source, self.options.except), dir, report);
    }

    /// Copies the tree at `source` of the same filesystem, whose path is `path`, to `name` in
    /// `dir`; otherwise like [`Self::insert`]. Without a name, the entries of the directory
    /// `source` are copied into `dir`.
    ///
    /// Reports [`Error::IntoItself`] if `dir` is the source or below it.
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

/// Returns true if nothing can succeed after this error.
fn is_final(error: &ImportError) -> bool {
    const EROFS: i32 = 30;
    matches!(error, ImportError::Target { error, .. } if error.errno() == EROFS)
}
