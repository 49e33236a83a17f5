//! What `put`, `cp` and `mkfs --rootdir` share: a copy into an image, and where it goes.

use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use userbtrfs::copy::import::{ImportError, ImportOptions, Importer, Progress};
use userbtrfs::{Dir, Filesystem};

use crate::cli::args::Global;
use crate::cli::complain;
use crate::cli::host::signals::{finish, raise_open_files, while_watched};
use crate::cli::paths::last_name;
use crate::cli::verbs::ls::shown;

/// Who is told of what fails.
pub(in crate::cli) type Report<'a> = &'a dyn Fn(ImportError);

/// Copies with its progress shown; what fails is said, and counts at the end.
pub(in crate::cli) fn copy(
    verb: &str,
    global: &Global,
    options: ImportOptions,
    work: impl FnOnce(&Importer<'_>, Report<'_>) -> Result<()>,
) -> Result<ExitCode> {
    raise_open_files();
    let (progress, started) = (Progress::default(), Instant::now());
    let inserter = Importer::new(options, &progress);
    let report = |error: ImportError| {
        let minor = matches!(error, ImportError::NotKept { .. });
        if !minor || global.verbose > 0 {
            complain(&format!("{verb}: {error}"));
        }
    };
    while_watched(global, &progress, || work(&inserter, &report))?;
    finish(verb, global, &progress, started)
}

/// Where sources go.
pub(in crate::cli) struct Target<'a> {
    filesystem: &'a Filesystem,
    path: &'a OsStr,
    /// The directory that the path leads to, if it leads to one.
    into: Option<Dir>,
}

/// Where a source goes.
pub(in crate::cli) enum Place {
    Named(Dir, Vec<u8>),
    /// The directory itself is filled.
    Inside(Dir),
}

impl<'a> Target<'a> {
    /// Where so many sources go.
    pub(in crate::cli) fn new(
        filesystem: &'a Filesystem,
        path: &'a OsStr,
        sources: usize,
    ) -> Result<Self> {
        let into = match filesystem.open_dir(path.as_encoded_bytes()) {
            Ok(dir) => Some(dir),
            Err(userbtrfs::Error::NotFound | userbtrfs::Error::NotADirectory) => None,
            Err(error) => return Err(error).with_context(|| shown(path)),
        };
        if sources > 1 && into.is_none() {
            bail!("{}: not a directory", shown(path));
        }
        Ok(Self { filesystem, path, into })
    }

    /// A source without a name to keep fills the destination, as with `cp -a SRC/. DEST`.
    ///
    /// A destination that ends with a slash, and is not there, takes a directory alone.
    pub(in crate::cli) fn of(&self, source: &OsStr, is_dir: bool) -> Result<Place> {
        match (self.into.clone(), last_name(source.as_encoded_bytes())) {
            (Some(dir), Some(name)) => Ok(Place::Named(dir, name.to_vec())),
            (Some(dir), None) => Ok(Place::Inside(dir)),
            (None, _) => {
                let path = self.path.as_encoded_bytes();
                let parent = match is_dir {
                    true => self.filesystem.open_parent(path),
                    false => self.filesystem.open_parent_of_file(path),
                };
                let (dir, name) = parent.with_context(|| shown(self.path))?;
                Ok(Place::Named(dir, name))
            }
        }
    }
}
