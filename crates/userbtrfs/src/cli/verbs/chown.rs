//! `chown`: changes owners and groups, given by number.

use std::ffi::OsString;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use userbtrfs::Attributes;

use crate::cli::paths::{Traversal, each_inode};
use crate::cli::session::{RunVerb, Session};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ChownArgs {
    /// Owner and group by number: UID, UID:GID or :GID
    #[arg(value_name = "OWNER")]
    owner: Owner,
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Change files and directories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl RunVerb for ChownArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let traversal = Traversal { recursive: self.recursive, follow: !self.no_dereference };
        let Owner { uid, gid } = self.owner;
        let attributes = Attributes { uid, gid, ..Attributes::default() };
        each_inode(&session.filesystem, &self.paths, traversal, |_, inode| {
            Ok(inode.set_attributes(&attributes)?)
        })
    }
}

/// An owner, a group, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
        let owner = Self { uid: id(uid)?, gid: id(gid)? };
        match owner {
            Self { uid: None, gid: None } => Err("missing owner and group".to_owned()),
            owner => Ok(owner),
        }
    }
}

fn id(text: &str) -> Result<Option<u32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    // The greatest number is -1, which means "no change" in chown(2).
    let number = text.parse().ok().filter(|number| *number != u32::MAX);
    number.map(Some).ok_or_else(|| format!("{text}: invalid user or group ID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_groups_are_numbers() {
        let owner = |text: &str| text.parse::<Owner>();
        assert_eq!(owner("1"), Ok(Owner { uid: Some(1), gid: None }));
        assert_eq!(owner("1:2"), Ok(Owner { uid: Some(1), gid: Some(2) }));
        assert_eq!(owner(":2"), Ok(Owner { uid: None, gid: Some(2) }));
        for bad in ["", ":", "root", "1:x", "-1", "4294967295"] {
            assert!(owner(bad).is_err(), "{bad}");
        }
    }
}
