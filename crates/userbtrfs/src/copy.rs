//! Copies trees of files, as `cp -a` does: into an image, within it, and out of it.
//!
//! A copy is one source, one sink, and one way to fill files. All three directions share the
//! rest: the names, hard links, replacements, attributes, errors and counts are those of `tree`,
//! so `put`, `cp`, `get` and `mkfs --rootdir` behave alike.
//!
//! ```text
//!   put, --rootdir   host_tree  -+
//!                                +- in_order - tree - ImageSink
//!   cp               image_tree -+
//!   get              image_tree --- pool ----- tree - HostSink
//! ```
//!
//! | file                | holds                                                              |
//! |---------------------|--------------------------------------------------------------------|
//! | `source`            | the events of a walk through a tree, and its entries               |
//! | `source/host_tree`  | a walk through the host's files                                    |
//! | `source/image_tree` | a walk through the files of an image                               |
//! | `tree`              | the copy: applies events to a sink                                 |
//! | `sink`              | the operations of a sink: `image` and `host`                       |
//! | `linked`            | temporary names, and the names of an inode that has several        |
//! | `in_order`          | fills one file after the other, with data that `prefetch` reads    |
//! | `pool`              | fills several files of the host at once, large ones in parts       |
//! | `shared`            | the data that files of the host share                              |
//! | `options`, `error`  | the options and errors of all copies                               |
//!
//! 1. Nothing is made outside the destination: every name is made relative to its opened parent
//!    directory, links in the way are never followed, and a name that holds `/` or NUL, or is
//!    `.` or `..`, is refused.
//! 2. A directory gets its attributes after everything in it was made, also if the copy is stopped.
//! 3. Hard links within the sources of one [`Copier`] are kept with [`Keep::Everything`].
//! 4. A failure is reported, and the copy continues; an error of the image after which nothing can
//!    succeed ends it. Owners and extended attributes that cannot be kept are counted separately:
//!    they are not errors, as with `cp -a`.
//! 5. A file is copied whole, with its holes, or not at all. One of the host that changes while it
//!    is read is kept as it was read, and is reported.
//! 6. Memory is bounded, whatever the size of the files: a few MiB, some tens of them with
//!    [`CopyOptions::keep_shared`], and the paths of the copies with [`CopyOptions::keep_made`].
//! 7. Nothing is committed here, except for [`CopyOptions::fsync`]: the commit is up to the code
//!    that opened the filesystem.

pub(crate) mod counted;
mod error;
mod host_object;
mod in_order;
mod linked;
mod options;
mod origin;
mod pool;
mod prefetch;
mod progress;
mod shared;
mod sink;
mod source;
mod tree;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use userbtrfs_engine::api::{Dir, Error, Inode};

use error::source_error;
pub use error::{CopyError, Report, SideError};
use linked::Links;
pub use options::{CopyOptions, Filter, Keep, Observer, Reflink};
pub use progress::Progress;
use shared::SharedFiles;
use sink::Sink;
use sink::host::{HostSink, open_dir};
use sink::image::ImageSink;
use source::host_tree::HostTree;
use source::image_tree::{ImageTree, is_within};
use tree::{Context, Made, Start, Tree};

/// A copy of one or more trees. Hard links between the trees are kept, as with one call of `cp -a`.
///
/// An existing directory is filled; an existing non-directory is replaced, but never a directory.
/// Each failure is passed to the `report` of a call, and the copy continues; [`Progress::errors`]
/// counts it, or [`Progress::not_kept`] if it [is of an attribute](CopyError::is_of_attribute).
pub struct Copier<'a> {
    options: CopyOptions,
    progress: &'a Progress,
    observer: Option<&'a Observer<'a>>,
    image_links: Links<ImageSink>,
    host_links: Links<HostSink>,
    made: Option<Made>,
    shared: Option<Arc<SharedFiles>>,
}

impl fmt::Debug for Copier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copier").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A tree in an image.
#[derive(Clone, Copy, Debug)]
pub struct ImageSource<'a> {
    /// Its first inode.
    pub inode: &'a Inode,
    /// The path of that inode, for messages.
    pub path: &'a [u8],
}

/// A destination in an image.
#[derive(Clone, Copy, Debug)]
pub struct ImageTarget<'a> {
    /// The directory of the copy.
    pub dir: &'a Dir,
    /// The name of the copy; `None` if the entries of the source are copied into `dir`, which gets
    /// the attributes of the source.
    pub name: Option<&'a [u8]>,
    /// The path of the copy, for messages.
    pub path: &'a [u8],
}

impl<'a> Copier<'a> {
    /// Creates a copy that counts its work in `progress`.
    pub fn new(options: CopyOptions, progress: &'a Progress) -> Self {
        let (image_links, host_links) = Default::default();
        let made = options.keep_made.then(Made::default);
        let shared = options.keep_shared.then(|| Arc::new(SharedFiles::new()));
        Self { options, progress, observer: None, image_links, host_links, made, shared }
    }

    /// Sets a callback for each file that is complete, and each directory that is made.
    #[must_use]
    pub fn observe(self, observer: &'a Observer<'a>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Copies a tree of the host into an image.
    pub fn put(&self, source: &Path, target: &ImageTarget<'_>, report: &Report<'_>) {
        let context = self.context(&self.image_links, report);
        let follow = target.name.is_none();
        match HostTree::new(source, follow, &self.options, self.shared.clone()) {
            Ok(source) => {
                in_order::copy(source, Tree::new(&context, target.start(self.options.keep)));
            }
            Err(error) => context.report(error),
        }
    }

    /// Copies a tree of an image within it. Reports [`Error::IntoItself`] if the target is the
    /// source or below it.
    pub fn copy(&self, source: &ImageSource<'_>, target: &ImageTarget<'_>, report: &Report<'_>) {
        let context = self.context(&self.image_links, report);
        let is_within = is_within(target.dir, source.inode)
            .and_then(|is_within| if is_within { Err(Error::IntoItself) } else { Ok(()) });
        match is_within {
            Ok(()) => {
                let tree = Tree::new(&context, target.start(self.options.keep));
                in_order::copy(self.image_tree(source), tree);
            }
            Err(error) => context.report(source_error(&source.path())(error)),
        }
    }

    /// Copies a tree of an image to `target` on the host, whose parent must exist.
    pub fn get(&self, source: &ImageSource<'_>, target: &Path, report: &Report<'_>) {
        let context = self.context(&self.host_links, report);
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        match open_dir(parent) {
            Ok(dir) => {
                let name = target.file_name().map(|name| name.as_bytes().to_vec());
                let dir = Arc::new(dir);
                let path = target.to_path_buf();
                let start = Start { dir, name: Some(name.unwrap_or_default()), path };
                let tree = Tree::new(&context, start);
                pool::copy(self.image_tree(source), tree, self.options.workers);
            }
            Err(error) => context.report(CopyError::Target { path: parent.to_path_buf(), error }),
        }
    }

    fn context<'c, S: Sink>(
        &'c self,
        links: &'c Links<S>,
        report: &'c Report<'c>,
    ) -> Context<'c, S> {
        let made = self.made.as_ref();
        let shared = self.shared.as_deref();
        Context::new(&self.options, self.progress, self.observer, links, made, shared, report)
    }

    fn image_tree(&self, source: &ImageSource<'_>) -> ImageTree {
        ImageTree::new(source.inode, source.path(), &self.options)
    }
}

impl ImageSource<'_> {
    fn path(&self) -> PathBuf {
        path_of(self.path)
    }
}

impl ImageTarget<'_> {
    fn start(&self, keep: Keep) -> Start<ImageSink> {
        let name = self.name.map(<[u8]>::to_vec);
        let dir = keep.acls_in(self.dir.clone());
        Start { dir: Arc::new(dir), name, path: path_of(self.path) }
    }
}

fn path_of(path: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(path.to_vec()))
}
