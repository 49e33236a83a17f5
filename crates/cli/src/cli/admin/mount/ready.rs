//! Mounting in the background.
//!
//! The command runs itself again, in the foreground, as the server. It waits until the server
//! prints on its stdout that the mount can be used, or ends with the exit status of the server.
//! Until then the server prints errors on the stderr that both share; after that it has no stderr
//! and no terminal.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use nix::libc;

use super::args::MountArgs;
use crate::cli::args::Global;

/// The line that the server prints when the mount can be used.
const READY: &str = "ready\n";

/// Starts the server, and waits until the mount can be used.
pub(super) fn in_background(global: &Global, args: &MountArgs) -> Result<ExitCode> {
    let mut child = command(global, args)?.spawn().context("the server")?;
    let output = child.stdout.take().context("the server has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).context("the server")?;
    if line == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.filter(|code| *code != 0).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn command(global: &Global, args: &MountArgs) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("the command itself")?);
    // The command may have been called as a helper of mount(8).
    command.arg0("userbtrfs").args(["mount", "--notify-ready"]);
    command.args(global.quiet.then_some("--quiet"));
    command.args((0..global.verbose).map(|_| "--verbose"));
    command.args(args.words(&args.dir));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// Closes the descriptors that the caller left open, except stdin, stdout and stderr: if a server
/// kept the end of a pipe or a lock, other processes would wait until it is unmounted.
///
/// Must be called before anything is opened.
pub(super) fn close_inherited() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let inherited = numbers.filter(|number: &RawFd| *number > libc::STDERR_FILENO);
    for number in inherited.collect::<Vec<_>>() {
        // One of them is that of the listing, which is closed by now.
        let _ = nix::unistd::close(number);
    }
}

/// Prints that the mount can be used, and detaches from the process that started the server.
pub(super) fn notify() -> Result<()> {
    // It fails only for the leader of a process group, which has no terminal then.
    let _ = rustix::process::setsid();
    env::set_current_dir("/")?;
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let mut out = io::stdout();
    out.write_all(READY.as_bytes())?;
    out.flush()?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}
