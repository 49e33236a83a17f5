//! `filesystem resize`: of the filesystem in an image, or in a mount, whose server does it.
//!
//! 1. An image file is extended and truncated with its filesystem. A block device, and an image
//!    that is a part of a file, keeps its size.
//! 2. Called as `btrfs`, the command takes the image file of a mount for a device, whose size
//!    stays, and the errors are those of btrfs-progs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::io::Errno;
use serde_json::json;
use userbtrfs::{Error, Filesystem, ImageLength};

use crate::cli::admin::mounted::watched_answer_at;
use crate::cli::admin::subvolume::mounted::has_object;
use crate::cli::args::{Format, Global, WriteArgs};
use crate::cli::host::meter::{is_shown, to_relocate, watch_remaining, watch_reported};
use crate::cli::output::{stdout, write_json};
use crate::cli::session::{Access, Session};
use crate::cli::sizes::size as parse_size;
use crate::cli::text::size;

#[derive(clap::Args)]
pub(crate) struct ResizeArgs {
    /// New size; with a sign, the difference; or that of the device
    #[arg(value_name = "[DEVID:][+-]SIZE|max", allow_hyphen_values = true)]
    size: String,
    #[command(flatten)]
    image: WriteArgs,
    #[command(flatten)]
    manner: Manner,
}

/// The manner of a resize.
#[derive(Clone, Copy, clap::Args)]
pub(in crate::cli) struct Manner {
    /// Keep the length of an image file, and answer as btrfs-progs do
    #[arg(long = "as-progs", hide = true)]
    as_progs: bool,
}

pub(super) fn run(global: &Global, args: &ResizeArgs) -> Result<ExitCode> {
    let path = &args.image.root.image.image;
    if has_object(path) {
        let format = if global.format == Format::Json { "json" } else { "text" };
        let mut words = vec!["--format", format, "filesystem-resize"];
        words.extend(is_shown(global).then_some("--progress"));
        words.extend(args.manner.as_progs.then_some("--as-progs"));
        words.extend(["--", &args.size]);
        let words: Vec<_> = words.into_iter().map(OsString::from).collect();
        let answer =
            watch_reported(global, "resizing", |report| watched_answer_at(path, &words, report));
        let answer = match answer {
            Err(error) if args.manner.as_progs => {
                return Err(error.context(format!("unable to resize '{}'", path.display())));
            }
            answer => answer?,
        };
        let mut out = stdout();
        out.write_all(&answer)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let discard = args.image.discard;
    let session = Session::open(global, &args.image.root, Access::Once { discard })?;
    let mut out = stdout();
    let resize = || resize(&mut out, &session.filesystem, &args.size, args.manner, global);
    let resized = {
        let remaining = to_relocate(&session.filesystem);
        watch_remaining(global, "resizing", &remaining, resize)
            .with_context(|| format!("unable to resize '{}'", session.name))
    };
    session.close()?;
    resized?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a size of the command line, or a difference, in bytes. `max`, and what is no size, stays
/// as it is.
fn in_bytes(text: &str) -> Result<String> {
    let start = text.find(':').map_or(0, |colon| colon + 1);
    let sign = usize::from(text[start..].starts_with(['+', '-']));
    let (before, number) = text.split_at(start + sign);
    if !number.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    let bytes = parse_size(number).map_err(|why| anyhow!("{number}: {why}"))?;
    Ok(format!("{before}{bytes}"))
}

/// Resizes a filesystem, and writes its sizes before and after.
pub(in crate::cli) fn resize(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    text: &str,
    manner: Manner,
    global: &Global,
) -> Result<()> {
    // btrfs-progs take no fractions.
    let wanted = if manner.as_progs { text.to_owned() } else { in_bytes(text)? };
    let device = filesystem.superblock().device.clone();
    let old = device.total_bytes;
    let length = if manner.as_progs { ImageLength::Keep } else { ImageLength::Follow };
    let parsed = match filesystem.parse_size(&wanted) {
        Err(Error::Invalid(what)) if !manner.as_progs => bail!("{text}: not a valid {what}"),
        parsed => parsed,
    };
    let new = match parsed.and_then(|wanted| filesystem.resize(wanted, length)) {
        Err(error) if manner.as_progs => return Err(as_progs(&error)),
        resized => resized?,
    };
    match global.format {
        Format::Json => {
            write_json(out, "filesystem-resize", &json!({ "old_size": old, "new_size": new }))?;
        }
        Format::Text if global.quiet => {}
        Format::Text => {
            let id = device.id;
            let name = filesystem.volume().name();
            let from = size(old);
            let to = match text.rsplit(':').next() {
                Some("max") if manner.as_progs => "max".to_owned(),
                _ => size(new),
            };
            writeln!(out, "Resize device id {id} ({name}) from {from} to {to}")?;
        }
    }
    Ok(())
}

/// Returns the reason of an error as btrfs-progs print it.
fn as_progs(error: &userbtrfs::Error) -> anyhow::Error {
    match Errno::from_raw_os_error(error.errno()) {
        Errno::FBIG => anyhow!("no enough free space"),
        errno => anyhow!("{}", io::Error::from(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_every_option() {
        for (text, expected) in [
            ("1.25G", "1342177280"),
            ("1:+0.5G", "1:+536870912"),
            ("-1MB", "-1000000"),
            ("2:300MiB", "2:314572800"),
            ("1:max", "1:max"),
            ("+", "+"),
            ("--1", "--1"),
        ] {
            assert_eq!(in_bytes(text).unwrap(), expected, "{text}");
        }
        assert_eq!(in_bytes("+1x").unwrap_err().to_string(), "1x: unknown suffix x");
    }
}
