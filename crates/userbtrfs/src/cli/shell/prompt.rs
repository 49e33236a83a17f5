//! `shell`: runs verbs on one image that stays open, from a prompt or from a script.
//!
//! 1. A failure is reported and the next line follows; the exit status is 1 at the end.
//! 2. A closed pipe on stdout ends the shell, as the end of the input does; if lines remain, that
//!    is a failure.
//! 3. Changes are durable after `sync` and at the end of the input. `crash` ends at once, and loses
//!    changes that are not durable.
//! 4. A signal stops a copy. It ends a script too, and changes that are not durable are lost; at a
//!    prompt the next line follows. If no copy runs, SIGINT shows a hint at a prompt, and SIGTERM
//!    and SIGHUP commit and end the process; a script is ended at once.

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use userbtrfs::Filesystem;

use crate::cli::admin::stats;
use crate::cli::admin::trace;
use crate::cli::admin::trace::TraceArgs;
use crate::cli::args::{Global, PathsArgs, WriteArgs};
use crate::cli::host::signals::{
    Interrupted, PromptFilesystem, end_by_signal, forget_signal, handle_prompt_signals,
};
use crate::cli::output::stdout;
use crate::cli::paths::each;
use crate::cli::report::{exit_code_so_far, is_closed_pipe, message, one_line, print_error};
use crate::cli::session::{Access, Session};
use crate::cli::shell::words::words;
use crate::cli::verb::{self, FileVerb};

#[derive(clap::Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Open the image read-only
    #[arg(short, long)]
    read_only: bool,
}

/// Commands: a verb and its arguments, without the image
#[derive(Parser)]
#[command(name = "", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: LineVerb,
}

#[derive(Subcommand)]
enum LineVerb {
    #[command(flatten)]
    Files(FileVerb<(), ()>),
    /// Commit all changes
    Sync,
    /// fsync files
    Fsync(PathsArgs),
    /// Show state and counters
    Stats,
    /// Print result, amount and timing of each later fsync
    Trace(TraceArgs),
    /// Exit without a commit
    Crash,
    /// Commit and exit
    #[command(alias = "quit")]
    Exit,
}

/// The step after a line.
enum Next {
    Line(ExitCode),
    Close,
    Crash,
}

pub(crate) fn run(global: &Global, args: &ShellArgs) -> Result<ExitCode> {
    let WriteArgs { root, discard } = &args.image;
    let access = if args.read_only { Access::Read } else { Access::Write { discard: *discard } };
    let mut session = Session::open(global, root, access)?;
    let mut input = io::stdin().lock();
    let prompt = input.is_terminal() && io::stdout().is_terminal();
    let mut exit_code = ExitCode::SUCCESS;
    let mut is_input_left = false;
    let shared = PromptFilesystem::default();
    if prompt {
        *shared.lock().expect("no holder panics") = Some(session.filesystem.clone());
        handle_prompt_signals(Arc::clone(&shared))?;
    }
    loop {
        if prompt {
            write!(io::stdout(), "userbtrfs> ")?;
            io::stdout().flush()?;
        }
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line).context("standard input")? == 0 {
            break;
        }
        session.begin(global);
        match run_line(&mut session, &line) {
            Ok(Next::Line(code)) if code == ExitCode::SUCCESS => {}
            Ok(Next::Line(code)) => exit_code = code,
            Ok(Next::Close) => break,
            Ok(Next::Crash) => {
                shared.lock().expect("no holder panics").take();
                session.filesystem.abandon();
                return Ok(exit_code);
            }
            Err(error) if is_closed_pipe(&error) => {
                if exit_code_so_far() != ExitCode::SUCCESS {
                    exit_code = ExitCode::FAILURE;
                }
                is_input_left = true;
                break;
            }
            Err(error) => {
                print_error(&message(&error));
                exit_code = ExitCode::FAILURE;
                // The signal stops the whole script.
                if error.is::<Interrupted>() && !prompt {
                    session.stop()?;
                    end_by_signal();
                    return Ok(exit_code);
                }
                forget_signal();
            }
        }
    }
    shared.lock().expect("no holder panics").take();
    session.close()?;
    // Only now is the rest of the input read: its writer may wait until the image is closed.
    if is_input_left && !input.is_terminal() && has_further_command(&mut input) {
        print_error("stdout closed; remaining commands skipped");
        exit_code = ExitCode::FAILURE;
    }
    Ok(exit_code)
}

/// Returns true if the rest of the input holds a line that is not `exit`, `quit` or `sync`.
fn has_further_command(input: &mut impl BufRead) -> bool {
    let is_end = |words: &[Vec<u8>]| match words {
        [] => true,
        [word] => [&b"exit"[..], b"quit", b"sync"].contains(&&**word),
        _ => false,
    };
    let mut lines = input.split(b'\n').map_while(std::result::Result::ok);
    lines.any(|line| !words(&line).is_ok_and(|words| is_end(&words)))
}

fn run_line(session: &mut Session, line: &[u8]) -> Result<Next> {
    let words = words(line)?;
    if words.is_empty() {
        return Ok(Next::Line(ExitCode::SUCCESS));
    }
    let line: Line = match verb::parse(words.into_iter().map(OsString::from_vec), "", "") {
        Ok(line) => line,
        Err(help) if !help.use_stderr() => {
            help.print()?;
            return Ok(Next::Line(ExitCode::SUCCESS));
        }
        Err(error) => return Err(one_line(&error)),
    };
    session.global.join(&line.global);
    match &line.verb {
        LineVerb::Files(verb) => {
            let (_, verb) = verb.parts();
            let code = verb.run(session)?;
            io::stdout().flush()?;
            Ok(Next::Line(code))
        }
        LineVerb::Sync => {
            session.filesystem.commit().context("sync")?;
            Ok(Next::Line(ExitCode::SUCCESS))
        }
        LineVerb::Fsync(args) => {
            each(&args.paths, |path| fsync(&session.filesystem, path)).map(Next::Line)
        }
        LineVerb::Stats => {
            let mut out = stdout();
            stats::write(&mut out, &session.filesystem, None, session.global.format)?;
            out.flush()?;
            Ok(Next::Line(ExitCode::SUCCESS))
        }
        LineVerb::Trace(args) => {
            trace::set(&session.filesystem, args, session.global.format);
            Ok(Next::Line(ExitCode::SUCCESS))
        }
        LineVerb::Crash => Ok(Next::Crash),
        LineVerb::Exit => Ok(Next::Close),
    }
}

/// Makes the inode at a path durable.
fn fsync(filesystem: &Filesystem, path: &[u8]) -> Result<()> {
    Ok(filesystem.lookup(path)?.sync_all()?)
}
