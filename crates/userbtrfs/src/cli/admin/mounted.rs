//! Verbs on a mount: its server does them, and what it prints is printed here.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::mount::control::{self, AskError};

use crate::cli::args::{Format, Global};
use crate::cli::host::retry::patiently;
use crate::cli::output::stdout;

/// Asks the server of the mount at `point`, in words of a command line.
pub(in crate::cli) fn ask(global: &Global, point: &Path, words: &[OsString]) -> Result<ExitCode> {
    let json: &[&str] = if global.format == Format::Json { &["--format", "json"] } else { &[] };
    let format = json.iter().map(|word| word.as_bytes());
    let words = format.chain(words.iter().map(|word| OsStr::as_encoded_bytes(word)));
    let words: Vec<_> = words.collect();
    patiently(|| control::ask(point, &words, &mut stdout()), is_beginning)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the server of the mount that `path` lies in.
pub(in crate::cli) fn ask_of_any(
    global: &Global,
    path: &Path,
    words: &[OsString],
) -> Result<ExitCode> {
    match control::check(path) {
        Err(AskError::Within { mount, .. }) => ask(global, &mount, words),
        _ => ask(global, path, words),
    }
}

/// Whether there may be an answer soon: a mount is there before its server answers.
fn is_beginning(error: &AskError) -> bool {
    matches!(error, AskError::NoServer { .. })
}
