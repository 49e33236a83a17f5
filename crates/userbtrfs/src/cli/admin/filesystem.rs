//! `filesystem sync`: commits a mounted filesystem.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::cli::admin::mounted::request_at;
use crate::cli::args::Global;

/// The operations on a mounted filesystem.
#[derive(Subcommand)]
pub(crate) enum FilesystemVerb {
    /// Commit everything written to a mount
    Sync(SyncArgs),
}

#[derive(clap::Args)]
pub(crate) struct SyncArgs {
    /// Path in the mount
    path: PathBuf,
}

pub(crate) fn run(global: &Global, verb: &FilesystemVerb) -> Result<ExitCode> {
    let FilesystemVerb::Sync(args) = verb;
    let named = || args.path.display().to_string();
    // The kernel writes its dirty pages back; unless the mount is of a block device, it sends the
    // server no request to commit.
    let path = File::open(&args.path).with_context(named)?;
    rustix::fs::syncfs(&path).with_context(named)?;
    drop(path);
    request_at(global, &args.path, &["sync".into()])
}
