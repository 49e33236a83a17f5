//! The options `-t` and `-T` of verbs whose last path is the destination.

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail, ensure};
use userbtrfs::Filesystem;

use crate::cli::session::Session;
use crate::cli::text::shown;

/// The paths of a verb with a destination.
#[derive(clap::Args)]
pub(crate) struct DestinationArgs {
    /// Sources, then a directory or a new name
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Take all paths as sources, and DIR as the destination
    #[arg(short = 't', long, value_name = "DIR", conflicts_with = "no_target_directory")]
    target_directory: Option<OsString>,
    /// Treat DEST as a normal file name
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
}

impl DestinationArgs {
    /// Returns the sources, and the destination as the last path.
    pub(crate) fn paths(&self, filesystem: &Filesystem) -> Result<Vec<OsString>> {
        if let Some(dir) = &self.target_directory {
            let named = || format!("target directory '{}'", shown(dir));
            let found = filesystem.metadata(dir.as_encoded_bytes());
            let found = found.map_err(|failed| failed.error).with_context(named)?;
            ensure!(found.is_dir(), "{}: not a directory", named());
            return Ok([&self.paths[..], std::slice::from_ref(dir)].concat());
        }
        match &self.paths[..] {
            [] => bail!("missing file operand"),
            [only] => bail!("missing destination file operand after '{}'", shown(only)),
            [_, _, third, ..] if self.no_target_directory => {
                bail!("extra operand '{}'", shown(third))
            }
            paths => Ok(paths.to_vec()),
        }
    }

    /// Like [`Self::paths`], with the sources that match patterns.
    pub(crate) fn expanded_paths(&self, session: &Session) -> Result<Vec<OsString>> {
        let mut paths = self.paths(&session.filesystem)?;
        let destination = paths.pop().context("no destination")?;
        let mut paths = session.expand(&paths);
        paths.push(destination);
        Ok(paths)
    }
}
