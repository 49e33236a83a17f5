//! `filesystem`: verbs that act on a filesystem as a whole.
//!
//! 1. The first path decides: an image is a file or a block device. If it is a directory, it is
//!    in a mount, whose server runs the verb.
//! 2. The text is that of btrfs-progs, which scripts parse.

pub(in crate::cli) mod defragment;
mod df;
mod du;
pub(in crate::cli::admin) mod label;
pub(in crate::cli) mod request;
pub(in crate::cli) mod resize;
mod usage;

use std::fs::File;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Arg, Subcommand};

use crate::cli::admin::mounted::request_at;
use crate::cli::admin::subvolume::mounted;
use crate::cli::admin::subvolume::place::{change, once, refuse_options};
use crate::cli::args::{Global, WriteArgs};

/// The operations on a filesystem.
#[derive(Subcommand)]
pub(crate) enum FilesystemVerb {
    /// Show the use of space by block group type, as btrfs-progs does
    #[command(mut_args(or_path))]
    Df(df::DfArgs),
    /// Show the use of space in detail
    #[command(mut_args(or_path))]
    Usage(usage::UsageArgs),
    /// Show the space that files take, alone or shared with others
    #[command(mut_args(or_path))]
    Du(du::DuArgs),
    /// Show or set the label
    #[command(mut_args(or_path))]
    Label(label::LabelArgs),
    /// Commit everything written to a mount; in an image, replay and commit a log
    #[command(mut_args(or_path))]
    Sync(SyncArgs),
    /// Resize the filesystem in an image or a mount
    Resize(resize::ResizeArgs),
    /// Rewrite the small extents of files together
    #[command(visible_alias = "defrag")]
    Defragment(defragment::DefragmentArgs),
}

/// Names the image of a verb that takes a path in a mount in its place.
fn or_path(arg: Arg) -> Arg {
    if arg.get_id() == "image" {
        arg.value_name("IMAGE|PATH").help("Image file or block device, or path in a mount")
    } else {
        arg
    }
}

#[derive(clap::Args)]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    image: WriteArgs,
}

pub(crate) fn run(global: &Global, verb: &FilesystemVerb) -> Result<ExitCode> {
    match verb {
        FilesystemVerb::Df(args) => df::run(global, args),
        FilesystemVerb::Usage(args) => usage::run(global, args),
        FilesystemVerb::Du(args) => du::run(global, args),
        FilesystemVerb::Label(args) => label::run(global, args),
        FilesystemVerb::Sync(args) => sync(global, args),
        FilesystemVerb::Resize(args) => resize::run(global, args),
        FilesystemVerb::Defragment(args) => defragment::run(global, args),
    }
}

fn sync(global: &Global, args: &SyncArgs) -> Result<ExitCode> {
    let path = &args.image.root.image.image;
    if !mounted::has_object(path) && !path.is_dir() {
        return change(global, &args.image, once(&args.image), |_| Ok(ExitCode::SUCCESS));
    }
    refuse_options(&args.image.root)?;
    let named = || path.display().to_string();
    // The kernel writes its dirty pages back; unless the mount is of a block device, it sends the
    // server no request to commit.
    let file = File::open(path).with_context(named)?;
    rustix::fs::syncfs(&file).with_context(named)?;
    drop(file);
    request_at(global, path, &["sync".into()])
}
