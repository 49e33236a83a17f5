//! The parts of the work of a command line.

use std::ffi::OsString;

/// A part of the work of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Call {
    /// Run our command with these words.
    Ours(Vec<OsString>),
    /// Run the other `btrfs` with these arguments.
    Theirs(Vec<OsString>),
    /// Fail with this message.
    Refused(String),
}
