//! The options of `instructions`.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;

/// An operation whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// The creation of an empty file
    Create,
    /// The same, with its share of one commit
    CreateCommit,
    /// The lookup of a name that is cached, in a directory of 1000 files
    Lookup,
    /// A rename within a directory of 1000 files
    Rename,
    /// A write of 4 KiB at the end of a file, into the page cache
    #[value(name = "write-4k")]
    #[serde(rename = "write-4k")]
    Write,
    /// The same, with its share of one commit
    #[value(name = "write-4k-commit")]
    #[serde(rename = "write-4k-commit")]
    WriteCommit,
    /// An append of 4 KiB to a file, and an fsync
    #[value(name = "append-4k-fsync")]
    #[serde(rename = "append-4k-fsync")]
    AppendFsync,
    /// A snapshot of a subvolume of 100 files, which is durable when the call returns
    Snapshot,
    /// A clone of an extent of 128 KiB into another file
    Clone,
    /// The listing of a directory of 1000 files
    #[value(name = "readdir-1000")]
    #[serde(rename = "readdir-1000")]
    Readdir,
    /// A read of 4 KiB that are cached
    #[value(name = "read-4k")]
    #[serde(rename = "read-4k")]
    Read,
}

impl Operation {
    /// Returns the name, as in the option.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no operation is skipped");
        value.get_name().to_owned()
    }
}

/// The options of `instructions`.
#[derive(Clone, clap::Args)]
pub struct InstructionsArgs {
    /// The operations to count (default: all)
    #[arg(long = "operation", value_enum, value_delimiter = ',', value_name = "NAME")]
    pub operations: Vec<Operation>,
    /// Show each change of over 5 % from the counts in FILE
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Replace the counts of this build's profile in the table of FILE
    #[arg(long, value_name = "FILE")]
    pub update: Option<PathBuf>,
    /// Divide the numbers of iterations by N, for trials
    #[arg(long, value_name = "N", default_value = "1")]
    pub scale: NonZeroU64,
    /// Count nothing: only run N iterations of the one operation, as the process that is counted
    #[arg(long, value_name = "N", conflicts_with_all = ["compare", "update"])]
    pub iterations: Option<u64>,
}
