//! `rm`: removes files, and directories with their content. A file that cannot be removed is
//! reported and stays, with the directories that contain it; the removal of the others continues.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, anyhow};
use userbtrfs::{Error, FileKind, Filesystem, Quoted, join_path};

use crate::cli::host::meter::{Amount, Total, Watched, watch};
use crate::cli::host::totals::of_removed_tree;
use crate::cli::paths::is_missing;
use crate::cli::report::{ExitStatus, is_verbose, progress};
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;

const EROFS: i32 = 30;

const ONE: Amount = Amount { files: Some(1), bytes: None };

#[derive(clap::Args)]
pub(crate) struct RmArgs {
    /// Paths inside the image, which may have the wildcards *, ? and [
    #[arg(required_unless_present = "force")]
    paths: Vec<OsString>,
    /// Remove directories and their contents recursively
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// Ignore nonexistent files
    #[arg(short, long)]
    force: bool,
}

impl RunVerb for RmArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let failures = ExitStatus::default();
        for path in &session.expand(&self.paths) {
            let bytes = path.as_encoded_bytes();
            if (self.recursive || self.dir) && ends_with_dots(bytes) {
                let dots = "refusing to remove '.' or '..' directory";
                failures.report(&anyhow!("{dots}: skipping '{}'", shown(path)));
                continue;
            }
            let listed = if is_verbose(&session.global) {
                self.list(&session.filesystem, bytes)
            } else {
                Vec::new()
            };
            let removed = self.remove_watched(session, bytes, &failures);
            for (path, is_dir) in listed.iter().rev() {
                if is_missing(&session.filesystem.lookup_no_follow(path)) {
                    progress(&session.global, || describe(path, *is_dir))?;
                }
            }
            match removed {
                Err(error) if self.force && is_absent(error.reason()) => {}
                Err(error) => failures.report(&anyhow::Error::from(error).context(shown(path))),
                Ok(()) => {}
            }
        }
        Ok(failures.code())
    }
}

/// Returns true if the last name of a path is `.` or `..`.
fn ends_with_dots(path: &[u8]) -> bool {
    let last = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
    last.is_some_and(|name| name == b"." || name == b"..")
}

/// Returns true if there is nothing to be removed.
fn is_absent(error: &Error) -> bool {
    matches!(error, Error::NotFound | Error::NotADirectory)
}

/// Returns the line of `--verbose`, as rm(1) prints it.
fn describe(path: &[u8], is_dir: bool) -> String {
    format!("removed {}'{}'", if is_dir { "directory " } else { "" }, Quoted(path))
}

impl RmArgs {
    /// Returns the paths to be removed, parents first, and whether each is a directory. Errors are
    /// left to the removal.
    fn list(&self, filesystem: &Filesystem, path: &[u8]) -> Vec<(Vec<u8>, bool)> {
        let Ok(inode) = filesystem.lookup_no_follow(path) else { return Vec::new() };
        let below = inode.walk(path).filter_map(Result::ok);
        let depth = if self.recursive { usize::MAX } else { 1 };
        let entries =
            below.take(depth).map(|entry| (entry.path, entry.kind == FileKind::Directory));
        entries.collect()
    }

    /// Removes a path, and shows the progress.
    fn remove_watched(
        &self,
        session: &Session,
        path: &[u8],
        failures: &ExitStatus,
    ) -> Result<(), Error> {
        let filesystem = &session.filesystem;
        let removed = AtomicU64::new(0);
        let done = || Amount { files: Some(removed.load(Ordering::Relaxed)), bytes: None };
        let total = |stop: &AtomicBool| {
            let top = filesystem.lookup_no_follow(path).ok()?;
            of_removed_tree(&top, &removed, stop)
        };
        let total = if self.recursive { Total::Measured(&total) } else { Total::Known(ONE) };
        let watched = Watched { name: "removing", done: &done, total };
        watch(&session.global, &watched, || self.remove(filesystem, path, &removed, failures))
    }

    fn remove(
        &self,
        filesystem: &Filesystem,
        path: &[u8],
        removed: &AtomicU64,
        failures: &ExitStatus,
    ) -> Result<(), Error> {
        if !self.recursive || !filesystem.symlink_metadata(path)?.is_dir() {
            if self.dir && filesystem.symlink_metadata(path)?.is_dir() {
                filesystem.remove_dir(path)?;
            } else if ends_with_dots(path) {
                return Err(Error::IsADirectory);
            } else {
                filesystem.remove_file(path)?;
            }
            removed.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let removed = filesystem.remove_dir_all_counted(path, removed, |below, error| {
            // After this error nothing can be removed; that of a read-only subvolume is its own.
            if error.errno() == EROFS && !filesystem.is_writable() {
                return Err(error);
            }
            let path = Quoted(&join_path(path, below)).to_string();
            failures.report(&anyhow::Error::from(error).context(path));
            Ok(())
        });
        Ok(removed?)
    }
}
