//! Arguments that several verbs take, and those of verbs that only read.

use std::ffi::OsString;
use std::str::FromStr;

use clap::ValueEnum;
use userbtrfs::{FileKind, Quoted};

use super::host::image::ImageArgs;
use super::sizes::size;
use super::verbs::filter::FilterArgs;

/// The heading of the global options in the help.
pub(super) const GLOBAL: &str = "Global options";

/// The options of all verbs.
#[derive(Clone, clap::Args)]
pub(crate) struct Global {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, global = true, help_heading = GLOBAL)]
    pub(crate) format: Format,
    /// Print errors only
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
    /// Print progress
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = GLOBAL)]
    pub(crate) verbose: u8,
    /// Print names of subvolumes and files as they are
    #[arg(long, global = true, hide = true)]
    pub(crate) raw_names: bool,
}

impl Global {
    /// Adds the options of a single line of the shell.
    pub(crate) fn join(&mut self, line: &Self) {
        if line.format == Format::Json {
            self.format = Format::Json;
        }
        self.quiet |= line.quiet;
        self.verbose = self.verbose.max(line.verbose);
    }

    /// Returns a name or path as a list shows it: escaped, but raw called as `btrfs`.
    pub(crate) fn listed(&self, name: &[u8]) -> Vec<u8> {
        if self.raw_names { name.to_vec() } else { Quoted(name).to_string().into_bytes() }
    }
}

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text
    Text,
    /// JSON
    Json,
}

/// The image, and the subvolume from which paths in it are resolved.
#[derive(clap::Args)]
pub(crate) struct RootArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Resolve paths from the subvolume at PATH [default: the default subvolume]
    #[arg(long, value_name = "PATH")]
    pub(crate) subvol: Option<OsString>,
    /// Resolve paths from the subvolume with this ID (5: top level)
    #[arg(long, value_name = "ID", conflicts_with = "subvol")]
    pub(crate) subvolid: Option<u64>,
    /// Maximum memory for caches and unwritten data
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub(crate) memory: u64,
    /// Use O_DIRECT [auto: block devices, and large I/O on writable images]
    #[arg(long, value_enum, default_value_t = DirectIo::Auto)]
    pub(crate) direct: DirectIo,
    /// Ignore a pending log (hides what was fsynced since the last commit)
    #[arg(long)]
    pub(crate) no_log_replay: bool,
}

/// The image of a verb that changes it.
#[derive(clap::Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// Discard freed space (makes holes in an image file)
    #[arg(long)]
    pub(crate) discard: bool,
}

/// Whether I/O bypasses the page cache.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectIo {
    /// Choose by device
    Auto,
    /// Fail if unsupported
    On,
    /// Never
    Off,
}

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of ls")]
pub(crate) struct LsArgs {
    /// Paths to list, which may have the wildcards *, ? and [ [default: /]
    pub(crate) paths: Vec<OsString>,
    /// Show attributes
    #[arg(short)]
    pub(crate) long: bool,
    /// Include names that start with a dot
    #[arg(short, visible_short_alias = 'A')]
    pub(crate) all: bool,
    /// List directories themselves, not their contents
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// Sort by time of modification, newest first
    #[arg(short, overrides_with = "by_size")]
    pub(crate) time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S', overrides_with = "time")]
    pub(crate) by_size: bool,
    /// Reverse the order
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// List one name on each line (always so)
    #[arg(short = '1')]
    one_per_line: bool,
    /// With -l, show sizes with a suffix, such as 1.5M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// List directories recursively
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
#[command(after_help = "All predicates must match; one after ! (or -not) must not match.")]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of find")]
pub(crate) struct FindArgs {
    /// Paths to start at [default: /]
    pub(crate) paths: Vec<OsString>,
    /// End each path with NUL, not with a newline
    #[arg(short = '0', long)]
    pub(crate) print0: bool,
    /// End each path with a newline (default)
    #[arg(long, hide = true)]
    print: bool,
    /// Only names that match PATTERN, with the wildcards *, ? and [
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Vec<OsString>,
    /// Only names that do not match PATTERN
    #[arg(long, value_name = "PATTERN", hide = true)]
    pub(crate) not_name: Vec<OsString>,
    /// Like --name, but the case of ASCII letters is ignored
    #[arg(long, value_name = "PATTERN")]
    pub(crate) iname: Vec<OsString>,
    /// Only names that do not match PATTERN in any case
    #[arg(long, value_name = "PATTERN", hide = true)]
    pub(crate) not_iname: Vec<OsString>,
    /// Only paths that match PATTERN, whose wildcards also match slashes
    #[arg(long, value_name = "PATTERN")]
    pub(crate) path: Vec<OsString>,
    /// Only paths that do not match PATTERN
    #[arg(long, value_name = "PATTERN", hide = true)]
    pub(crate) not_path: Vec<OsString>,
    /// Only these types: f, d, l, b, c, p, s
    #[arg(long = "type", value_name = "TYPES")]
    pub(crate) kinds: Vec<KindsArg>,
    /// Only other types
    #[arg(long = "not-type", value_name = "TYPES", hide = true)]
    pub(crate) not_kinds: Vec<KindsArg>,
    /// Only empty files and directories
    #[arg(long)]
    pub(crate) empty: bool,
    /// Only what is not an empty file or directory
    #[arg(long, hide = true)]
    pub(crate) not_empty: bool,
    /// Descend at most N levels
    #[arg(long, value_name = "N")]
    pub(crate) maxdepth: Option<usize>,
    /// Only paths at least N levels below the start
    #[arg(long, value_name = "N")]
    pub(crate) mindepth: Option<usize>,
    /// Do not descend into other subvolumes
    #[arg(short = 'x', long = "xdev", alias = "mount", alias = "one-subvolume")]
    pub(crate) one_subvolume: bool,
}

/// Options of cp(1) that `get` and `put` accept, since they always copy so.
#[derive(clap::Args)]
pub(crate) struct ArchiveArgs {
    /// Copy trees with all attributes (always so)
    #[arg(short, long, visible_short_aliases = ['r', 'R'], alias = "recursive")]
    archive: bool,
}

/// Types of files, by the letters of find(1) between commas.
#[derive(Clone)]
pub(crate) struct KindsArg(Vec<FileKind>);

impl KindsArg {
    /// Returns true if a type is one of these.
    pub(crate) fn contains(&self, kind: FileKind) -> bool {
        self.0.contains(&kind)
    }
}

impl FromStr for KindsArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = |letter: &str| match letter {
            "f" => Ok(FileKind::Regular),
            "d" => Ok(FileKind::Directory),
            "l" => Ok(FileKind::Symlink),
            "b" => Ok(FileKind::BlockDevice),
            "c" => Ok(FileKind::CharDevice),
            "p" => Ok(FileKind::Fifo),
            "s" => Ok(FileKind::Socket),
            other => Err(format!("unknown type '{other}': it is one of f, d, l, b, c, p and s")),
        };
        text.split(',').map(kind).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(clap::Args)]
pub(crate) struct GetArgs {
    /// Sources, which may have the wildcards *, ? and [, then a directory or a new name
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Skip subvolumes below the sources
    #[arg(short = 'x', long, visible_alias = "one-file-system")]
    pub(crate) one_subvolume: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    archive: ArchiveArgs,
    /// Number of files to copy in parallel
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
}

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct DfArgs {
    /// Print sizes with a suffix (default)
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print sizes in bytes
    #[arg(short = 'b', long)]
    pub(crate) raw: bool,
}
