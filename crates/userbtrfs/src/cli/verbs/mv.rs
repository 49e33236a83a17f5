//! `mv`: renames files.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::{Quoted, RenameMode};

use crate::cli::paths::{Destination, with_path};
use crate::cli::report::{ExitStatus, progress};
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;

#[derive(clap::Args)]
pub(crate) struct MvArgs {
    /// Sources, then a directory or a new name
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Do not overwrite existing files
    #[arg(short, long, conflicts_with = "exchange")]
    no_clobber: bool,
    /// Exchange source and destination
    #[arg(long)]
    exchange: bool,
    /// Treat DEST as a normal file name
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

impl RunVerb for MvArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let plain = self.no_target_directory || self.exchange;
        let (sources, destination) = Destination::split(filesystem, &self.paths, plain)?;
        let failures = ExitStatus::default();
        for source in sources {
            let path = source.as_encoded_bytes();
            let move_it = || -> Result<()> {
                let target = destination.of(path).with_context(|| shown(source))?;
                let renamed = filesystem.rename_with(path, &target, self.mode());
                renamed.map_err(|error| with_path(filesystem, path, &target, error))?;
                progress(&session.global, || self.describe(path, &target))
            };
            failures.continue_after(move_it())?;
        }
        Ok(failures.code())
    }
}

impl MvArgs {
    /// Returns the line of `--verbose`, as mv(1) prints it.
    fn describe(&self, source: &[u8], target: &[u8]) -> String {
        let source = Quoted(source);
        let target = Quoted(target);
        if self.exchange {
            format!("exchanged '{source}' <-> '{target}'")
        } else {
            format!("renamed '{source}' -> '{target}'")
        }
    }

    fn mode(&self) -> RenameMode {
        match (self.exchange, self.no_clobber) {
            (true, _) => RenameMode::Exchange,
            (false, true) => RenameMode::NoReplace,
            (false, false) => RenameMode::Replace,
        }
    }
}
