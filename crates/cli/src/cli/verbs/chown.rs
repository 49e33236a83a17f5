//! `chown`: changes owners and groups.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::Attributes;

use crate::cli::owners::{Names, Owner, OwnerArg};
use crate::cli::paths::{Traversal, each_inode};
use crate::cli::session::{RunVerb, Session};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ChownArgs {
    /// Owner and group, by name or number: USER, USER:GROUP, USER: or :GROUP
    #[arg(value_name = "OWNER")]
    owner: OwnerArg,
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Change files and directories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Look up names in /etc/passwd and /etc/group of the image [default: on this machine]
    #[arg(long)]
    names_from_image: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl RunVerb for ChownArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        // As in coreutils, `-R` changes links themselves, also those that are given.
        let follow = !self.no_dereference && !self.recursive;
        let traversal = Traversal { recursive: self.recursive, follow };
        let names = Names::new(&session.filesystem, self.names_from_image);
        let Owner { uid, gid } = self.owner.resolve(&names)?;
        let attributes = Attributes { uid, gid, ..Attributes::default() };
        let paths = session.expand(&self.paths);
        each_inode(&session.filesystem, &paths, traversal, |_, inode| {
            Ok(inode.set_attributes(&attributes)?)
        })
    }
}
