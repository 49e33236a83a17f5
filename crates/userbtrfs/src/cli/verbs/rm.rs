//! `rm`: removes files, and directories with their content. A file that cannot be removed is
//! reported and stays, with the directories that contain it; the removal of the others continues.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::{Error, Filesystem, Quoted, join_path};

use crate::cli::report::ExitStatus;
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;

const EROFS: i32 = 30;

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

impl RunVerb for RmArgs {
    fn act(&self, session: &Session) -> Result<ExitCode> {
        let failures = ExitStatus::default();
        for path in &self.paths {
            let bytes = path.as_encoded_bytes();
            match self.remove(&session.filesystem, bytes, &failures) {
                Err(Error::NotFound) if self.force => {}
                Err(error) => failures.say(&anyhow::Error::from(error).context(shown(path))),
                Ok(()) => {}
            }
        }
        Ok(failures.code())
    }
}

impl RmArgs {
    fn remove(
        &self,
        filesystem: &Filesystem,
        path: &[u8],
        failures: &ExitStatus,
    ) -> Result<(), Error> {
        if !self.recursive || !filesystem.symlink_metadata(path)?.is_dir() {
            return filesystem.remove_file(path);
        }
        filesystem.remove_dir_all_with(path, |below, error| {
            // After this error nothing can be removed.
            if error.errno() == EROFS {
                return Err(error);
            }
            let path = Quoted(&join_path(path, below)).to_string();
            failures.say(&anyhow::Error::from(error).context(path));
            Ok(())
        })
    }
}
