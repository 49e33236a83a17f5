//! The copy that `put`, `cp`, `get` and `mkfs --rootdir` share, and its destination in an image.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use userbtrfs::copy::{Copier, CopyError, CopyOptions, ImageTarget, Progress};
use userbtrfs::{Dir, Error, Filesystem, PathError, Quoted};

use crate::cli::args::Global;
use crate::cli::host::meter::Total;
use crate::cli::host::progress::{finish, while_watched};
use crate::cli::host::signals::raise_open_files;
use crate::cli::paths::{Destination, Placement, target_of_link};
use crate::cli::report::{self, print_error};
use crate::cli::text::shown;

/// A callback for each failure.
pub(in crate::cli) type Report<'a> = &'a userbtrfs::copy::Report<'a>;

/// Copies and shows the progress; failures are printed, and set the exit code. With `--verbose`,
/// each new file is printed as cp(1) does, if the verb does so.
pub(in crate::cli) fn copy(
    verb: &str,
    global: &Global,
    options: CopyOptions,
    prints_files: bool,
    total: Total<'_>,
    work: impl FnOnce(&Copier<'_>, Report<'_>) -> Result<()>,
) -> Result<ExitCode> {
    raise_open_files();
    let progress = Progress::default();
    let started = Instant::now();
    let observer = |source: &Path, copy: &Path| show(global, source, copy);
    let mut copier = Copier::new(options, &progress);
    if prints_files {
        copier = copier.observe(&observer);
    }
    let report = |error: CopyError| {
        if !matches!(error, CopyError::NotKept { .. }) || global.verbose > 0 {
            print_error(&format!("{verb}: {error}"));
        }
    };
    while_watched(global, &progress, total, || work(&copier, &report))?;
    finish(verb, global, &progress, started)
}

fn show(global: &Global, source: &Path, copy: &Path) {
    let [source, copy] = [source, copy].map(|path| Quoted(path.as_os_str().as_encoded_bytes()));
    // If stdout fails, the copy continues; its summary or the exit reports that.
    let _ = report::progress(global, || format!("'{source}' -> '{copy}'"));
}

/// The destination of the sources.
pub(in crate::cli) struct Target<'a> {
    filesystem: &'a Filesystem,
    destination: Destination<'a, Dir>,
}

/// The kind of a source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum SourceKind {
    File,
    Directory,
    /// A symbolic link, a device or the like.
    Other,
}

/// The maximum number of symbolic links that are followed.
const LINKS_MAX: usize = 40;

/// The destination of one source.
pub(in crate::cli) struct Place {
    dir: Dir,
    /// The name in the directory; `None` if the directory itself is filled.
    name: Option<Vec<u8>>,
    path: Vec<u8>,
}

impl Place {
    pub(in crate::cli) fn target(&self) -> ImageTarget<'_> {
        ImageTarget { dir: &self.dir, name: self.name.as_deref(), path: &self.path }
    }
}

impl<'a> Target<'a> {
    /// Splits the destination, which is the last path, from the sources, and opens it. With
    /// `never_into` it is the new name even if it is a directory.
    pub(in crate::cli) fn split(
        filesystem: &'a Filesystem,
        paths: &'a [OsString],
        never_into: bool,
    ) -> Result<(&'a [OsString], Self)> {
        let (sources, destination) = Destination::split_by(paths, |path| {
            if never_into {
                return Ok(None);
            }
            match filesystem.open_dir(path.as_encoded_bytes()) {
                Ok(dir) => Ok(Some(dir)),
                Err(PathError { error: Error::NotFound | Error::NotADirectory, .. }) => Ok(None),
                Err(error) => Err(error).with_context(|| shown(path)),
            }
        })?;
        Ok((sources, Self { filesystem, destination }))
    }

    /// Returns the destination of a source. If the source has no name to keep, its entries are
    /// copied into the directory itself, as with `cp -a SRC/. DEST`.
    ///
    /// A missing destination that ends with a slash is accepted only for a directory.
    pub(in crate::cli) fn of(&self, source: &OsStr, kind: SourceKind) -> Result<Place> {
        let path = self.destination.path().as_encoded_bytes();
        match self.destination.place_of(source.as_encoded_bytes()) {
            Placement::Within { dir, name, path } => {
                Ok(Place { dir: dir.clone(), name: Some(name.to_vec()), path })
            }
            Placement::Directory(dir) => {
                Ok(Place { dir: dir.clone(), name: None, path: path.to_vec() })
            }
            Placement::New => {
                let parent = match kind {
                    SourceKind::Directory => self.filesystem.open_parent(path),
                    SourceKind::File => self.filesystem.open_parent_of_file(self.through(path)?),
                    SourceKind::Other => self.filesystem.open_parent_of_file(path),
                };
                let (dir, name) = parent.with_context(|| self.shown())?;
                Ok(Place { dir, name: Some(name), path: path.to_vec() })
            }
        }
    }

    /// Returns the path to which the content of a file is written. As in cp(1), symbolic links are
    /// followed, and it fails if they lead to something that is not a regular file.
    fn through(&self, path: &[u8]) -> Result<Vec<u8>> {
        let mut path = path.to_vec();
        for followed in 0..=LINKS_MAX {
            let found = match self.filesystem.lookup_no_follow(&path) {
                Err(PathError { error: Error::NotFound, .. }) if followed > 0 => {
                    bail!("{}: not writing through dangling symlink", self.shown())
                }
                Err(_) => return Ok(path),
                Ok(found) => found,
            };
            let metadata = found.metadata()?;
            if !metadata.is_symlink() {
                ensure!(!metadata.is_dir(), "{}: is a directory", self.shown());
                ensure!(metadata.is_file(), "{}: not a regular file", self.shown());
                return Ok(path);
            }
            path = target_of_link(&path, found.read_link()?);
        }
        Err(Error::SymlinkLoop).with_context(|| self.shown())
    }

    /// Returns the path of the destination, for messages.
    fn shown(&self) -> String {
        shown(self.destination.path())
    }
}
