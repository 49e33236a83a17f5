//! `put`: trees into the image.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use userbtrfs::insert::{InsertError, InsertOptions, Inserter, Progress};
use userbtrfs::{Dir, Filesystem};

use super::chown::Owner;
use super::complain;
use super::ls::shown;
use super::paths::last_name;
use super::verb::{Act, Session};
use super::watch::{finish, raise_open_files, while_watched};

#[derive(clap::Args)]
pub(crate) struct PutArgs {
    /// What to copy, then where to in the image: into a directory that is there, or to a new name
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    paths: Vec<OsString>,
    /// The owner and group of all that is copied, by number: UID, UID:GID or :GID
    #[arg(long)]
    owner: Option<Owner>,
}

/// Where a source goes.
enum Place {
    Named(Dir, Vec<u8>),
    /// The directory itself is filled.
    Inside(Dir),
}

impl Act for PutArgs {
    fn act(&self, session: &Session) -> Result<ExitCode> {
        let (global, filesystem) = (&session.global, &session.filesystem);
        let (destination, sources) = self.paths.split_last().context("no destination")?;
        let into = directory(filesystem, destination)?;
        if sources.len() > 1 && into.is_none() {
            bail!("{}: not a directory", shown(destination));
        }
        raise_open_files();
        let (progress, started) = (Progress::default(), Instant::now());
        let inserter = Inserter::new(self.options(), &progress);
        let report = |error: InsertError| {
            let minor = matches!(error, InsertError::NotKept { .. });
            if !minor || global.verbose > 0 {
                complain(&format!("put: {error}"));
            }
        };
        while_watched(global, &progress, || {
            for source in sources {
                let (path, into) = (Path::new(source), into.clone());
                match place(filesystem, source, destination, into)? {
                    Place::Named(dir, name) => inserter.insert(path, &dir, &name, &report),
                    Place::Inside(dir) => inserter.insert_content(path, &dir, &report),
                }
            }
            Ok(())
        })?;
        finish("put", global, &progress, started)
    }
}

impl PutArgs {
    fn options(&self) -> InsertOptions {
        let (uid, gid) = self.owner.map_or((None, None), |owner| (owner.uid, owner.gid));
        InsertOptions { uid, gid }
    }
}

/// The directory that a path leads to, if it leads to one.
fn directory(filesystem: &Filesystem, path: &OsStr) -> Result<Option<Dir>> {
    match filesystem.open_dir(path.as_encoded_bytes()) {
        Ok(dir) => Ok(Some(dir)),
        Err(userbtrfs::Error::NotFound | userbtrfs::Error::NotADirectory) => Ok(None),
        Err(error) => Err(error).with_context(|| shown(path)),
    }
}

/// A source without a name to keep fills the destination, as with `cp -a SRC/. DEST`.
fn place(
    filesystem: &Filesystem,
    source: &OsStr,
    destination: &OsStr,
    into: Option<Dir>,
) -> Result<Place> {
    match (into, kept_name(source)) {
        (Some(dir), Some(name)) => Ok(Place::Named(dir, name.to_vec())),
        (Some(dir), None) => Ok(Place::Inside(dir)),
        (None, _) => {
            let parent = filesystem.open_parent(destination.as_encoded_bytes());
            let (dir, name) = parent.with_context(|| shown(destination))?;
            Ok(Place::Named(dir, name))
        }
    }
}

fn kept_name(source: &OsStr) -> Option<&[u8]> {
    last_name(source.as_encoded_bytes())
}
