//! `ln`: makes hard links and symbolic links.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use userbtrfs::{Error, Filesystem, PathError, PathResult, Quoted};

use crate::cli::paths::{Destination, Placed, with_path};
use crate::cli::report::{ExitStatus, progress};
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;
use crate::cli::verbs::destination::DestinationArgs;

#[derive(clap::Args)]
pub(crate) struct LnArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// Make symbolic links; targets are stored as given
    #[arg(short, long)]
    symbolic: bool,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Treat DEST as a normal file name if it is a symbolic link
    #[arg(short, long)]
    no_dereference: bool,
}

impl RunVerb for LnArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let paths = self.destination.paths(filesystem)?;
        let is_link = |path: &OsString| {
            let found = filesystem.symlink_metadata(path.as_encoded_bytes());
            found.is_ok_and(|found| found.is_symlink())
        };
        let plain = self.destination.no_target_directory
            || (self.no_dereference && paths.last().is_some_and(is_link));
        let (targets, destination) = Destination::split(filesystem, &paths, plain)?;
        let failures = ExitStatus::default();
        let mut placed = Placed::default();
        for target in targets {
            let to = target.as_encoded_bytes();
            let mut link = || -> Result<()> {
                let path = destination.of(to).with_context(|| shown(target))?;
                if self.force
                    && let Err(error) = placed.check_free(filesystem, to, &path)
                {
                    failures.report(&error);
                    return Ok(());
                }
                self.link(filesystem, to, &path)?;
                placed.record(to, path.clone());
                let arrow = if self.symbolic { "->" } else { "=>" };
                progress(&session.global, || {
                    format!("'{}' {arrow} '{}'", Quoted(&path), Quoted(to))
                })
            };
            failures.continue_after(link())?;
        }
        Ok(failures.code())
    }
}

impl LnArgs {
    fn link(&self, filesystem: &Filesystem, to: &[u8], path: &[u8]) -> Result<()> {
        let made = match self.make(filesystem, to, path) {
            Err(PathError { error: Error::Exists, .. }) if self.force => {
                self.check_replaced(filesystem, to, path)?;
                self.replace(filesystem, to, path)
            }
            made => made,
        };
        let made = made.map_err(|failed| failed.error);
        if self.symbolic {
            made.with_context(|| Quoted(path).to_string())
        } else {
            made.map_err(|error| with_path(filesystem, to, path, error))
        }
    }

    fn make(&self, filesystem: &Filesystem, to: &[u8], path: &[u8]) -> PathResult<()> {
        if self.symbolic { filesystem.symlink(to, path) } else { filesystem.hard_link(to, path) }
    }

    /// Makes a link that takes the place of a file: it is made with another name first, so that the
    /// file stays if it cannot be made.
    fn replace(&self, filesystem: &Filesystem, to: &[u8], path: &[u8]) -> PathResult<()> {
        let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let mut number = 0_u64;
        let other = loop {
            let other = [&path[..end], format!(".ln.{number}").as_bytes()].concat();
            match self.make(filesystem, to, &other) {
                Err(PathError { error: Error::Exists, .. }) => number += 1,
                made => break made.map(|()| other)?,
            }
        };
        filesystem.rename(&other, path).inspect_err(|_| {
            // The first error is the one to report.
            let _ = filesystem.remove_file(&other);
        })
    }

    /// Checks that a link may replace a file.
    fn check_replaced(&self, filesystem: &Filesystem, to: &[u8], path: &[u8]) -> Result<()> {
        let there = filesystem.lookup_no_follow(path)?;
        let is_same = if self.symbolic {
            // Another name of the file stays if this one is replaced.
            let leads_there = filesystem.lookup(to).is_ok_and(|found| found.id() == there.id());
            leads_there && (there.metadata()?.nlink == 1 || is_same_name(filesystem, to, path))
        } else {
            let source = filesystem.lookup_no_follow(to).with_context(|| Quoted(to).to_string())?;
            source.id() == there.id()
        };
        if is_same {
            bail!("'{}' and '{}' are the same file", Quoted(to), Quoted(path));
        }
        if there.metadata()?.is_dir() {
            bail!("{}: cannot overwrite directory", Quoted(path));
        }
        Ok(())
    }
}

/// Returns true if two paths are the same name in the same directory.
fn is_same_name(filesystem: &Filesystem, one: &[u8], other: &[u8]) -> bool {
    let find = |path: &[u8]| {
        let (dir, name) = filesystem.open_parent_of_file(path)?;
        PathResult::Ok((dir.inode().id(), name))
    };
    matches!((find(one), find(other)), (Ok(one), Ok(other)) if one == other)
}
