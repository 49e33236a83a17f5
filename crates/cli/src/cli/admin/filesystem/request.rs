//! The verbs of `filesystem` on a mount, as its server runs them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use clap::Subcommand;
use userbtrfs::mount::StatsHandle;

use super::{df, du, label, usage};
use crate::cli::args::Global;
use crate::cli::size_units::SizeArgs;

/// A request about a filesystem.
#[derive(Subcommand)]
pub(in crate::cli) enum FilesystemRequest {
    #[command(name = "filesystem-df")]
    Df {
        #[command(flatten)]
        sizes: SizeArgs,
    },
    #[command(name = "filesystem-usage")]
    Usage {
        #[command(flatten)]
        sizes: SizeArgs,
        #[arg(short = 'T')]
        table: bool,
    },
    /// By inode number; `name` is the path in the answer.
    #[command(name = "filesystem-du")]
    Du {
        #[arg(short)]
        summarize: bool,
        number: u64,
        name: OsString,
    },
    #[command(name = "filesystem-label")]
    Label {
        #[arg(long)]
        set: Option<OsString>,
    },
}

/// Answers a request.
pub(in crate::cli) fn answer(
    out: &mut Vec<u8>,
    handle: &StatsHandle,
    request: &FilesystemRequest,
    global: &Global,
) -> Result<()> {
    let filesystem = handle.filesystem();
    match request {
        FilesystemRequest::Df { sizes } => {
            df::write_df(out, &filesystem.usage()?, sizes.units(), global.format)
        }
        FilesystemRequest::Usage { sizes, table } => {
            let options = usage::Options { units: sizes.units(), is_table: *table };
            usage::write_usage(out, filesystem, handle.device(), &options, global.format)
        }
        FilesystemRequest::Du { summarize, number, name } => {
            handle.write_back();
            let inode = handle.inode(*number);
            for row in du::rows(filesystem, &inode, name.as_bytes(), *summarize)? {
                row.encode(out);
            }
            Ok(())
        }
        FilesystemRequest::Label { set: Some(label) } => {
            Ok(filesystem.set_label(label.as_bytes())?)
        }
        FilesystemRequest::Label { set: None } => {
            label::write_label(out, filesystem, global.format)
        }
    }
}
