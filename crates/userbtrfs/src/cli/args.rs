//! Arguments that several verbs take, and those of verbs that only read.

use std::ffi::OsString;

use clap::ValueEnum;

use super::host::image::ImageArgs;
use super::sizes::size;

/// The options of all verbs.
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
    /// Adds the options of a single line of the shell.
    pub(crate) fn join(&mut self, line: &Self) {
        if line.format == Format::Json {
            self.format = Format::Json;
        }
        self.quiet |= line.quiet;
        self.verbose = self.verbose.max(line.verbose);
    }
}

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// The image, and the subvolume from which paths in it are resolved.
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

/// The image of a verb that changes it.
#[derive(clap::Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// Give space that is free again back to the device: an image file gets holes there
    #[arg(long)]
    pub(crate) discard: bool,
}

/// Whether I/O bypasses the page cache.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectIo {
    /// As is best for it
    Auto,
    /// Yes, or fail
    On,
    /// No
    Off,
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
