//! Verbs on a mount: the server runs them, and its output is printed here.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::mount::control::{self, AskError, Remaining};

use crate::cli::args::{Format, Global};
use crate::cli::host::retry::retry;
use crate::cli::output::stdout;

/// Sends words of a command line to the server of the mount at `point`, and prints the answer.
pub(in crate::cli) fn request(
    global: &Global,
    point: &Path,
    words: &[OsString],
) -> Result<ExitCode> {
    let mut whole = Vec::new();
    if global.format == Format::Json {
        whole.extend(["--format", "json"].map(str::as_bytes));
    }
    whole.extend(global.raw_names.then_some(&b"--raw-names"[..]));
    whole.extend(words.iter().map(|word| OsStr::as_encoded_bytes(word)));
    retry(|| control::ask(point, &whole, &mut stdout()), is_starting)?;
    Ok(ExitCode::SUCCESS)
}

/// Sends words of a command line to the server of the mount that contains `path`.
pub(in crate::cli) fn request_at(
    global: &Global,
    path: &Path,
    words: &[OsString],
) -> Result<ExitCode> {
    match control::check(path) {
        Err(AskError::Within { mount, .. }) => request(global, &mount, words),
        _ => request(global, path, words),
    }
}

/// Returns true if the server may answer soon: a mount exists before its server answers.
fn is_starting(error: &AskError) -> bool {
    matches!(error, AskError::NoServer { .. })
}

/// Returns the mount point that contains `path`; `path` itself if it is one.
pub(in crate::cli) fn mount_of(path: &Path) -> PathBuf {
    match control::check(path) {
        Err(AskError::Within { mount, .. }) => mount,
        _ => path.to_owned(),
    }
}

/// Sends words of a command line to the server of the mount that contains `path`, and returns the
/// answer.
pub(in crate::cli) fn answer_at(path: &Path, words: &[OsString]) -> Result<Vec<u8>> {
    answer_of(&mount_of(path), words)
}

/// Sends words of a command line to the server of the mount at `mount`, and returns the answer.
pub(in crate::cli) fn answer_of(mount: &Path, words: &[OsString]) -> Result<Vec<u8>> {
    watched_answer_of(mount, words, &mut |_| ())
}

/// Like [`answer_at`], for words that ask for the progress, which is passed to `report`.
pub(in crate::cli) fn watched_answer_at(
    path: &Path,
    words: &[OsString],
    report: &mut dyn FnMut(Remaining),
) -> Result<Vec<u8>> {
    watched_answer_of(&mount_of(path), words, report)
}

fn watched_answer_of(
    mount: &Path,
    words: &[OsString],
    report: &mut dyn FnMut(Remaining),
) -> Result<Vec<u8>> {
    let words: Vec<_> = words.iter().map(|word| OsStr::as_encoded_bytes(word)).collect();
    let mut answer = Vec::new();
    retry(|| control::ask_watched(mount, &words, &mut answer, report), is_starting)?;
    Ok(answer)
}
