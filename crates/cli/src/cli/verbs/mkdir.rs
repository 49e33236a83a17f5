//! `mkdir`: makes directories.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::{Error, Filesystem, PathError, PathResult, Quoted};

use crate::cli::paths::{each, is_missing};
use crate::cli::report::{is_verbose, progress};
use crate::cli::session::{RunVerb, Session};
use crate::cli::verbs::chmod::{Mode, umask};

/// The permissions of missing parents.
const PARENT_MODE: u32 = 0o755;

#[derive(clap::Args)]
pub(crate) struct MkdirArgs {
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Make parent directories as needed; no error if existing
    #[arg(short, long)]
    parents: bool,
    /// Mode, octal or symbolic, which changes a=rwx
    #[arg(short, long, value_name = "MODE", default_value = "755", allow_hyphen_values = true)]
    mode: Mode,
}

impl RunVerb for MkdirArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let mode = self.mode.apply(0o777, true, umask());
        each(&self.paths, |path| {
            let missing = if is_verbose(&session.global) {
                self.missing(filesystem, path)
            } else {
                Vec::new()
            };
            let made = if self.parents {
                create_with_parents(filesystem, path, mode)
            } else {
                filesystem.create_dir(path, mode).map(drop)
            };
            for path in missing.into_iter().filter(|path| filesystem.open_dir(path).is_ok()) {
                let line = || format!("mkdir: created directory '{}'", Quoted(path));
                progress(&session.global, line)?;
            }
            // The path that was given, and not a parent at which it failed.
            Ok(made.map_err(|failed| failed.error)?)
        })
    }
}

/// Creates a directory with these permissions, and its missing parents with those of a new
/// directory, unless it exists.
fn create_with_parents(filesystem: &Filesystem, path: &[u8], mode: u32) -> PathResult<()> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let parent = path[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    if parent > 0 {
        filesystem.create_dir_all(&path[..parent], PARENT_MODE)?;
    }
    match filesystem.open_dir(path) {
        Err(PathError { error: Error::NotFound, .. }) => {
            filesystem.create_dir(path, mode).map(drop)
        }
        found => found.map(drop),
    }
}

impl MkdirArgs {
    /// Returns the directories to be made for a path, parents first.
    fn missing<'a>(&self, filesystem: &Filesystem, path: &'a [u8]) -> Vec<&'a [u8]> {
        let is_end = |at: &usize| *at > 0 && path[*at] == b'/' && path[*at - 1] != b'/';
        let parents = (0..path.len()).filter(is_end).filter(|_| self.parents).map(|at| &path[..at]);
        let whole = (!self.parents || !path.ends_with(b"/")).then_some(path);
        parents.chain(whole).filter(|path| is_missing(&filesystem.open_dir(path))).collect()
    }
}
