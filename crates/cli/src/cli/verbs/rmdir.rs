//! `rmdir`: removes empty directories.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::{Error, PathError, Quoted};

use crate::cli::report::{ExitStatus, progress};
use crate::cli::session::{RunVerb, Session};

#[derive(clap::Args)]
pub(crate) struct RmdirArgs {
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Remove the directories above too, as far as they are empty then
    #[arg(short, long)]
    parents: bool,
    /// Ignore directories that are not empty
    #[arg(long)]
    ignore_fail_on_non_empty: bool,
}

impl RunVerb for RmdirArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let failures = ExitStatus::default();
        for path in &self.paths {
            let mut next = Some(path.as_encoded_bytes());
            while let Some(path) = next {
                let removed = self.remove(session, path);
                next = if removed.is_ok() { above(path).filter(|_| self.parents) } else { None };
                failures.continue_after(removed.with_context(|| Quoted(path).to_string()))?;
            }
        }
        Ok(failures.code())
    }
}

impl RmdirArgs {
    fn remove(&self, session: &Session, path: &[u8]) -> Result<()> {
        match session.filesystem.remove_dir(path) {
            Err(PathError { error: Error::NotEmpty, .. }) if self.ignore_fail_on_non_empty => {
                Ok(())
            }
            removed => {
                removed?;
                progress(&session.global, || {
                    format!("rmdir: removing directory, '{}'", Quoted(path))
                })
            }
        }
    }
}

/// Returns the path of the directory above, if the path names one below the root.
fn above(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte != b'/')?;
    let slash = path[..end].iter().rposition(|byte| *byte == b'/')?;
    let dir = &path[..slash];
    dir.iter().any(|byte| *byte != b'/').then_some(dir)
}
