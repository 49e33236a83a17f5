//! The command called by the name `btrfs`: it takes the command lines of btrfs-progs.
//!
//! 1. A command on paths in mounts of userbtrfs, or on an image, becomes one of our verbs. Every
//!    other command line goes unchanged to the `btrfs` of btrfs-progs.
//! 2. A command that takes several paths is split where the paths change between our mounts and
//!    others; each part is run in turn.
//! 3. btrfs-progs sees no mount of userbtrfs: a command that must not use a mounted device is
//!    refused here if a server has its image, and one that we do not have if it is about a
//!    directory in our mount.
//! 4. Errors start with `ERROR: `, as those of btrfs-progs do.

mod call;
mod commands;
mod globals;
mod hand_over;
mod place;
mod translate;
mod words;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::device::mount_of_holder;

use call::Call;
use commands::Found;
use globals::Globals;
use hand_over::hand_over;
use place::is_in_mount;

/// The groups of btrfs-progs that refuse a mounted device.
const EXCLUSIVE: [&str; 3] = ["check", "rescue", "restore"];

/// Returns true if the command was called by the name `btrfs`.
pub(super) fn is_called(words: &[OsString]) -> bool {
    let file = words.first().and_then(|name| Path::new(name).file_name());
    file.is_some_and(|file| file == "btrfs")
}

/// Returns the parts of the work of a command line; `verbs` is our command.
pub(super) fn calls(arguments: &[OsString], verbs: &clap::Command) -> Vec<Call> {
    let theirs = || refusal(arguments).unwrap_or_else(|| Call::Theirs(arguments.to_vec()));
    our_calls(arguments, verbs).unwrap_or_else(|| vec![theirs()])
}

/// Returns the refusal of a command line for btrfs-progs which that could not follow.
fn refusal(arguments: &[OsString]) -> Option<Call> {
    let (_, rest) = Globals::split(arguments)?;
    let (group, words) = commands::group(rest)?;
    if EXCLUSIVE.contains(&group) {
        return refusal_of_mounted(words);
    }
    let is_ours = |word: &&OsString| Path::new(word).is_dir() && is_in_mount(Path::new(word));
    let dir = Path::new(words.iter().find(is_ours)?).display();
    let is_command = |word: &&OsString| !word.as_encoded_bytes().starts_with(b"-");
    let command = match words.first().filter(is_command).filter(|_| commands::has_commands(group)) {
        Some(command) => format!("{group} {}", Path::new(command).display()),
        None => group.to_owned(),
    };
    Some(Call::Refused(format!("{command} is not supported on a mount of userbtrfs: {dir}")))
}

/// Returns the refusal of a command that has to have an image alone, while a mount of ours has it.
fn refusal_of_mounted(words: &[OsString]) -> Option<Call> {
    if words.iter().any(|word| word == "--force") {
        return None;
    }
    let is_mounted = |word: &&OsString| mount_of_holder(Path::new(word)).is_some();
    let image = Path::new(words.iter().find(is_mounted)?);
    Some(Call::Refused(format!("{} is currently mounted by userbtrfs", image.display())))
}

/// Returns the parts if one of them is ours; `None` if the whole command line is for the other
/// `btrfs`.
fn our_calls(arguments: &[OsString], verbs: &clap::Command) -> Option<Vec<Call>> {
    let (globals, rest) = Globals::split(arguments)?;
    let (found, rest) = Found::at(rest)?;
    let is_ours = |group| verbs.find_subcommand(group)?.find_subcommand(found.command.name);
    is_ours(found.group)?;
    let words = words::split(rest, found.command.valued)?;
    let before = &arguments[..arguments.len() - rest.len()];
    translate::calls(&globals, &found, &words, before)
}

/// Runs the parts in turn; `run` runs one of ours. The exit status is that of the last part that
/// failed.
pub(super) fn run(calls: Vec<Call>, run: impl Fn(Vec<OsString>) -> Result<ExitCode>) -> ExitCode {
    let is_single = calls.len() == 1;
    let mut code = ExitCode::SUCCESS;
    for call in calls {
        let done = match call {
            Call::Ours(words) => run(words),
            Call::Theirs(arguments) if is_single => hand_over(&arguments),
            Call::Theirs(arguments) => hand_over::run_and_wait(&arguments),
            Call::Refused(why) => Err(anyhow::anyhow!(why)),
        };
        match done {
            Ok(ExitCode::SUCCESS) => {}
            Ok(failure) => code = failure,
            Err(error) => {
                super::report::fail(&super::report::message(&error));
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
