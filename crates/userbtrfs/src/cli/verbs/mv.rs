//! `mv`: renames files.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::RenameMode;

use crate::cli::paths::Destination;
use crate::cli::report::ExitStatus;
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;

#[derive(clap::Args)]
pub(crate) struct MvArgs {
    /// Paths inside the image, then where they go: into a directory that is there, or to a new
    /// name
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    paths: Vec<OsString>,
    /// Replace nothing
    #[arg(short, long, conflicts_with = "exchange")]
    no_clobber: bool,
    /// Let both change places
    #[arg(long)]
    exchange: bool,
    /// Take DEST as the name itself, also where it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

impl RunVerb for MvArgs {
    fn act(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let plain = self.no_target_directory || self.exchange;
        let (sources, destination) = Destination::split(filesystem, &self.paths, plain)?;
        let failures = ExitStatus::default();
        for source in sources {
            let path = source.as_encoded_bytes();
            let move_it = || -> Result<()> {
                let target = destination.of(path)?;
                Ok(filesystem.rename_with(path, &target, self.mode())?)
            };
            failures.note(move_it().with_context(|| shown(source)))?;
        }
        Ok(failures.code())
    }
}

impl MvArgs {
    fn mode(&self) -> RenameMode {
        match (self.exchange, self.no_clobber) {
            (true, _) => RenameMode::Exchange,
            (false, true) => RenameMode::NoReplace,
            (false, false) => RenameMode::Replace,
        }
    }
}
