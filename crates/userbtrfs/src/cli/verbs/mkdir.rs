//! `mkdir`: makes directories.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::paths::each;
use crate::cli::session::{RunVerb, Session};
use crate::cli::verbs::chmod::octal;

#[derive(clap::Args)]
pub(crate) struct MkdirArgs {
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Make what is missing on the way too; what is there is no error
    #[arg(short, long)]
    parents: bool,
    /// The permissions, in octal
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = octal)]
    mode: u32,
}

impl RunVerb for MkdirArgs {
    fn act(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        each(&self.paths, |path| {
            match self.parents {
                true => filesystem.create_dir_all(path, self.mode)?,
                false => filesystem.create_dir(path, self.mode).map(drop)?,
            }
            Ok(())
        })
    }
}
