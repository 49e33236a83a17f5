//! Arguments, and which verb does what.

mod admin;
mod args;
mod host;
mod output;
mod paths;
mod shell;
mod text;
mod verb;
mod verbs;

use std::cell::Cell;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use clap::Parser as _;

use admin::mount::helper::Called;
use args::{Args, Global, Verb};

/// Runs the command.
pub(crate) fn run() -> ExitCode {
    host::signals::survive_file_size_limit();
    let args = match admin::mount::helper::arguments(std::env::args_os()) {
        Called::Command(arguments) => Args::try_parse_from(arguments),
        Called::Nothing => return ExitCode::SUCCESS,
    };
    let done = match args {
        Ok(args) => unless_closed(dispatch(&args)),
        Err(error) => explain(&error),
    };
    let done = done.and_then(|code| {
        printed(io::stdout().flush().map_err(anyhow::Error::from))?;
        Ok(code)
    });
    done.unwrap_or_else(|error| {
        complain(&message(&error));
        ExitCode::FAILURE
    })
}

/// Prints the help that was asked for, or what is wrong with the command line.
fn explain(error: &clap::Error) -> Result<ExitCode> {
    let done = error.print();
    if error.use_stderr() {
        // Where stderr is gone, there is no one to tell.
        return Ok(ExitCode::FAILURE);
    }
    printed(done.map_err(anyhow::Error::from))?;
    Ok(ExitCode::SUCCESS)
}

fn dispatch(args: &Args) -> Result<ExitCode> {
    let global = &args.global;
    match &args.verb {
        Verb::Mkfs(args) => admin::mkfs::run(global, args),
        Verb::Files(verb) => verb::run(global, verb),
        Verb::Shell(args) => shell::prompt::run(global, args),
        Verb::Mount(args) => admin::mount::run(global, args),
        Verb::Umount(args) => admin::umount::run(global, args),
        Verb::Filesystem(verb) => admin::filesystem::run(global, verb),
        Verb::Stats(args) => admin::stats::run(global, args),
        Verb::Trace(args) => admin::trace::run(global, args),
        Verb::Subvolume(verb) => admin::subvolume::run(global, verb),
        Verb::Dump(verb) => admin::dump::run(global, verb),
        Verb::Log(verb) => admin::log::run(global, verb),
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let plain = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        // This one does not tell its cause in the usual way.
        let json = || cause.downcast_ref::<serde_json::Error>()?.io_error_kind();
        plain.or_else(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

/// What became of a verb that prints what it finds: whoever closed the pipe wants no more, and what
/// failed before that has failed.
fn unless_closed(done: Result<ExitCode>) -> Result<ExitCode> {
    match done {
        Err(error) if is_closed_pipe(&error) => Ok(code_so_far()),
        other => other,
    }
}

/// What became of printing what was done: where nobody reads that, it is done all the same.
fn printed(done: Result<()>) -> Result<()> {
    match done {
        Err(error) if is_closed_pipe(&error) => Ok(()),
        other => other,
    }
}

fn is_of_image(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<userbtrfs::Error>)
}

/// Whether something of the image could not be read.
#[derive(Default)]
struct ExitStatus(Cell<bool>);

impl ExitStatus {
    /// Says an error of the image, after which the rest goes on; any other ends all.
    fn note(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if is_of_image(&error) => {
                self.say(&error);
                Ok(())
            }
            other => other,
        }
    }

    /// Says an error after which the rest goes on.
    fn say(&self, error: &anyhow::Error) {
        fail(&message(error));
        self.0.set(true);
    }

    fn code(&self) -> ExitCode {
        if self.0.get() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// An error and its causes, each said once: many name what they are about, and their cause.
fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| {
        if said.is_empty() || cause.starts_with(&said) {
            cause
        } else if said.contains(&cause) {
            said
        } else {
            format!("{said}: {cause}")
        }
    })
}

/// What is wrong with a line, without the usage.
fn in_a_line(error: &clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = what.split_whitespace().collect();
    anyhow!("{}", words.join(" ").trim_start_matches("error: "))
}

/// Says on stderr what failed.
fn complain(message: &str) {
    // Where stderr is gone, there is no one to tell.
    let _ = writeln!(io::stderr(), "userbtrfs: {message}");
}

/// Whether anything failed after which the rest went on.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Says on stderr what failed, and remembers that it did, whatever ends the rest.
fn fail(message: &str) {
    HAS_FAILED.store(true, Ordering::Relaxed);
    complain(message);
}

/// How it would end if nothing came after.
fn code_so_far() -> ExitCode {
    if HAS_FAILED.load(Ordering::Relaxed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Says on stderr what is good to know, unless it shall be quiet.
fn remark(global: &Global, message: &str) {
    if !global.quiet {
        complain(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_each_thing_once() {
        let missing = || io::Error::from_raw_os_error(2);
        let device =
            userbtrfs::device::DeviceError::Open { device: "/x".into(), source: missing() };
        let error = anyhow::Error::from(userbtrfs::Error::from(device)).context("/x");
        assert_eq!(message(&error), format!("/x: {}", missing()));
        let error = anyhow::Error::from(missing()).context("what");
        assert_eq!(message(&error), format!("what: {}", missing()));
    }
}
