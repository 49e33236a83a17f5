//! What can be said on the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use super::admin::filesystem::FilesystemVerb;
use super::admin::log::{LogArgs, LogVerb};
use super::admin::mount::MountArgs;
use super::admin::stats::StatsArgs;
use super::admin::trace::TraceMountArgs;
use super::admin::umount::UmountArgs;
use super::host::image::ImageArgs;
use super::shell::prompt::ShellArgs;
use super::verb::FileVerb;
use super::verbs::chown::Owner;

/// btrfs in user space: look into images and block devices, copy out of them and into them, change
/// them, and mount them, without the kernel's btrfs.
#[derive(Parser)]
#[command(name = "userbtrfs", version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb takes.
#[derive(Clone, clap::Args)]
pub(crate) struct Global {
    /// How to print data
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    pub(crate) format: Format,
    /// Say no more than the errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say what is done
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
}

impl Global {
    /// Takes what is said for a single line.
    pub(crate) fn join(&mut self, line: &Self) {
        if line.format == Format::Json {
            self.format = Format::Json;
        }
        self.quiet |= line.quiet;
        self.verbose = self.verbose.max(line.verbose);
    }
}

/// How to print data.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// The image, and where paths in it start.
#[derive(clap::Args)]
pub(crate) struct RootArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Start paths at the subvolume of this path, not at the default one
    #[arg(long, value_name = "PATH")]
    pub(crate) subvol: Option<OsString>,
    /// Start paths at the subvolume of this number; 5 is the top level
    #[arg(long, value_name = "ID", conflicts_with = "subvol")]
    pub(crate) subvolid: Option<u64>,
    /// The bound of memory for caches
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub(crate) memory: u64,
    /// Go past the page cache; by default block devices do, and what is large of an image that is
    /// written
    #[arg(long, value_enum, default_value_t = DirectIo::Auto)]
    pub(crate) direct: DirectIo,
    /// Leave a log that is pending alone: what was fsynced since the last commit is not shown
    #[arg(long)]
    pub(crate) no_log_replay: bool,
}

/// The image that is changed, and how.
#[derive(clap::Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// Give space that is free again back to the device: an image file gets holes there
    #[arg(long)]
    pub(crate) discard: bool,
}

/// Whether a device is read past the page cache.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectIo {
    /// As is best for it
    Auto,
    /// Yes, or fail
    On,
    /// No
    Off,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Make a filesystem, in a file that is made for it if there is none
    Mkfs(MkfsArgs),
    #[command(flatten)]
    Files(FileVerb<RootArgs, WriteArgs>),
    /// Do all this to one image: a command a line, from a prompt or a script
    Shell(ShellArgs),
    /// Mount an image by FUSE
    Mount(MountArgs),
    /// Unmount, and wait until the image is closed
    Umount(UmountArgs),
    /// Act on a mounted filesystem
    #[command(subcommand)]
    Filesystem(FilesystemVerb),
    /// Show how a mount is, and what was counted since it began
    Stats(StatsArgs),
    /// Print a line for each fsync in a mount, until that ends: how it went, how much, and where
    /// its time went
    Trace(TraceMountArgs),
    /// Show subvolumes and snapshots, of an image or of a mount
    #[command(subcommand)]
    Subvolume(SubvolumeVerb),
    /// Show what is on disk
    #[command(subcommand)]
    Dump(DumpVerb),
    /// Settle what was fsynced and not committed before a crash
    #[command(subcommand)]
    Log(LogVerb),
}

#[derive(clap::Args)]
pub(crate) struct MkfsArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// How large to make the file; with --rootdir by default so that all fits, with half as much
    /// room again
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<u64>,
    /// The label
    #[arg(short = 'L', long)]
    pub(crate) label: Option<OsString>,
    /// The filesystem's id; a random one by default
    #[arg(short = 'U', long)]
    pub(crate) uuid: Option<uuid::Uuid>,
    /// How everything is checksummed
    #[arg(long, alias = "checksum", value_enum, default_value_t = Csum::Crc32c)]
    pub(crate) csum: Csum,
    /// Bytes in a tree block, 4k to 64k; by default 16k, and 4k with mixed-bg
    #[arg(short, long, value_name = "SIZE", value_parser = size)]
    pub(crate) nodesize: Option<u64>,
    /// How metadata is kept; by default dup, and single with mixed-bg
    #[arg(short, long, value_enum, value_name = "PROFILE")]
    pub(crate) metadata: Option<ProfileArg>,
    /// How data is kept; by default single
    #[arg(short, long, value_enum, value_name = "PROFILE")]
    pub(crate) data: Option<ProfileArg>,
    /// Features to switch on, or off with ^ before the name: mixed-bg, block-group-tree,
    /// free-space-tree
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) features: Vec<String>,
    /// Put what is in a directory in, as `put` does; where that fails there is no filesystem at
    /// all, not even the one that --force gave up for it
    #[arg(short, long, value_name = "DIR")]
    pub(crate) rootdir: Option<PathBuf>,
    /// The owner and group of the root directory, and of all that --rootdir puts in, by number:
    /// UID, UID:GID or :GID. Otherwise the root directory is root's, or as DIR is
    #[arg(long)]
    pub(crate) owner: Option<Owner>,
    /// (not supported)
    #[arg(long, hide = true)]
    pub(crate) shrink: bool,
    /// Overwrite what is there
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Give what is there back to the device first: an image file becomes one hole
    #[arg(long)]
    pub(crate) discard: bool,
}

/// A kind of checksum.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Csum {
    Crc32c,
    #[value(alias = "xxhash64")]
    Xxhash,
    Sha256,
    #[value(alias = "blake2b")]
    Blake2,
}

/// In how many copies something is kept.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// One copy
    Single,
    /// Two copies
    Dup,
}

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of ls")]
pub(crate) struct LsArgs {
    /// What to list
    #[arg(default_value = "/")]
    pub(crate) paths: Vec<OsString>,
    /// Show attributes
    #[arg(short)]
    pub(crate) long: bool,
    /// Show names that start with a dot
    #[arg(short)]
    pub(crate) all: bool,
    /// With -l, show sizes with a suffix, such as 1.5M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Show what is in directories below
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
}

#[derive(clap::Args)]
pub(crate) struct PathsArgs {
    /// Paths inside the image
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(clap::Args)]
pub(crate) struct FindArgs {
    /// Where to start
    #[arg(default_value = "/")]
    pub(crate) path: OsString,
    /// End each path with NUL, not with a newline
    #[arg(short = '0', long)]
    pub(crate) print0: bool,
}

#[derive(clap::Args)]
pub(crate) struct GetArgs {
    /// Paths inside the image, then where to copy them: into a directory that is there, or
    /// to a new name
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DEST"])]
    pub(crate) paths: Vec<OsString>,
    /// Leave out subvolumes below the sources
    #[arg(short = 'x', long)]
    pub(crate) one_subvolume: bool,
    /// How many files to copy at the same time
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
}

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct DfArgs {
    /// Print sizes with a suffix, which is the default
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print exact bytes
    #[arg(short = 'b', long)]
    pub(crate) raw: bool,
}

/// What to show of subvolumes.
#[derive(Subcommand)]
pub(crate) enum SubvolumeVerb {
    /// List all subvolumes
    List(RootOnlyArgs),
    /// Show one subvolume
    Show(SubvolumeShowArgs),
}

#[derive(clap::Args)]
pub(crate) struct RootOnlyArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
}

#[derive(clap::Args)]
pub(crate) struct SubvolumeShowArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// The path of the subvolume inside the image
    #[arg(default_value = "/")]
    pub(crate) path: OsString,
}

/// What to show of the disk.
#[derive(Subcommand)]
pub(crate) enum DumpVerb {
    /// The superblock
    Super(DumpSuperArgs),
    /// The trees
    Tree(DumpTreeArgs),
    /// The log that is pending, in words: what a replay would bring back
    Log(LogArgs),
}

#[derive(clap::Args)]
pub(crate) struct DumpSuperArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Also the system chunks and the remembered roots
    #[arg(short, long)]
    pub(crate) full: bool,
    /// The copy to show, 0 to 2
    #[arg(short = 's', long = "super", value_name = "N", value_parser = copy_number())]
    pub(crate) copy: Option<u8>,
}

#[derive(clap::Args)]
pub(crate) struct DumpTreeArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Only this tree, by its number or its name (fs, root, chunk, extent, ...)
    #[arg(short, long, value_name = "N")]
    pub(crate) tree: Option<String>,
}

/// The number of a copy of the superblock.
fn copy_number() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(0..=2)
}

/// Parses a size, in bytes or with a suffix, as coreutils has them: K, M, G, T, P and E are powers
/// of 1024, and so are KiB and the like; KB and the like are powers of 1000.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number = digits.parse::<u64>().map_err(|_| "not a size".to_owned())?;
    let unit =
        unit(suffix).ok_or_else(|| match suffix.chars().all(|c| c.is_ascii_alphabetic()) {
            true => format!("unknown suffix {suffix}"),
            false => "not a size".to_owned(),
        })?;
    number.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

/// Returns the bytes of a unit; 1 for none.
fn unit(suffix: &str) -> Option<u64> {
    let Some(letter) = suffix.chars().next() else { return Some(1) };
    if suffix.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    let power = u32::try_from("kmgtpe".find(letter.to_ascii_lowercase())?).ok()? + 1;
    let rest = &suffix[letter.len_utf8()..];
    match () {
        () if rest.is_empty() || rest.eq_ignore_ascii_case("ib") => Some(1024_u64.pow(power)),
        () if rest.eq_ignore_ascii_case("b") => Some(1000_u64.pow(power)),
        () => None,
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
    fn sizes_have_the_suffixes_of_coreutils() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!((size("1KB"), size("2mb"), size("5B")), (Ok(1000), Ok(2_000_000), Ok(5)));
        assert_eq!(size("1x"), Err("unknown suffix x".to_owned()));
        for text in ["abc", "M", "-5", "1.5G", "12 MiB"] {
            assert_eq!(size(text), Err("not a size".to_owned()), "{text}");
        }
        assert!(size("99999999E").is_err());
        assert!(size("").is_err());
    }
}
