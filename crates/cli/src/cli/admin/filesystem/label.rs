//! `filesystem label`: shows or sets the label.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use userbtrfs::Filesystem;

use crate::cli::admin::mounted::request_at;
use crate::cli::admin::subvolume::place::{change, mountpoint, once, print};
use crate::cli::args::{Format, Global, WriteArgs};
use crate::cli::output::{with_name, write_json};
use crate::cli::text::shown;

/// The most bytes of a label.
const LABEL_BYTES: usize = 255;

#[derive(clap::Args)]
pub(crate) struct LabelArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// New label; empty for none
    label: Option<OsString>,
}

pub(super) fn run(global: &Global, args: &LabelArgs) -> Result<ExitCode> {
    let root = &args.image.root;
    let Some(label) = &args.label else {
        if let Some(point) = mountpoint(root)? {
            return request_at(global, point, &["filesystem-label".into()]);
        }
        return print(global, root, |out, filesystem| write_label(out, filesystem, global.format));
    };
    check(label)?;
    if let Some(point) = mountpoint(root)? {
        let mut set = OsString::from("--set=");
        set.push(label);
        let words = ["filesystem-label".into(), set];
        return request_at(global, point, &words).with_context(|| point.display().to_string());
    }
    change(global, &args.image, once(&args.image), |session| {
        session.filesystem.set_label(label.as_bytes()).with_context(|| session.name.clone())?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Fails, before anything is opened, if a label is not valid.
pub(in crate::cli::admin) fn check(label: &OsStr) -> Result<()> {
    let len = label.len();
    ensure!(len <= LABEL_BYTES, "label {} is too long (max {LABEL_BYTES})", shown(label));
    ensure!(!label.as_bytes().contains(&b'\n'), "label {} has a newline", shown(label));
    Ok(())
}

/// Writes the label.
pub(super) fn write_label(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    format: Format,
) -> Result<()> {
    let label = &filesystem.superblock().label;
    match format {
        Format::Text => Ok(out.write_all(&[label, &b"\n"[..]].concat())?),
        Format::Json => write_json(out, "filesystem-label", &with_name(json!({}), "label", label)),
    }
}
