//! `rm`: removes files, and directories with what is in them.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::{Error, Filesystem};

use super::paths::each;
use super::verb::{Act, Session};

#[derive(clap::Args)]
pub(crate) struct RmArgs {
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Remove directories too, with what is in them
    #[arg(short, long)]
    recursive: bool,
    /// Say nothing of what is not there
    #[arg(short, long)]
    force: bool,
}

impl Act for RmArgs {
    fn act(&self, session: &Session) -> Result<ExitCode> {
        each(&self.paths, |path| match self.remove(&session.filesystem, path) {
            Err(Error::NotFound) if self.force => Ok(()),
            other => Ok(other?),
        })
    }
}

impl RmArgs {
    fn remove(&self, filesystem: &Filesystem, path: &[u8]) -> Result<(), Error> {
        match self.recursive && filesystem.symlink_metadata(path)?.is_dir() {
            true => filesystem.remove_dir_all(path),
            false => filesystem.remove_file(path),
        }
    }
}
