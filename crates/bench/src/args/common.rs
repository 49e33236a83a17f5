//! The options that all verbs have.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use crate::target::Target;

/// The options common to all verbs.
#[derive(Clone, clap::Args)]
pub struct Common {
    /// How often each target runs
    #[arg(long, value_name = "N", default_value = "5")]
    pub runs: NonZeroU32,
    /// The targets to measure (default: all that the benchmark supports)
    #[arg(long = "target", value_enum, value_delimiter = ',', value_name = "TARGET")]
    pub targets: Vec<Target>,
    /// The folder for images and copies (default: a folder beside this program)
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the images; an existing image is always reused and kept
    #[arg(long)]
    pub keep: bool,
    /// Neither drop caches nor touch free memory before each run
    #[arg(long)]
    pub warm: bool,
    /// Compare times to durable copies, not to copies in the page cache
    #[arg(long)]
    pub sync: bool,
    /// Divide all amounts by N, for trials
    #[arg(long, value_name = "N", default_value = "1")]
    pub scale: NonZeroU64,
    /// The command to measure (default: `userbtrfs` beside this program)
    #[arg(long, value_name = "PROGRAM")]
    pub cli: Option<PathBuf>,
}
