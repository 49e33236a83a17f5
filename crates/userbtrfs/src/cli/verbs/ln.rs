//! `ln`: makes hard links and symbolic links.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::Quoted;

use crate::cli::paths::{Destination, with_path};
use crate::cli::report::ExitStatus;
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;

#[derive(clap::Args)]
pub(crate) struct LnArgs {
    /// Targets, then a directory or a new name
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Make symbolic links; targets are stored as given
    #[arg(short, long)]
    symbolic: bool,
}

impl RunVerb for LnArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let (targets, destination) = Destination::split(filesystem, &self.paths, false)?;
        let failures = ExitStatus::default();
        for target in targets {
            let to = target.as_encoded_bytes();
            let link = || -> Result<()> {
                let path = destination.of(to).with_context(|| shown(target))?;
                if self.symbolic {
                    let made = filesystem.symlink(to, &path).map(drop);
                    made.with_context(|| Quoted(&path).to_string())
                } else {
                    let linked = filesystem.hard_link(to, &path).map(drop);
                    linked.map_err(|error| with_path(filesystem, to, &path, error))
                }
            };
            failures.continue_after(link())?;
        }
        Ok(failures.code())
    }
}
