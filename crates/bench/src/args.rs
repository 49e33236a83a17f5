//! The command line.

mod common;
mod compress;
mod instructions;
mod load;

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

pub use self::common::Common;
pub use self::compress::{CompressArgs, Data, Method, Part};
pub use self::instructions::{InstructionsArgs, Operation};
pub use self::load::{LoadArgs, Medium, Program, Seed, SeedsArgs};
pub use crate::target::Target;

/// Measures userbtrfs against Linux's own tools, on one image and one disk. Needs root.
#[derive(Parser)]
#[command(name = "userbtrfs-bench", version)]
pub struct Args {
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    pub format: Format,
    /// The benchmark to run
    #[command(subcommand)]
    pub verb: Verb,
}

/// How to print the report.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Markdown
    Text,
    /// JSON, for programs
    Json,
}

/// The benchmarks.
#[derive(Subcommand)]
pub enum Verb {
    /// Copying a whole tree out
    Extract(ExtractArgs),
    /// Listing every name of a filesystem with very many files
    List(ListArgs),
    /// Reading one large file: sequentially, and 4 KiB at random offsets
    ///
    /// Random reads are measured with empty caches, one at a time and with 32 in flight (by 32
    /// threads on both sides); and one at a time from each side's own cache (--cached): copied to
    /// a buffer, and lent, which means that all bytes are looked at, with as few copies as
    /// possible.
    Read(ReadArgs),
    /// Creating, renaming and removing empty files, and committing that
    Meta(MetaArgs),
    /// Copying a tree of small files into a new filesystem
    Put(PutArgs),
    /// Copying a real tree into a new filesystem
    Build(BuildArgs),
    /// Writing one large file: sequentially, and 4 KiB at random offsets; and reading it back
    ///
    /// Each target reads its file back between the two, with an empty page cache. The library
    /// keeps the filesystem open; `peak MiB` shows whether it stays within its memory limit.
    Write(WriteArgs),
    /// Making small changes durable: 64 KiB appends to a file, each with an fsync, by one job and
    /// by many; and the fsync of a directory
    Fsync(FsyncArgs),
    /// Snapshots of a subvolume, the clone of a large file, and the deletion of a snapshot and of
    /// its source, until they are cleaned
    Share(ShareArgs),
    /// Writing and reading compressed data; and copying a real tree into a compressed filesystem
    Compress(CompressArgs),
    /// Clients of a file server (dbench), on a mount
    Dbench(DbenchArgs),
    /// Creating empty files by many threads (fs_mark), on a mount
    Fsmark(FsmarkArgs),
    /// Writing one file per job, with an fsync after each write (fio), on a mount
    Fio(FioArgs),
    /// All of the above
    All(Common),
    /// The load of dbench, fio or fs_mark, in this process: on an image, or on a directory
    ///
    /// Prints dbench's table. Nothing is formatted, mounted or removed.
    Load(LoadArgs),
    /// Five published changes of the kernel: their loads, with the former behaviour and without,
    /// through a mount, and on the kernel's btrfs
    ///
    /// Writes a report with plots into a folder, and prints its text.
    Seeds(SeedsArgs),
    /// Instructions of single operations (create, lookup, rename, ...), counted by valgrind
    ///
    /// The library runs in one process, on a device in memory. Needs no root.
    Instructions(InstructionsArgs),
}

impl Verb {
    /// Returns the options common to all verbs that measure targets.
    pub fn common(&self) -> Option<&Common> {
        match self {
            Self::Load(_) | Self::Seeds(_) | Self::Instructions(_) => None,
            Self::Extract(ExtractArgs { common, .. })
            | Self::List(ListArgs { common, .. })
            | Self::Read(ReadArgs { common, .. })
            | Self::Meta(MetaArgs { common, .. })
            | Self::Put(PutArgs { common, .. })
            | Self::Build(BuildArgs { common, .. })
            | Self::Write(WriteArgs { common, .. })
            | Self::Fsync(FsyncArgs { common, .. })
            | Self::Share(ShareArgs { common, .. })
            | Self::Compress(CompressArgs { common, .. })
            | Self::Dbench(DbenchArgs { common, .. })
            | Self::Fsmark(FsmarkArgs { common, .. })
            | Self::Fio(FioArgs { common, .. })
            | Self::All(common) => Some(common),
        }
    }
}

/// The tree that is copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tree {
    /// 25,000 files with sizes as in a source tree, about 450 MB
    Small,
    /// 4 GiB in 8 files
    Large,
}

/// The kernel's compression of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    /// No compression
    None,
    /// zlib
    Zlib,
    /// lzo
    Lzo,
    /// zstd
    Zstd,
}

impl Compression {
    /// Returns the name, as in the mount option.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }
}

/// The options of `extract`.
#[derive(Clone, clap::Args)]
pub struct ExtractArgs {
    /// The trees to copy
    #[arg(long, value_enum, value_delimiter = ',', default_value = "small")]
    pub workload: Vec<Tree>,
    /// Their compression (default: `none` for small files, `zstd` for large ones)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "HOW")]
    pub compression: Vec<Compression>,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

impl ExtractArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        let workload = vec![Tree::Small, Tree::Large];
        Self { workload, compression: Vec::new(), common: common.clone() }
    }

    /// Returns the compressions to measure for a tree.
    pub(crate) fn compressions(&self, tree: Tree) -> Vec<Compression> {
        match (self.compression.as_slice(), tree) {
            ([], Tree::Small) => vec![Compression::None],
            ([], Tree::Large) => vec![Compression::Zstd],
            (chosen, _) => chosen.to_vec(),
        }
    }
}

/// The options of `list`.
#[derive(Clone, clap::Args)]
pub struct ListArgs {
    /// The number of files
    #[arg(long, value_name = "N", default_value_t = FILES)]
    pub files: u64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The number of files that are listed.
const FILES: u64 = 1_000_000;

impl ListArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        Self { files: FILES, common: common.clone() }
    }
}

/// The options of `read`.
#[derive(Clone, clap::Args)]
pub struct ReadArgs {
    /// The compression of the file
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "none,zstd",
        value_name = "HOW"
    )]
    pub compression: Vec<Compression>,
    /// How much of the file is cached for cached reads, in MiB: the default is a size that fits
    /// into a CPU cache, and a larger one. The library's cache has 96 MiB
    #[arg(long, value_delimiter = ',', default_values_t = CACHED, value_name = "MIB")]
    pub cached: Vec<NonZeroU64>,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The cached part of the file, in MiB.
const CACHED: [NonZeroU64; 2] =
    [NonZeroU64::new(1).expect("not 0"), NonZeroU64::new(64).expect("not 0")];

impl ReadArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        let compression = vec![Compression::None, Compression::Zstd];
        Self { compression, cached: CACHED.to_vec(), common: common.clone() }
    }
}

/// The options of `meta`.
#[derive(Clone, clap::Args)]
pub struct MetaArgs {
    /// The numbers of files; the cost per file is compared with that of the lowest number
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000", value_name = "N")]
    pub files: Vec<NonZeroU64>,
    /// The numbers of threads that share the files
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_name = "N")]
    pub threads: Vec<NonZeroU64>,
    /// The number of directories that contain the files
    #[arg(long, default_value = "1", value_name = "N")]
    pub dirs: NonZeroU64,
    /// The library's memory limit, in MiB
    #[arg(long, default_value = "256", value_name = "MIB")]
    pub memory: NonZeroU64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

impl MetaArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        let number = |number| NonZeroU64::new(number).expect("not 0");
        Self {
            files: [10_000, 100_000, 1_000_000].map(number).to_vec(),
            threads: [1, 2].map(number).to_vec(),
            dirs: NonZeroU64::MIN,
            memory: number(256),
            common: common.clone(),
        }
    }
}

/// The options of `put`.
#[derive(Clone, clap::Args)]
pub struct PutArgs {
    /// The number of files
    #[arg(long, value_name = "N", default_value_t = PUT_FILES)]
    pub files: NonZeroU64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The number of files that are copied.
const PUT_FILES: NonZeroU64 = NonZeroU64::new(20_000).expect("not 0");

impl PutArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        Self { files: PUT_FILES, common: common.clone() }
    }
}

/// The options of `build`.
#[derive(Clone, clap::Args)]
pub struct BuildArgs {
    /// The tree to copy; it is only read
    #[arg(long, value_name = "DIR", default_value = BUILD_SOURCE)]
    pub source: PathBuf,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The default tree to copy.
const BUILD_SOURCE: &str = "/usr/share";

impl BuildArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        Self { source: BUILD_SOURCE.into(), common: common.clone() }
    }
}

/// The options of `write`.
#[derive(Clone, clap::Args)]
pub struct WriteArgs {
    /// The size of the file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = WRITTEN)]
    pub mebibytes: NonZeroU64,
    /// The number of 4 KiB blocks written at random offsets
    #[arg(long, value_name = "N", default_value_t = BLOCKS)]
    pub blocks: NonZeroU64,
    /// The library's memory limit, in MiB
    #[arg(long, default_value_t = MEMORY, value_name = "MIB")]
    pub memory: NonZeroU64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The size of the file in MiB, the number of random writes, and the memory limit in MiB.
const WRITTEN: NonZeroU64 = NonZeroU64::new(4096).expect("not 0");
const BLOCKS: NonZeroU64 = NonZeroU64::new(100_000).expect("not 0");
const MEMORY: NonZeroU64 = NonZeroU64::new(256).expect("not 0");

impl WriteArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        let mebibytes = WRITTEN;
        let blocks = BLOCKS;
        let memory = MEMORY;
        Self { mebibytes, blocks, memory, common: common.clone() }
    }
}

/// The options of `fsync`.
#[derive(Clone, clap::Args)]
pub struct FsyncArgs {
    /// The numbers of jobs, each with its own file
    #[arg(long, value_delimiter = ',', default_value = "1,16,128,1024", value_name = "N")]
    pub jobs: Vec<NonZeroU64>,
    /// The total number of fsyncs of all jobs; each job makes at least 16
    #[arg(long, default_value = "4096", value_name = "N")]
    pub syncs: NonZeroU64,
    /// The number of small appends for which the bytes written to the device are counted
    #[arg(long, default_value = "1000", value_name = "N")]
    pub appends: NonZeroU64,
    /// The number of files made in the directory
    #[arg(long, default_value = "100000", value_name = "N")]
    pub files: NonZeroU64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

impl FsyncArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        let number = |number| NonZeroU64::new(number).expect("not 0");
        Self {
            jobs: [1, 16, 128, 1024].map(number).to_vec(),
            syncs: number(4096),
            appends: number(1000),
            files: number(100_000),
            common: common.clone(),
        }
    }
}

/// The options of `share`.
#[derive(Clone, clap::Args)]
pub struct ShareArgs {
    /// The number of files of the subvolume of which snapshots are made
    #[arg(long, value_name = "N", default_value_t = SNAPSHOT_FILES)]
    pub files: NonZeroU64,
    /// The size of the file that is cloned, in MiB
    #[arg(long, value_name = "MIB", default_value_t = CLONED)]
    pub mebibytes: NonZeroU64,
    /// The number of files of the subvolume that is deleted
    #[arg(long, value_name = "N", default_value_t = DELETED)]
    pub deleted: NonZeroU64,
    /// The library's memory limit, in MiB
    #[arg(long, default_value_t = MEMORY, value_name = "MIB")]
    pub memory: NonZeroU64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The default numbers of files, and the size of the file that is cloned, in MiB.
const SNAPSHOT_FILES: NonZeroU64 = number(100_000);
const DELETED: NonZeroU64 = number(200_000);
const CLONED: NonZeroU64 = number(1024);

impl ShareArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        Self {
            files: SNAPSHOT_FILES,
            mebibytes: CLONED,
            deleted: DELETED,
            memory: MEMORY,
            common: common.clone(),
        }
    }
}

/// The options of `dbench`.
#[derive(Clone, clap::Args)]
pub struct DbenchArgs {
    /// The numbers of clients
    #[arg(long, value_delimiter = ',', default_values_t = CLIENTS, value_name = "N")]
    pub clients: Vec<NonZeroU64>,
    /// The duration of each run, in seconds
    #[arg(long, default_value_t = SECONDS, value_name = "N")]
    pub seconds: NonZeroU64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The default numbers of clients, and the duration in seconds.
const CLIENTS: [NonZeroU64; 4] = [number(1), number(16), number(64), number(200)];
const SECONDS: NonZeroU64 = number(60);

const fn number(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).expect("not 0")
}

impl DbenchArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        Self { clients: CLIENTS.to_vec(), seconds: SECONDS, common: common.clone() }
    }
}

/// The options of `fsmark`.
#[derive(Clone, clap::Args)]
pub struct FsmarkArgs {
    /// The numbers of threads, each with its own directory
    #[arg(long, value_delimiter = ',', default_values_t = MARKING, value_name = "N")]
    pub threads: Vec<NonZeroU64>,
    /// The number of files that each thread makes
    #[arg(long, default_value_t = MARKED, value_name = "N")]
    pub files: NonZeroU64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The default numbers of threads, and the number of files that each makes.
const MARKING: [NonZeroU64; 2] = [number(1), number(16)];
const MARKED: NonZeroU64 = number(20_000);

impl FsmarkArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        Self { threads: MARKING.to_vec(), files: MARKED, common: common.clone() }
    }
}

/// The options of `fio`.
#[derive(Clone, clap::Args)]
pub struct FioArgs {
    /// The numbers of jobs, each with its own file
    #[arg(long, value_delimiter = ',', default_values_t = JOBS, value_name = "N")]
    pub jobs: Vec<NonZeroU64>,
    /// The total size that all jobs write, in MiB
    #[arg(long, default_value_t = WRITTEN_BY_JOBS, value_name = "MIB")]
    pub mebibytes: NonZeroU64,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The default numbers of jobs, and the total size that they write, in MiB.
const JOBS: [NonZeroU64; 3] = [number(1), number(16), number(64)];
const WRITTEN_BY_JOBS: NonZeroU64 = number(256);

impl FioArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        Self { jobs: JOBS.to_vec(), mebibytes: WRITTEN_BY_JOBS, common: common.clone() }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn each_tree_has_a_compression_unless_told_otherwise() {
        let parse = |line: &str| match Args::parse_from(line.split(' ')).verb {
            Verb::Extract(args) => args,
            _ => panic!("another verb"),
        };
        let args = parse("bench extract --workload small,large");
        assert_eq!(args.workload, [Tree::Small, Tree::Large]);
        assert_eq!(args.compressions(Tree::Small), [Compression::None]);
        assert_eq!(args.compressions(Tree::Large), [Compression::Zstd]);
        let args = parse("bench extract --workload large --compression lzo,zlib");
        assert_eq!(args.compressions(Tree::Large), [Compression::Lzo, Compression::Zlib]);
    }
}
