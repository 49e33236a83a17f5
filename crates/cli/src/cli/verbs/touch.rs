//! `touch`: sets the times of files; creates missing files.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use jiff::Zoned;
use userbtrfs::{Attributes, Error, Filesystem, Inode, PathError, Timestamp, now};

use crate::cli::dates;
use crate::cli::paths::{each, open_or_create};
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::{shown, zone};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[command(group = clap::ArgGroup::new("source"))]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of touch")]
pub(crate) struct TouchArgs {
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Change the time of access only
    #[arg(short)]
    access: bool,
    /// Change the time of modification only
    #[arg(short)]
    modification: bool,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Set this time, such as @SECONDS, "2024-05-06 07:08" or "2 days ago"
    #[arg(short, long, value_name = "TIME", group = "source", allow_hyphen_values = true)]
    date: Option<String>,
    /// Set this time
    #[arg(short = 't', value_name = "[[CC]YY]MMDDhhmm[.ss]", group = "source")]
    stamp: Option<String>,
    /// Set the times of this file in the image
    #[arg(short, long, value_name = "PATH", group = "source")]
    reference: Option<OsString>,
    /// Change symbolic links, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The times that are set.
#[derive(Clone, Copy)]
struct Times {
    accessed: Timestamp,
    modified: Timestamp,
}

impl RunVerb for TouchArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let times = self.times(filesystem)?;
        let attributes = Attributes {
            accessed: (self.access || !self.modification).then_some(times.accessed),
            modified: (self.modification || !self.access).then_some(times.modified),
            ..Attributes::default()
        };
        each(&self.paths, |path| match self.find(filesystem, path)? {
            Some(inode) => Ok(inode.set_attributes(&attributes)?),
            None => Ok(()),
        })
    }
}

impl TouchArgs {
    fn times(&self, filesystem: &Filesystem) -> Result<Times> {
        let both = |time| Times { accessed: time, modified: time };
        if let Some(path) = &self.reference {
            let bytes = path.as_encoded_bytes();
            let found = if self.no_dereference {
                filesystem.symlink_metadata(bytes)
            } else {
                filesystem.metadata(bytes)
            };
            let found = found.with_context(|| shown(path))?;
            return Ok(Times { accessed: found.accessed, modified: found.modified });
        }
        let local = Zoned::now().with_time_zone(zone());
        let invalid = |text: &str| format!("invalid date format '{text}'");
        let time = match (&self.date, &self.stamp) {
            (Some(text), _) => dates::date(text, &local).with_context(|| invalid(text))?,
            (None, Some(text)) => dates::stamp(text, &local).with_context(|| invalid(text))?,
            (None, None) => return Ok(both(now())),
        };
        Ok(both(timestamp(time)))
    }

    /// Returns the inode at a path; `None` if it does not exist and none is created.
    fn find(&self, filesystem: &Filesystem, path: &[u8]) -> Result<Option<Inode>, Error> {
        let found = if self.no_dereference {
            filesystem.lookup_no_follow(path)
        } else {
            filesystem.lookup(path)
        };
        match found {
            Err(PathError { error: Error::NotFound, .. }) if self.no_create => Ok(None),
            Err(PathError { error: Error::NotFound, .. }) if !self.no_dereference => {
                open_or_create(filesystem, path).map(Some)
            }
            found => Ok(Some(found?)),
        }
    }
}

/// Returns a time as inodes have it: nanoseconds count forward, also before 1970.
fn timestamp(time: jiff::Timestamp) -> Timestamp {
    let nanoseconds = time.as_nanosecond();
    let sec = i64::try_from(nanoseconds.div_euclid(1_000_000_000));
    let nsec = u32::try_from(nanoseconds.rem_euclid(1_000_000_000));
    Timestamp {
        sec: sec.expect("the range of dates is smaller"),
        nsec: nsec.expect("a remainder is smaller than its divisor"),
    }
}
