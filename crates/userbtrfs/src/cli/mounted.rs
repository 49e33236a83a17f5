//! Verbs on a mount: its server does them, and what it prints is printed here.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::mount::control;

use super::args::{Format, Global};
use super::output::stdout;

/// Asks the server of the mount at `point`, in words of a command line.
pub(super) fn ask(global: &Global, point: &Path, words: &[OsString]) -> Result<ExitCode> {
    let json: &[&str] = if global.format == Format::Json { &["--format", "json"] } else { &[] };
    let format = json.iter().map(|word| word.as_bytes());
    let words = format.chain(words.iter().map(|word| OsStr::as_encoded_bytes(word)));
    control::ask(point, &words.collect::<Vec<_>>(), &mut stdout())?;
    Ok(ExitCode::SUCCESS)
}
