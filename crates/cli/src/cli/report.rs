//! Messages on stderr, and the exit status that follows from them.
//!
//! 1. A message is one line, `userbtrfs: what: why`; called as `btrfs`, the command starts it as
//!    btrfs-progs does.
//! 2. Printing to a closed pipe is no failure of the operation; whether the rest of the output is
//!    skipped or the rest of the operation still runs is up to the caller.

use std::cell::Cell;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use userbtrfs::{PathError, Quoted};

use super::args::{Format, Global};
use super::host::status_line;

/// Returns true if an error is that of a pipe whose reader has closed it.
pub(super) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let plain = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        // `serde_json::Error` does not return the I/O error as its source.
        let json = || cause.downcast_ref::<serde_json::Error>()?.io_error_kind();
        plain.or_else(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

/// Converts the result of a verb whose operation is to print: if the reader closed the pipe, the
/// exit status is that of the failures so far.
pub(super) fn end_at_closed_pipe(done: Result<ExitCode>) -> Result<ExitCode> {
    match done {
        Err(error) if is_closed_pipe(&error) => Ok(exit_code_so_far()),
        other => other,
    }
}

/// Converts the result of printing the outcome of an operation: a closed pipe is no failure, since
/// the operation is complete.
pub(super) fn ignore_closed_pipe(done: Result<()>) -> Result<()> {
    match done {
        Err(error) if is_closed_pipe(&error) => Ok(()),
        other => other,
    }
}

fn is_filesystem_error(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<userbtrfs::Error>)
}

/// The exit status of a verb that continues after failures.
#[derive(Default)]
pub(super) struct ExitStatus(Cell<bool>);

impl ExitStatus {
    /// Reports an error of the filesystem, after which the verb continues; returns any other error.
    pub(super) fn continue_after(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if is_filesystem_error(&error) => {
                self.report(&error);
                Ok(())
            }
            other => other,
        }
    }

    /// Reports an error after which the verb continues.
    pub(super) fn report(&self, error: &anyhow::Error) {
        fail(&message(error));
        self.0.set(true);
    }

    /// Returns the exit status.
    pub(super) fn code(&self) -> ExitCode {
        if self.0.get() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Returns an error and its causes as one line. A cause that an error's own text states is not
/// repeated. Only a path is empty.
pub(super) fn message(error: &anyhow::Error) -> String {
    let texts = error.chain().map(|cause| match text_of(cause) {
        path if path.is_empty() => "''".to_owned(),
        text => text,
    });
    let join = |text: String, cause: String| {
        let cause = without_subject(&text, cause);
        if is_about(&cause, &text) {
            cause
        } else if states(&text, &cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    };
    texts.reduce(join).unwrap_or_default()
}

/// Returns the text of an error; that of a call by path is the path, as coreutils have it: the verb
/// tells the operation.
fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let failed = match error.downcast_ref() {
        Some(userbtrfs::Error::Path(failed)) => Some(&**failed),
        _ => error.downcast_ref::<PathError>(),
    };
    failed.map_or_else(|| error.to_string(), |failed| Quoted(&failed.call.path).to_string())
}

/// Returns a cause without the path that it begins with, if a message ends with that in quotes.
fn without_subject(message: &str, cause: String) -> String {
    match cause.split_once(": ") {
        Some((subject, rest)) if message.ends_with(&format!("'{subject}'")) => rest.to_owned(),
        _ => cause,
    }
}

/// Returns true if a message begins with what it is about, as "/x: no such file" with "/x".
fn is_about(message: &str, what: &str) -> bool {
    message.strip_prefix(what).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Returns true if a cause is a part of a message. Its words may occur in a name, too, so that
/// punctuation has to separate it.
fn states(message: &str, cause: &str) -> bool {
    let begins = |before: &str| {
        before.is_empty() || [": ", "; ", ", ", "("].iter().any(|end| before.ends_with(end))
    };
    let ends = |after: &str| {
        after.is_empty() || [")", ":", ";", ",", " ("].iter().any(|start| after.starts_with(start))
    };
    let is_apart =
        |(at, _): (usize, &str)| begins(&message[..at]) && ends(&message[at + cause.len()..]);
    !cause.is_empty() && message.match_indices(cause).any(is_apart)
}

/// Returns an error of a command line as one line, without the usage.
pub(super) fn one_line(error: &clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = what.split_whitespace().collect();
    anyhow!("{}", words.join(" ").trim_start_matches("error: "))
}

/// Prints a message on stderr.
pub(super) fn print_error(message: &str) {
    print_after(if speaks_as_btrfs() { "ERROR" } else { "userbtrfs" }, message);
}

fn print_after(start: &str, message: &str) {
    // An error of stderr cannot be reported.
    let text = without_os_error(message);
    status_line::without(|| drop(writeln!(io::stderr(), "{start}: {text}")));
}

/// True if messages start as those of btrfs-progs do.
static SPEAKS_AS_BTRFS: AtomicBool = AtomicBool::new(false);

fn speaks_as_btrfs() -> bool {
    SPEAKS_AS_BTRFS.load(Ordering::Relaxed)
}

/// Makes messages start as those of btrfs-progs do, from now on.
pub(super) fn speak_as_btrfs() {
    SPEAKS_AS_BTRFS.store(true, Ordering::Relaxed);
}

/// Removes the suffix ` (os error N)` of each system error in a message.
pub(super) fn without_os_error(message: &str) -> String {
    const START: &str = " (os error ";
    let mut parts = message.split(START);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number = part.split_once(')').and_then(|(number, rest)| {
            let error = io::Error::from_raw_os_error(number.parse().ok()?).to_string();
            let description = error.strip_suffix(&format!("{START}{number})"))?;
            text.ends_with(description).then_some(rest)
        });
        match number {
            Some(rest) => text.push_str(rest),
            None => text.extend([START, part]),
        }
    }
    text
}

/// Prints a line about a completed step on stdout, if `--verbose` is given and the output is text.
pub(super) fn progress(global: &Global, line: impl FnOnce() -> String) -> Result<()> {
    if !is_verbose(global) {
        return Ok(());
    }
    print_line(&line())
}

/// Prints a line about a change on stdout, as btrfs-progs does, unless `--quiet` is given or the
/// output is JSON.
pub(super) fn announce(global: &Global, line: impl FnOnce() -> String) -> Result<()> {
    if global.quiet || global.format == Format::Json {
        return Ok(());
    }
    print_line(&line())
}

fn print_line(line: &str) -> Result<()> {
    let printed = status_line::without(|| writeln!(io::stdout(), "{line}"));
    ignore_closed_pipe(printed.map_err(anyhow::Error::from))
}

/// Returns true if [`progress`] prints.
pub(super) fn is_verbose(global: &Global) -> bool {
    global.verbose > 0 && !global.quiet && global.format == Format::Text
}

/// True after a failure that did not end the verb.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Prints the message of a failure; [`exit_code_so_far`] returns a failure from now on.
pub(super) fn fail(message: &str) {
    HAS_FAILED.store(true, Ordering::Relaxed);
    print_error(message);
}

/// Returns the exit status that follows from the failures until now.
pub(super) fn exit_code_so_far() -> ExitCode {
    if HAS_FAILED.load(Ordering::Relaxed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints a warning or a note on stderr, unless `--quiet` is given.
pub(super) fn warn(global: &Global, message: &str) {
    if !global.quiet {
        print_after(if speaks_as_btrfs() { "WARNING" } else { "userbtrfs" }, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_contains_each_cause_once() {
        let missing = || io::Error::from_raw_os_error(2);
        let device =
            userbtrfs::device::DeviceError::Open { device: "/x".into(), source: missing() };
        let error = anyhow::Error::from(userbtrfs::Error::from(device)).context("/x");
        assert_eq!(message(&error), format!("/x: {}", missing()));
        let error = anyhow::Error::from(missing()).context("what");
        assert_eq!(message(&error), format!("what: {}", missing()));
        let error = anyhow::Error::msg("/x: too large").context("unable to resize '/x'");
        assert_eq!(message(&error), "unable to resize '/x': too large");
    }

    #[test]
    fn message_keeps_a_name_that_the_reason_begins_with_or_that_holds_it() {
        let of = |name: &str, error: userbtrfs::Error| {
            message(&anyhow::Error::from(error).context(name.to_owned()))
        };
        for name in ["n", "no", "no such", "x no such file or directory"] {
            let expected = format!("{name}: no such file or directory");
            assert_eq!(of(name, userbtrfs::Error::NotFound), expected);
        }
        let error = anyhow::anyhow!("reason").context("not read (reason); skipped").context("/x");
        assert_eq!(message(&error), "/x: not read (reason); skipped");
    }

    #[test]
    fn message_has_no_numbers_of_system_errors() {
        let [missing, full] = [2, 28].map(io::Error::from_raw_os_error);
        assert_eq!(without_os_error(&missing.to_string()), "No such file or directory");
        let both = format!("/x: {missing} (hint): {full}");
        let plain = "/x: No such file or directory (hint): No space left on device";
        assert_eq!(without_os_error(&both), plain);
        for name in ["/a (os error 2)", "/a (os error x): b", "(os error "] {
            assert_eq!(without_os_error(name), name);
        }
    }
}
