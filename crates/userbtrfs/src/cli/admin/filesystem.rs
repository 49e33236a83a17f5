//! `filesystem sync`: commits a mounted filesystem. `filesystem resize` is in a file of its own.

pub(in crate::cli) mod resize;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::cli::admin::mounted::request_at;
use crate::cli::args::Global;

/// The operations on a filesystem.
#[derive(Subcommand)]
pub(crate) enum FilesystemVerb {
    /// Commit everything written to a mount
    Sync(SyncArgs),
    /// Resize the filesystem in an image or a mount
    Resize(resize::ResizeArgs),
}

#[derive(clap::Args)]
pub(crate) struct SyncArgs {
    /// Path in the mount
    path: PathBuf,
}

pub(crate) fn run(global: &Global, verb: &FilesystemVerb) -> Result<ExitCode> {
    match verb {
        FilesystemVerb::Sync(args) => sync(global, args),
        FilesystemVerb::Resize(args) => resize::run(global, args),
    }
}

fn sync(global: &Global, args: &SyncArgs) -> Result<ExitCode> {
    let named = || args.path.display().to_string();
    // The kernel writes its dirty pages back; unless the mount is of a block device, it sends the
    // server no request to commit.
    let path = File::open(&args.path).with_context(named)?;
    rustix::fs::syncfs(&path).with_context(named)?;
    drop(path);
    request_at(global, &args.path, &["sync".into()])
}
