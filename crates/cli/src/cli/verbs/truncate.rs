//! `truncate`: changes the size of files.

use std::ffi::OsString;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use userbtrfs::{Error, Filesystem, Inode, PathError};

use crate::cli::paths::{each, open_or_create};
use crate::cli::session::{RunVerb, Session};
use crate::cli::sizes::size;

#[derive(clap::Args)]
pub(crate) struct TruncateArgs {
    /// New size; +SIZE extend, -SIZE shrink, <SIZE at most, >SIZE at least, /SIZE round down, %SIZE
    /// round up
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    size: NewSize,
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
}

impl RunVerb for TruncateArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        each(&self.paths, |path| {
            let Some(inode) = self.find(&session.filesystem, path)? else { return Ok(()) };
            let file = inode.open()?;
            let size = self.size.of(file.len()).context("too large")?;
            Ok(file.set_len(size)?)
        })
    }
}

impl TruncateArgs {
    fn find(&self, filesystem: &Filesystem, path: &[u8]) -> Result<Option<Inode>, Error> {
        if self.no_create {
            match filesystem.lookup(path) {
                Err(PathError { error: Error::NotFound, .. }) => Ok(None),
                found => Ok(Some(found?)),
            }
        } else {
            open_or_create(filesystem, path).map(Some)
        }
    }
}

/// The size that a file gets, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewSize {
    Exactly(u64),
    Longer(u64),
    Shorter(u64),
    AtMost(u64),
    AtLeast(u64),
    /// To a multiple, which is not 0.
    RoundedDown(u64),
    RoundedUp(u64),
}

impl NewSize {
    /// Returns the new size; `None` if it overflows.
    fn of(self, old: u64) -> Option<u64> {
        match self {
            Self::Exactly(size) => Some(size),
            Self::Longer(by) => old.checked_add(by),
            Self::Shorter(by) => Some(old.saturating_sub(by)),
            Self::AtMost(size) => Some(old.min(size)),
            Self::AtLeast(size) => Some(old.max(size)),
            Self::RoundedDown(multiple) => Some(old - old % multiple),
            Self::RoundedUp(multiple) => old.checked_next_multiple_of(multiple),
        }
    }
}

impl FromStr for NewSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, digits) = match text.chars().next() {
            Some(sign @ ('+' | '-' | '<' | '>' | '/' | '%')) => (sign, &text[1..]),
            _ => ('=', text),
        };
        let size = size(digits)?;
        match kind {
            '/' | '%' if size == 0 => Err("division by zero".to_owned()),
            '+' => Ok(Self::Longer(size)),
            '-' => Ok(Self::Shorter(size)),
            '<' => Ok(Self::AtMost(size)),
            '>' => Ok(Self::AtLeast(size)),
            '/' => Ok(Self::RoundedDown(size)),
            '%' => Ok(Self::RoundedUp(size)),
            _ => Ok(Self::Exactly(size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_size_is_absolute_or_relative_to_old_size() {
        let new = |text: &str, old| text.parse::<NewSize>().unwrap().of(old);
        assert_eq!(new("4k", 1), Some(4096));
        assert_eq!((new("+1k", 1), new("+1", u64::MAX)), (Some(1025), None));
        assert_eq!((new("-1", 3), new("-4", 3)), (Some(2), Some(0)));
        assert_eq!((new("<2", 3), new("<4", 3)), (Some(2), Some(3)));
        assert_eq!((new(">2", 3), new(">4", 3)), (Some(3), Some(4)));
        assert_eq!((new("/4k", 5000), new("%4k", 5000)), (Some(4096), Some(8192)));
        assert_eq!(new("%4k", u64::MAX), None);
        for bad in ["", "+", "%0", "/0", "*2", "+-2", "1x"] {
            assert!(bad.parse::<NewSize>().is_err(), "{bad}");
        }
    }
}
