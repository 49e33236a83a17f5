//! What can be said on the command line.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

pub use crate::target::Target;

/// Measures userbtrfs beside Linux's own ways, on one image and one disk. Needs root.
#[derive(Parser)]
#[command(name = "userbtrfs-bench", version)]
pub struct Args {
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    pub format: Format,
    /// What to measure
    #[command(subcommand)]
    pub verb: Verb,
}

/// How to print the report.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Markdown
    Text,
    /// For programs
    Json,
}

/// What to measure.
#[derive(Subcommand)]
pub enum Verb {
    /// Copying a whole tree out
    Extract(ExtractArgs),
    /// Listing every name of a filesystem with very many files
    List(ListArgs),
    /// Reading one large file: from start to end, and 4 KiB here and there
    ///
    /// Here and there means, with empty caches, one read at a time and 32 in flight, which are 32
    /// threads on both sides; and one at a time of what each side has in its own cache (--cached):
    /// copied out, and lent, which means looked at, all bytes of it, with as few copies as can be.
    Read(ReadArgs),
    /// Creating, renaming and removing empty files, and committing that
    Meta(MetaArgs),
    /// Copying a tree of small files into a new filesystem
    Put(PutArgs),
    /// Making a filesystem of a real tree
    Build(BuildArgs),
    /// Writing one large file: from start to end, and 4 KiB here and there; and reading it back
    ///
    /// It is read between both, with empty page cache, by who wrote it: the library keeps the
    /// filesystem open, and within its bound of memory, which `peak MiB` shows to be kept or not.
    Write(WriteArgs),
    /// Making small changes durable: 64 KiB more of a file and fsync, by one job and by many; and
    /// the fsync of a directory
    Fsync(FsyncArgs),
    /// Clients of a file server (dbench), on a mount
    Dbench(DbenchArgs),
    /// Empty files that many threads make (fs_mark), on a mount
    Fsmark(FsmarkArgs),
    /// Jobs that write a file each with an fsync after each write (fio), on a mount
    Fio(FioArgs),
    /// All of these
    All(Common),
}

impl Verb {
    /// What every verb takes.
    pub fn common(&self) -> &Common {
        match self {
            Self::Extract(ExtractArgs { common, .. })
            | Self::List(ListArgs { common, .. })
            | Self::Read(ReadArgs { common, .. })
            | Self::Meta(MetaArgs { common, .. })
            | Self::Put(PutArgs { common, .. })
            | Self::Build(BuildArgs { common, .. })
            | Self::Write(WriteArgs { common, .. })
            | Self::Fsync(FsyncArgs { common, .. })
            | Self::Dbench(DbenchArgs { common, .. })
            | Self::Fsmark(FsmarkArgs { common, .. })
            | Self::Fio(FioArgs { common, .. })
            | Self::All(common) => common,
        }
    }
}

/// What every verb takes.
#[derive(Clone, clap::Args)]
pub struct Common {
    /// How often each target has its turn
    #[arg(long, value_name = "N", default_value = "5")]
    pub runs: NonZeroU32,
    /// Who takes part; by default all that can
    #[arg(long = "target", value_enum, value_delimiter = ',', value_name = "TARGET")]
    pub targets: Vec<Target>,
    /// Where images and copies lie; by default a folder beside this program
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the images; one that is there already is always used again, and kept
    #[arg(long)]
    pub keep: bool,
    /// Neither drop caches nor touch free memory before each turn
    #[arg(long)]
    pub warm: bool,
    /// Compare times to durable copies, not to copies in the page cache
    #[arg(long)]
    pub sync: bool,
    /// Make everything so many times smaller, for trials
    #[arg(long, value_name = "N", default_value = "1")]
    pub scale: NonZeroU64,
    /// The command to measure; by default `userbtrfs` beside this program
    #[arg(long, value_name = "PROGRAM")]
    pub cli: Option<PathBuf>,
}

/// Which tree is copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tree {
    /// 25,000 files with sizes as in a tree of sources, about 450 MB
    Small,
    /// 4 GiB in 8 files
    Large,
}

/// How the kernel compresses what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    /// Not at all
    None,
    /// zlib
    Zlib,
    /// lzo
    Lzo,
    /// zstd
    Zstd,
}

impl Compression {
    /// Its name, as in the mount option.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }
}

/// What `extract` takes.
#[derive(Clone, clap::Args)]
pub struct ExtractArgs {
    /// Which trees
    #[arg(long, value_enum, value_delimiter = ',', default_value = "small")]
    pub workload: Vec<Tree>,
    /// How they are compressed; by default `none` for small files and `zstd` for large ones
    #[arg(long, value_enum, value_delimiter = ',', value_name = "HOW")]
    pub compression: Vec<Compression>,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

impl ExtractArgs {
    /// The full set.
    pub(crate) fn all(common: &Common) -> Self {
        let workload = vec![Tree::Small, Tree::Large];
        Self { workload, compression: Vec::new(), common: common.clone() }
    }

    /// How a tree is compressed.
    pub(crate) fn compressions(&self, tree: Tree) -> Vec<Compression> {
        match (self.compression.as_slice(), tree) {
            ([], Tree::Small) => vec![Compression::None],
            ([], Tree::Large) => vec![Compression::Zstd],
            (chosen, _) => chosen.to_vec(),
        }
    }
}

/// What `list` takes.
#[derive(Clone, clap::Args)]
pub struct ListArgs {
    /// How many files there are
    #[arg(long, value_name = "N", default_value_t = FILES)]
    pub files: u64,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

/// How many files are listed.
const FILES: u64 = 1_000_000;

impl ListArgs {
    /// The full set.
    pub(crate) fn all(common: &Common) -> Self {
        Self { files: FILES, common: common.clone() }
    }
}

/// What `read` takes.
#[derive(Clone, clap::Args)]
pub struct ReadArgs {
    /// How the file is compressed
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "none,zstd",
        value_name = "HOW"
    )]
    pub compression: Vec<Compression>,
    /// How much of it is in memory where that is read, in MiB: what a processor's cache holds, and
    /// more. The library's cache has room for 96
    #[arg(long, value_delimiter = ',', default_values_t = CACHED, value_name = "MIB")]
    pub cached: Vec<NonZeroU64>,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

/// How much is in memory, in MiB.
const CACHED: [NonZeroU64; 2] =
    [NonZeroU64::new(1).expect("not 0"), NonZeroU64::new(64).expect("not 0")];

impl ReadArgs {
    /// The full set.
    pub(crate) fn all(common: &Common) -> Self {
        let compression = vec![Compression::None, Compression::Zstd];
        Self { compression, cached: CACHED.to_vec(), common: common.clone() }
    }
}

/// What `meta` takes.
#[derive(Clone, clap::Args)]
pub struct MetaArgs {
    /// How many files there are; the cost of one is compared with that of the least number
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000", value_name = "N")]
    pub files: Vec<NonZeroU64>,
    /// How many threads share the files
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_name = "N")]
    pub threads: Vec<NonZeroU64>,
    /// How many directories the files are spread over
    #[arg(long, default_value = "1", value_name = "N")]
    pub dirs: NonZeroU64,
    /// The library's bound of memory, in MiB
    #[arg(long, default_value = "256", value_name = "MIB")]
    pub memory: NonZeroU64,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

impl MetaArgs {
    /// The full set.
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

/// What `put` takes.
#[derive(Clone, clap::Args)]
pub struct PutArgs {
    /// How many files there are
    #[arg(long, value_name = "N", default_value_t = PUT_FILES)]
    pub files: NonZeroU64,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

/// How many files are put.
const PUT_FILES: NonZeroU64 = NonZeroU64::new(20_000).expect("not 0");

impl PutArgs {
    /// The full set.
    pub(crate) fn all(common: &Common) -> Self {
        Self { files: PUT_FILES, common: common.clone() }
    }
}

/// What `build` takes.
#[derive(Clone, clap::Args)]
pub struct BuildArgs {
    /// The tree; it is only read
    #[arg(long, value_name = "DIR", default_value = BUILD_SOURCE)]
    pub source: PathBuf,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

/// The tree of which a filesystem is made.
const BUILD_SOURCE: &str = "/usr/share";

impl BuildArgs {
    /// The full set.
    pub(crate) fn all(common: &Common) -> Self {
        Self { source: BUILD_SOURCE.into(), common: common.clone() }
    }
}

/// What `write` takes.
#[derive(Clone, clap::Args)]
pub struct WriteArgs {
    /// How large the file is, in MiB
    #[arg(long, value_name = "MIB", default_value_t = WRITTEN)]
    pub mebibytes: NonZeroU64,
    /// How many blocks of 4 KiB are written at random
    #[arg(long, value_name = "N", default_value_t = BLOCKS)]
    pub blocks: NonZeroU64,
    /// The library's bound of memory, in MiB
    #[arg(long, default_value_t = MEMORY, value_name = "MIB")]
    pub memory: NonZeroU64,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

/// What is written, in MiB and in blocks, and the bound of memory, in MiB.
const WRITTEN: NonZeroU64 = NonZeroU64::new(4096).expect("not 0");
const BLOCKS: NonZeroU64 = NonZeroU64::new(100_000).expect("not 0");
const MEMORY: NonZeroU64 = NonZeroU64::new(256).expect("not 0");

impl WriteArgs {
    /// The full set.
    pub(crate) fn all(common: &Common) -> Self {
        let (mebibytes, blocks, memory) = (WRITTEN, BLOCKS, MEMORY);
        Self { mebibytes, blocks, memory, common: common.clone() }
    }
}

/// What `fsync` takes.
#[derive(Clone, clap::Args)]
pub struct FsyncArgs {
    /// How many jobs there are, each with a file of its own
    #[arg(long, value_delimiter = ',', default_value = "1,16,128,1024", value_name = "N")]
    pub jobs: Vec<NonZeroU64>,
    /// How many fsyncs all jobs make together; each makes 16 at least
    #[arg(long, default_value = "4096", value_name = "N")]
    pub syncs: NonZeroU64,
    /// How many small appends are made of which it is counted what reaches the device
    #[arg(long, default_value = "1000", value_name = "N")]
    pub appends: NonZeroU64,
    /// How many files are made in the directory
    #[arg(long, default_value = "100000", value_name = "N")]
    pub files: NonZeroU64,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

impl FsyncArgs {
    /// The full set.
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

/// What `dbench` takes.
#[derive(Clone, clap::Args)]
pub struct DbenchArgs {
    /// How many clients there are
    #[arg(long, value_delimiter = ',', default_values_t = CLIENTS, value_name = "N")]
    pub clients: Vec<NonZeroU64>,
    /// How long each turn takes, in seconds
    #[arg(long, default_value_t = SECONDS, value_name = "N")]
    pub seconds: NonZeroU64,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

/// How many clients there are, and for how many seconds.
const CLIENTS: [NonZeroU64; 4] = [number(1), number(16), number(64), number(200)];
const SECONDS: NonZeroU64 = number(60);

const fn number(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).expect("not 0")
}

impl DbenchArgs {
    /// The full set.
    pub(crate) fn all(common: &Common) -> Self {
        Self { clients: CLIENTS.to_vec(), seconds: SECONDS, common: common.clone() }
    }
}

/// What `fsmark` takes.
#[derive(Clone, clap::Args)]
pub struct FsmarkArgs {
    /// How many threads there are, each with a directory of its own
    #[arg(long, value_delimiter = ',', default_values_t = MARKING, value_name = "N")]
    pub threads: Vec<NonZeroU64>,
    /// How many files each of them makes
    #[arg(long, default_value_t = MARKED, value_name = "N")]
    pub files: NonZeroU64,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

/// How many threads there are, and how many files each of them makes.
const MARKING: [NonZeroU64; 2] = [number(1), number(16)];
const MARKED: NonZeroU64 = number(20_000);

impl FsmarkArgs {
    /// The full set.
    pub(crate) fn all(common: &Common) -> Self {
        Self { threads: MARKING.to_vec(), files: MARKED, common: common.clone() }
    }
}

/// What `fio` takes.
#[derive(Clone, clap::Args)]
pub struct FioArgs {
    /// How many jobs there are, each with a file of its own
    #[arg(long, value_delimiter = ',', default_values_t = JOBS, value_name = "N")]
    pub jobs: Vec<NonZeroU64>,
    /// How much all of them write together, in MiB
    #[arg(long, default_value_t = WRITTEN_BY_JOBS, value_name = "MIB")]
    pub mebibytes: NonZeroU64,
    /// What every verb takes
    #[command(flatten)]
    pub common: Common,
}

/// How many jobs there are, and how much they write, in MiB.
const JOBS: [NonZeroU64; 3] = [number(1), number(16), number(64)];
const WRITTEN_BY_JOBS: NonZeroU64 = number(256);

impl FioArgs {
    /// The full set.
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
