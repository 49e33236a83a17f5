//! The options of loads in this process.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::ValueEnum;

/// The default loadfile: that of the Debian package.
const LOADFILE: &str = "/usr/share/dbench/client.txt";

/// A program whose load is run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// Clients of a file server
    Dbench,
    /// Files that are written 64 KiB at a time, with an fsync after each
    Fio,
    /// Empty files, created by many threads
    Fsmark,
}

/// The options of `load`.
#[derive(Clone, clap::Args)]
pub struct LoadArgs {
    /// The program
    #[arg(value_enum)]
    pub program: Program,
    /// The image to open with the library; it has a filesystem
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// The directory to use by system calls, in place of an image
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// The number of clients, jobs or threads
    #[arg(long, value_name = "N", default_value = "1")]
    pub clients: NonZeroU64,
    /// The loadfile of dbench
    #[arg(long, value_name = "FILE", default_value = LOADFILE)]
    pub loadfile: PathBuf,
    /// The duration that dbench is measured for, after a warm-up of a fifth of it
    #[arg(long, value_name = "N", default_value = "60")]
    pub seconds: NonZeroU64,
    /// Execute the loadfile N times instead
    #[arg(long, value_name = "N")]
    pub passes: Option<NonZeroU64>,
    /// The number of blocks that each job of fio writes, or of files that each thread creates
    #[arg(long, value_name = "N", default_value = "1000")]
    pub each: NonZeroU64,
    /// The former behaviour to switch on: s0, s1, s2, s3 or s4
    #[arg(long, value_name = "NAME")]
    pub experiment: Option<String>,
}
