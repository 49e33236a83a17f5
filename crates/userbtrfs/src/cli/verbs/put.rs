//! `put`: trees into the image.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::copy::import::{ImportOptions, Keep};

use crate::cli::verb::{RunVerb, Session};
use crate::cli::verbs::chown::Owner;
use crate::cli::verbs::copy_target::{Place, Target, copy};

#[derive(clap::Args)]
pub(crate) struct PutArgs {
    /// What to copy, then where to in the image: into a directory that is there, or to a new name
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    paths: Vec<OsString>,
    /// The owner and group of all that is copied, by number: UID, UID:GID or :GID
    #[arg(long)]
    owner: Option<Owner>,
    /// Make each file durable when it is complete; otherwise one commit at the end does that
    #[arg(long)]
    fsync: bool,
}

impl RunVerb for PutArgs {
    fn act(&self, session: &Session) -> Result<ExitCode> {
        let (destination, sources) = self.paths.split_last().context("no destination")?;
        let target = Target::new(&session.filesystem, destination, sources.len())?;
        copy("put", &session.global, self.options(), |inserter, report| {
            for source in sources {
                let is_dir = Path::new(source).symlink_metadata().is_ok_and(|it| it.is_dir());
                match target.of(source, is_dir)? {
                    Place::Named(dir, name) => {
                        inserter.insert(Path::new(source), &dir, &name, report);
                    }
                    Place::Inside(dir) => {
                        inserter.insert_content(Path::new(source), &dir, report);
                    }
                }
            }
            Ok(())
        })
    }
}

impl PutArgs {
    fn options(&self) -> ImportOptions {
        let (uid, gid) = self.owner.map_or((None, None), |owner| (owner.uid, owner.gid));
        ImportOptions { uid, gid, keep: Keep::Everything, fsync: self.fsync }
    }
}
