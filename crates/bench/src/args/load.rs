//! The options of loads in this process, and of the seeds' experiments.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Serialize;

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
    /// The seconds between commits of an image
    #[arg(long, value_name = "N", default_value = "30")]
    pub commit_seconds: u64,
}

/// A seed: a published change of the kernel, with its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Seed {
    /// Logging while a transaction is committed
    S0,
    /// Renames and links without a log commit
    S1,
    /// Checksums logged without a lock
    S2,
    /// Logging without the delayed inode
    S3,
    /// Fair tree locks
    S4,
}

impl Seed {
    /// All seeds.
    pub const ALL: [Self; 5] = [Self::S0, Self::S1, Self::S2, Self::S3, Self::S4];

    /// Returns the name of its experiment.
    pub fn name(self) -> &'static str {
        match self {
            Self::S0 => "s0",
            Self::S1 => "s1",
            Self::S2 => "s2",
            Self::S3 => "s3",
            Self::S4 => "s4",
        }
    }
}

/// A device that the targets are put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A file on the disk.
    Disk,
    /// A file whose writes and flushes take these times, in microseconds.
    Slow {
        /// The time of a write.
        write: u32,
        /// The time of a flush.
        flush: u32,
    },
}

impl FromStr for Medium {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "disk" {
            return Ok(Self::Disk);
        }
        let wrong = || format!("`{text}` is neither `disk` nor WRITE:FLUSH in microseconds");
        let (write, flush) = text.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().map_err(|_| wrong());
        Ok(Self::Slow { write: number(write)?, flush: number(flush)? })
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk => f.write_str("disk"),
            Self::Slow { write, flush } => write!(f, "{write}:{flush}"),
        }
    }
}

/// The options of `seeds`.
#[derive(Clone, clap::Args)]
pub struct SeedsArgs {
    /// The seeds (default: all)
    #[arg(long = "seed", value_enum, value_delimiter = ',', value_name = "SEED")]
    pub seeds: Vec<Seed>,
    /// How often each target runs
    #[arg(long, value_name = "N", default_value = "3")]
    pub runs: NonZeroU32,
    /// The devices: `disk`, or WRITE:FLUSH for one whose writes and flushes take so many
    /// microseconds
    #[arg(
        long = "device",
        value_delimiter = ',',
        default_value = "disk,100:1000",
        value_name = "DEVICE"
    )]
    pub media: Vec<Medium>,
    /// The duration that dbench is measured for, in seconds
    #[arg(long, value_name = "N", default_value = "60")]
    pub seconds: NonZeroU64,
    /// The numbers of fio's jobs (default: 1 to 1024, or to 256 with less than 8 GiB of memory)
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub jobs: Vec<NonZeroU64>,
    /// The total size that fio's jobs write, in MiB; each job writes at least 16 blocks
    #[arg(long, value_name = "MIB", default_value = "256")]
    pub mebibytes: NonZeroU64,
    /// The number of files that each thread of fs_mark creates
    #[arg(long, value_name = "N", default_value = "20000")]
    pub files: NonZeroU64,
    /// The folder for the report, its plots and all figures
    #[arg(long, value_name = "DIR", default_value = "target/seeds")]
    pub out: PathBuf,
    /// The folder for images (default: a folder beside this program)
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Neither drop caches nor touch free memory before each run
    #[arg(long)]
    pub warm: bool,
}

impl SeedsArgs {
    /// Returns the seeds to measure.
    pub(crate) fn chosen(&self) -> &[Seed] {
        if self.seeds.is_empty() { &Seed::ALL } else { &self.seeds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_the_disk_or_has_two_latencies() {
        assert_eq!("disk".parse(), Ok(Medium::Disk));
        let slow = Medium::Slow { write: 20, flush: 500 };
        assert_eq!("20:500".parse(), Ok(slow));
        assert_eq!(slow.to_string(), "20:500");
        assert!("20".parse::<Medium>().is_err() && "20:x".parse::<Medium>().is_err());
    }
}
