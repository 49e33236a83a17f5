//! `truncate`: gives files another size.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::{Attributes, Error, Filesystem, Inode};

use super::args::size;
use super::paths::each;
use super::verb::{Act, Session};

#[derive(clap::Args)]
pub(crate) struct TruncateArgs {
    /// The size
    #[arg(short, long, value_name = "SIZE", value_parser = size)]
    size: u64,
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
}

impl Act for TruncateArgs {
    fn act(&self, session: &Session) -> Result<ExitCode> {
        let attributes = Attributes { size: Some(self.size), ..Attributes::default() };
        each(&self.paths, |path| match self.find(&session.filesystem, path)? {
            Some(inode) => Ok(inode.set_attributes(&attributes)?),
            None => Ok(()),
        })
    }
}

impl TruncateArgs {
    fn find(&self, filesystem: &Filesystem, path: &[u8]) -> Result<Option<Inode>, Error> {
        match filesystem.lookup(path) {
            Err(Error::NotFound) if self.no_create => Ok(None),
            Err(Error::NotFound) => {
                let (dir, name) = filesystem.open_parent(path)?;
                dir.create(&name, 0o644).map(Some)
            }
            found => found.map(Some),
        }
    }
}
