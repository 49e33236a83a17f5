//! The command line, and which verb does what.

mod admin;
mod args;
mod block_groups;
mod compression;
mod dates;
mod dropin;
mod generate;
mod globs;
mod host;
mod output;
mod owners;
mod paths;
mod predicates;
mod quoted;
mod report;
mod session;
mod shell;
mod size_units;
mod sizes;
mod text;
mod tips;
mod verb;
mod verbs;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};

use admin::dump::DumpVerb;
use admin::filesystem::FilesystemVerb;
use admin::log::LogVerb;
use admin::mkfs::MkfsArgs;
use admin::mount::MountArgs;
use admin::mount::helper::Invocation;
use admin::stats::StatsArgs;
use admin::subvolume::SubvolumeVerb;
use admin::subvolume::property::PropertyVerb;
use admin::top::TopArgs;
use admin::trace::TraceMountArgs;
use admin::umount::UmountArgs;
use args::{Global, RootArgs, WriteArgs};
use generate::GenerateVerb;
use report::{end_at_closed_pipe, ignore_closed_pipe, message, one_line, print_error};
use shell::prompt::ShellArgs;
use verb::FileVerb;

/// btrfs in user space: read, make, change and mount images and block devices without the kernel
/// driver
#[derive(Parser)]
#[command(name = "userbtrfs", version)]
struct Args {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

/// A verb with its arguments.
#[derive(Subcommand)]
enum Verb {
    /// Make a filesystem; create the image file if it does not exist
    Mkfs(MkfsArgs),
    #[command(flatten)]
    Files(FileVerb<RootArgs, WriteArgs>),
    /// Run commands on one image, interactively or from stdin
    Shell(ShellArgs),
    /// Mount an image by FUSE
    Mount(MountArgs),
    /// Unmount, and wait until the image is closed
    Umount(UmountArgs),
    /// Act on a filesystem as a whole
    #[command(subcommand)]
    Filesystem(FilesystemVerb),
    /// Show the state and counters of a mount
    Stats(StatsArgs),
    /// Show the activity of a mount, live
    Top(TopArgs),
    /// Print result, amount and timing of each fsync, until the mount ends
    Trace(TraceMountArgs),
    /// Show and change subvolumes of an image or a mount
    #[command(subcommand)]
    Subvolume(SubvolumeVerb),
    /// Show and set properties of subvolumes
    #[command(subcommand)]
    Property(PropertyVerb),
    /// Print on-disk structures
    #[command(subcommand)]
    Dump(DumpVerb),
    /// Replay, salvage or discard a pending log
    #[command(subcommand)]
    Log(LogVerb),
    /// Write manual pages and shell completions
    #[command(subcommand, hide = true)]
    Generate(GenerateVerb),
}

/// The words before and after the name of a verb.
const PROGRAM: &str = "userbtrfs ";
const IMAGE: &str = "<IMAGE> ";

/// Runs the command.
pub(crate) fn run() -> ExitCode {
    host::signals::catch_file_size_signal();
    let words: Vec<_> = std::env::args_os().collect();
    if dropin::is_called(&words) {
        report::speak_as_btrfs();
        let calls = dropin::calls(&words[1..], &Args::command());
        return dropin::run(calls, run_as_btrfs);
    }
    let args = match admin::mount::helper::arguments(words.into_iter()) {
        Invocation::Command(arguments) => {
            let arguments = admin::filesystem::defragment::with_equals(arguments);
            verb::parse(arguments, PROGRAM, IMAGE)
        }
        Invocation::Nothing => return ExitCode::SUCCESS,
    };
    let done = match args {
        Ok(args) => end_at_closed_pipe(dispatch(&args)),
        Err(error) => explain(&error),
    };
    flush_after(done).unwrap_or_else(|error| {
        print_error(&message(&error));
        host::signals::end_by_signal();
        ExitCode::FAILURE
    })
}

/// Runs a verb for a command line of btrfs-progs.
fn run_as_btrfs(words: Vec<OsString>) -> Result<ExitCode> {
    let words = admin::filesystem::defragment::with_equals(words);
    let mut args: Args = verb::parse(words, "btrfs ", "").map_err(|error| one_line(&error))?;
    args.global.raw_names = true;
    flush_after(end_at_closed_pipe(dispatch(&args)))
}

fn flush_after(done: Result<ExitCode>) -> Result<ExitCode> {
    let code = done?;
    ignore_closed_pipe(io::stdout().flush().map_err(anyhow::Error::from))?;
    Ok(code)
}

/// Prints the help that was requested, or the error of the command line.
fn explain(error: &clap::Error) -> Result<ExitCode> {
    let done = error.print();
    if error.use_stderr() {
        // An error of stderr cannot be reported.
        return Ok(ExitCode::FAILURE);
    }
    ignore_closed_pipe(done.map_err(anyhow::Error::from))?;
    Ok(ExitCode::SUCCESS)
}

fn dispatch(args: &Args) -> Result<ExitCode> {
    let global = &args.global;
    match &args.verb {
        Verb::Mkfs(args) => admin::mkfs::run(global, args),
        Verb::Files(verb) => verb::run(global, verb),
        Verb::Shell(args) => shell::prompt::run(global, args),
        Verb::Mount(args) => admin::mount::run(global, args),
        Verb::Umount(args) => Ok(admin::umount::run(global, args)),
        Verb::Filesystem(verb) => admin::filesystem::run(global, verb),
        Verb::Stats(args) => admin::stats::run(global, args),
        Verb::Top(args) => admin::top::run(global, args),
        Verb::Trace(args) => admin::trace::run(global, args),
        Verb::Subvolume(verb) => admin::subvolume::run(global, verb),
        Verb::Property(verb) => admin::subvolume::property::run(global, verb),
        Verb::Dump(verb) => admin::dump::run(global, verb),
        Verb::Log(verb) => admin::log::run(global, verb),
        Verb::Generate(verb) => {
            generate::run(verb, verb::with_usages(Args::command(), PROGRAM, IMAGE))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
