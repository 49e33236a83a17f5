//! The copy into an image that `put`, `cp` and `mkfs --rootdir` share, and its destination.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use userbtrfs::copy::import::{ImportError, ImportOptions, Importer, Progress};
use userbtrfs::{Dir, Error, Filesystem, Quoted, join_path};

use crate::cli::args::Global;
use crate::cli::host::progress::{finish, while_watched};
use crate::cli::host::signals::raise_open_files;
use crate::cli::paths::last_name;
use crate::cli::report::{self, print_error};
use crate::cli::text::shown;

/// A callback for each failure.
pub(in crate::cli) type Report<'a> = &'a dyn Fn(ImportError);

/// Copies and shows the progress; failures are printed, and set the exit code.
pub(in crate::cli) fn copy(
    verb: &str,
    global: &Global,
    options: ImportOptions,
    steps: &Steps<'_>,
    work: impl FnOnce(&Importer<'_>, Report<'_>) -> Result<()>,
) -> Result<ExitCode> {
    raise_open_files();
    let progress = Progress::default();
    let started = Instant::now();
    let observer = |source: &Path, below: &[u8]| steps.show(source, below);
    let inserter = Importer::new(options, &progress).observe(&observer);
    let report = |error: ImportError| {
        let minor = matches!(error, ImportError::NotKept { .. });
        if !minor || global.verbose > 0 {
            print_error(&format!("{verb}: {error}"));
        }
    };
    while_watched(global, &progress, || work(&inserter, &report))?;
    finish(verb, global, &progress, started)
}

/// The lines of `--verbose`: each new file, as cp(1) prints it.
pub(in crate::cli) struct Steps<'a> {
    /// `None` if no lines are printed.
    global: Option<&'a Global>,
    /// The path of the copy of the current source.
    target: Mutex<Vec<u8>>,
}

impl<'a> Steps<'a> {
    pub(in crate::cli) fn new(global: &'a Global) -> Self {
        Self { global: Some(global), target: Mutex::default() }
    }

    /// Prints nothing.
    pub(in crate::cli) fn none() -> Self {
        Self { global: None, target: Mutex::default() }
    }

    /// Begins with another source, whose copy has this path.
    pub(in crate::cli) fn begin(&self, target: Vec<u8>) {
        *self.target.lock().expect("no thread panics with it") = target;
    }

    fn show(&self, source: &Path, below: &[u8]) {
        let Some(global) = self.global else { return };
        let top = self.target.lock().expect("no thread panics with it");
        let target = if below.is_empty() { top.clone() } else { join_path(&top, below) };
        let source = Quoted(source.as_os_str().as_encoded_bytes());
        // If stdout fails, the copy continues; its summary or the exit reports that.
        let _ = report::progress(global, || format!("'{source}' -> '{}'", Quoted(&target)));
    }
}

/// The destination of the sources.
pub(in crate::cli) struct Target<'a> {
    filesystem: &'a Filesystem,
    path: &'a OsStr,
    /// The directory that the path leads to, if it leads to one.
    into: Option<Dir>,
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
pub(in crate::cli) enum Place {
    /// A name in a directory.
    Named {
        /// The directory.
        dir: Dir,
        /// The name.
        name: Vec<u8>,
        /// The path of the copy, for messages.
        path: Vec<u8>,
    },
    /// The directory itself is filled.
    Inside(Dir),
}

impl<'a> Target<'a> {
    /// Opens the destination, which must be a directory if there are several sources.
    pub(in crate::cli) fn new(
        filesystem: &'a Filesystem,
        path: &'a OsStr,
        sources: usize,
    ) -> Result<Self> {
        let into = match filesystem.open_dir(path.as_encoded_bytes()) {
            Ok(dir) => Some(dir),
            Err(Error::NotFound | Error::NotADirectory) => None,
            Err(error) => return Err(error).with_context(|| shown(path)),
        };
        if sources > 1 && into.is_none() {
            bail!("{}: not a directory", shown(path));
        }
        Ok(Self { filesystem, path, into })
    }

    /// Returns the destination of a source. If the source has no name to keep, its entries are
    /// copied into the directory itself, as with `cp -a SRC/. DEST`.
    ///
    /// A missing destination that ends with a slash is accepted only for a directory.
    pub(in crate::cli) fn of(&self, source: &OsStr, kind: SourceKind) -> Result<Place> {
        match (self.into.clone(), last_name(source.as_encoded_bytes())) {
            (Some(dir), Some(name)) => {
                let path = join_path(self.path.as_encoded_bytes(), name);
                Ok(Place::Named { dir, name: name.to_vec(), path })
            }
            (Some(dir), None) => Ok(Place::Inside(dir)),
            (None, _) => {
                let path = self.path.as_encoded_bytes();
                let parent = match kind {
                    SourceKind::Directory => self.filesystem.open_parent(path),
                    SourceKind::File => self.filesystem.open_parent_of_file(self.through(path)?),
                    SourceKind::Other => self.filesystem.open_parent_of_file(path),
                };
                let (dir, name) = parent.with_context(|| shown(self.path))?;
                Ok(Place::Named { dir, name, path: path.to_vec() })
            }
        }
    }

    /// Returns the path to which the content of a file is written. As in cp(1), symbolic links are
    /// followed, and it fails if they lead to something that is not a regular file.
    fn through(&self, path: &[u8]) -> Result<Vec<u8>> {
        let mut path = path.to_vec();
        for followed in 0..=LINKS_MAX {
            let found = match self.filesystem.lookup_no_follow(&path) {
                Err(Error::NotFound) if followed > 0 => {
                    bail!("{}: not writing through dangling symlink", shown(self.path))
                }
                Err(_) => return Ok(path),
                Ok(found) => found,
            };
            let metadata = found.metadata()?;
            if !metadata.is_symlink() {
                ensure!(metadata.is_file(), "{}: not a regular file", shown(self.path));
                return Ok(path);
            }
            let target = found.read_link()?;
            let parent = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
            path =
                if target.starts_with(b"/") { target } else { [&path[..parent], &target].concat() };
        }
        Err(Error::SymlinkLoop).with_context(|| shown(self.path))
    }
}
