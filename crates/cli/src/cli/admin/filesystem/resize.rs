//! `filesystem resize`: of the filesystem in an image, or in a mount, whose server does it.
//!
//! 1. An image file is extended and truncated with its filesystem. A block device, and an image
//!    that is a part of a file, keeps its size.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;
use userbtrfs::mount::control::{self, AskError};
use userbtrfs::{Filesystem, ImageLength};

use crate::cli::admin::mounted::answer_at;
use crate::cli::args::{Format, Global, WriteArgs};
use crate::cli::host::meter::watch_time;
use crate::cli::output::{stdout, write_json};
use crate::cli::session::{Access, Session};
use crate::cli::text::size;

#[derive(clap::Args)]
pub(crate) struct ResizeArgs {
    /// New size; with a sign, the difference; or that of the device
    #[arg(value_name = "[DEVID:][+-]SIZE|max", allow_hyphen_values = true)]
    size: String,
    #[command(flatten)]
    image: WriteArgs,
}

pub(super) fn run(global: &Global, args: &ResizeArgs) -> Result<ExitCode> {
    let path = &args.image.root.image.image;
    if matches!(control::check(path), Ok(()) | Err(AskError::Within { .. })) {
        let format = if global.format == Format::Json { "json" } else { "text" };
        let words = ["--format", format, "filesystem-resize", "--", &args.size].map(OsString::from);
        let answer = watch_time(global, "resizing", || answer_at(path, &words))?;
        let mut out = stdout();
        out.write_all(&answer)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let discard = args.image.discard;
    let session = Session::open(global, &args.image.root, Access::Once { discard })?;
    let mut out = stdout();
    let resize = || resize(&mut out, &session.filesystem, &args.size, global);
    let resized = watch_time(global, "resizing", resize)
        .with_context(|| format!("unable to resize '{}'", session.name));
    session.close()?;
    resized?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Resizes a filesystem, and writes its sizes before and after.
pub(in crate::cli) fn resize(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    text: &str,
    global: &Global,
) -> Result<()> {
    let wanted = filesystem.parse_size(text)?;
    let device = filesystem.superblock().device.clone();
    let old = device.total_bytes;
    let new = filesystem.resize(wanted, ImageLength::Follow)?;
    match global.format {
        Format::Json => {
            write_json(out, "filesystem-resize", &json!({ "old_size": old, "new_size": new }))?;
        }
        Format::Text if global.quiet => {}
        Format::Text => {
            let id = device.id;
            let name = filesystem.volume().name();
            let from = size(old);
            let to = size(new);
            writeln!(out, "Resize device id {id} ({name}) from {from} to {to}")?;
        }
    }
    Ok(())
}
