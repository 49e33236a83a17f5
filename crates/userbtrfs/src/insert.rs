//! Copies trees of the machine into a filesystem, as `cp -a` does.
//!
//! | module   | what it is                                                    |
//! |----------|---------------------------------------------------------------|
//! | `source` | reads what is on the machine: a stream of steps through a tree |
//! | `target` | makes what the steps say in the filesystem                    |
//!
//! 1. Of the source nothing is followed but the path that is given; a name is read relative to its
//!    opened parent directory.
//! 2. A directory gets its attributes after everything in it was made.
//! 3. What has several names in the sources of one [`Inserter`] has them in the filesystem.
//! 4. What fails is reported, and the rest goes on; an error of the filesystem after which nothing
//!    can succeed ends the copy. Extended attributes that cannot be kept are counted apart.
//! 5. Nothing is committed here: whoever opened the filesystem does that.

mod source;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use thiserror::Error;
use userbtrfs_engine::api::{Dir, Error};

pub use crate::progress::Progress;
use source::Walk;
use target::{Links, Target};

/// How to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct InsertOptions {
    /// The owner of all that is made; as in the source where this is nothing.
    pub uid: Option<u32>,
    /// The group of all that is made; as in the source where this is nothing.
    pub gid: Option<u32>,
}

/// Why something was not copied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InsertError {
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
    /// The filesystem does not take it.
    #[error("{}: {error}", path.display())]
    Target {
        /// Where in the source.
        path: PathBuf,
        /// What the filesystem says.
        error: Box<Error>,
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
type Report<'a> = dyn Fn(InsertError) + 'a;

/// A copy into a filesystem, of one tree or several: what has names in more than one of them
/// keeps them, as with one call of `cp -a`.
pub struct Inserter<'a> {
    options: InsertOptions,
    progress: &'a Progress,
    links: Mutex<Links>,
}

impl<'a> Inserter<'a> {
    /// A copy that counts what it does in `progress`.
    pub fn new(options: InsertOptions, progress: &'a Progress) -> Self {
        Self { options, progress, links: Mutex::default() }
    }

    /// Copies what is at `source`, and everything below it, to `name` in `dir`. A directory that
    /// exists is filled; other things in the way are replaced, but never a directory.
    ///
    /// What fails is given to `report`, and the rest goes on; [`Progress::errors`] counts it, or
    /// [`Progress::not_kept`] where it is [`InsertError::NotKept`].
    pub fn insert(&self, source: &Path, dir: &Dir, name: &[u8], report: &Report<'_>) {
        self.run(Walk::of(source, name), dir, report);
    }

    /// Copies what is in the directory `source` into `dir`, which gets its attributes.
    pub fn insert_content(&self, source: &Path, dir: &Dir, report: &Report<'_>) {
        self.run(Walk::inside(source), dir, report);
    }

    fn run(&self, walk: Result<Walk, InsertError>, dir: &Dir, report: &Report<'_>) {
        let counted = |error| {
            let kept = !matches!(error, InsertError::NotKept { .. });
            let counter = if kept { &self.progress.errors } else { &self.progress.not_kept };
            Progress::add(counter, 1);
            report(error);
        };
        let mut walk = match walk {
            Ok(walk) => walk,
            Err(error) => return counted(error),
        };
        let mut target = Target::new(self, dir, &counted);
        while let Some(step) = walk.next().filter(|_| !self.progress.is_stopped()) {
            if let Err(error) = step.and_then(|step| target.take(step)) {
                let is_final = is_final(&error);
                counted(error);
                if is_final {
                    return;
                }
            }
        }
    }
}

/// Whether nothing can succeed after this.
fn is_final(error: &InsertError) -> bool {
    const EROFS: i32 = 30;
    matches!(error, InsertError::Target { error, .. } if error.errno() == EROFS)
}
