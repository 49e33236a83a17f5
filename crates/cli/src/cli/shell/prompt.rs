//! `shell`: runs verbs on one image that stays open, from a prompt or from a script.
//!
//! 1. A failure is reported and the next line follows, unless `--stop-on-error` is given; the exit
//!    status is 1 at the end.
//! 2. A closed pipe on stdout ends the shell, as the end of the input does; if lines remain, that
//!    is a failure.
//! 3. Changes are durable after `sync` and at the end of the input. `crash` ends at once, and loses
//!    changes that are not durable.
//! 4. A signal stops a copy. It ends a script too, and changes that are not durable are lost; at a
//!    prompt the next line follows. If no copy runs, SIGINT shows a hint at a prompt, and SIGTERM
//!    and SIGHUP commit and end the process; a script is ended at once.
//! 5. The prompt shows the directory in the image, and `*` if there are uncommitted changes.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};
use userbtrfs::{Filesystem, Quoted, join_path};

use crate::cli::admin::stats;
use crate::cli::admin::trace;
use crate::cli::admin::trace::TraceArgs;
use crate::cli::args::{Global, PathsArgs, WriteArgs};
use crate::cli::host::signals::{
    Interrupted, PromptFilesystem, end_by_signal, forget_signal, handle_prompt_signals,
};
use crate::cli::output::stdout;
use crate::cli::paths::each;
use crate::cli::quoted::QuotedWords;
use crate::cli::report::{exit_code_so_far, is_closed_pipe, message, one_line, print_error};
use crate::cli::session::{Access, Session};
use crate::cli::shell::input::Input;
use crate::cli::shell::words::words;
use crate::cli::verb::{self, FileVerb};

#[derive(clap::Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Open the image read-only
    #[arg(short, long)]
    read_only: bool,
    /// Stop a script at the first line that fails
    #[arg(short = 'e', long)]
    stop_on_error: bool,
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
    Files(Box<FileVerb<(), ()>>),
    /// Change the directory in the image, in which relative paths start
    Cd(CdArgs),
    /// Print the directory in the image
    Pwd,
    /// Change the directory on the host
    Lcd(LcdArgs),
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

#[derive(clap::Args)]
struct CdArgs {
    /// Directory, or - for the one before
    #[arg(default_value = "/")]
    dir: OsString,
}

#[derive(clap::Args)]
struct LcdArgs {
    /// Directory [default: the home directory]
    dir: Option<PathBuf>,
}

/// The step after a line.
enum Next {
    Line(ExitCode),
    Close,
    Crash,
}

/// A shell that runs.
struct Shell {
    session: Session,
    /// The filesystem as the threads for signals and completion use it.
    shared: PromptFilesystem,
    /// The directory in the image, and the one before.
    dir: Vec<u8>,
    last_dir: Vec<u8>,
}

pub(crate) fn run(global: &Global, args: &ShellArgs) -> Result<ExitCode> {
    let mut shell = Shell::open(global, args)?;
    let mut input = Input::new(&Line::command(), &shell.shared)?;
    let is_prompt = input.is_prompt();
    if is_prompt {
        *shell.shared.lock().expect("no holder panics") = Some(shell.session.filesystem.clone());
        handle_prompt_signals(Arc::clone(&shell.shared))?;
    }
    let mut exit_code = ExitCode::SUCCESS;
    let mut is_input_left = false;
    while let Some(line) = input.next(|| shell.prompt())? {
        shell.session.begin(global);
        let code = match shell.run_line(&line) {
            Ok(Next::Line(code)) => code,
            Ok(Next::Close) => break,
            Ok(Next::Crash) => {
                shell.shared.lock().expect("no holder panics").take();
                shell.session.filesystem.abandon();
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
                // The signal stops the whole script.
                if error.is::<Interrupted>() && !is_prompt {
                    shell.session.stop()?;
                    end_by_signal();
                    return Ok(ExitCode::FAILURE);
                }
                forget_signal();
                ExitCode::FAILURE
            }
        };
        if code != ExitCode::SUCCESS {
            exit_code = code;
            if args.stop_on_error && !is_prompt {
                let number = input.line_number();
                print_error(&format!("line {number}: failed; remaining lines skipped"));
                break;
            }
        }
    }
    shell.shared.lock().expect("no holder panics").take();
    shell.session.close()?;
    // Only now is the rest of the input read: its writer may wait until the image is closed.
    if is_input_left && input.has_further_line(|line| !is_end(line)) {
        print_error("stdout closed; remaining commands skipped");
        exit_code = ExitCode::FAILURE;
    }
    Ok(exit_code)
}

/// Returns true if a line is empty, `exit`, `quit` or `sync`.
fn is_end(line: &[u8]) -> bool {
    words(line).is_ok_and(|words| match &words[..] {
        [] => true,
        [word] => [&b"exit"[..], b"quit", b"sync"].contains(&&*word.bytes),
        _ => false,
    })
}

impl Shell {
    fn open(global: &Global, args: &ShellArgs) -> Result<Self> {
        let WriteArgs { root, discard } = &args.image;
        let writes = Access::Write { discard: *discard };
        let access = if args.read_only { Access::Read } else { writes };
        let mut session = Session::open(global, root, access)?;
        session.may_read_stdin = false;
        // `lcd` changes what a relative path means.
        session.image = session.image.canonicalize().unwrap_or(session.image);
        let shared = PromptFilesystem::default();
        Ok(Self { session, shared, dir: Vec::new(), last_dir: Vec::new() })
    }

    fn prompt(&self) -> String {
        let place =
            if self.dir.is_empty() { String::new() } else { format!(":{}", Quoted(&self.dir)) };
        let mark = if self.session.filesystem.has_uncommitted() { "*" } else { "" };
        format!("userbtrfs{place}{mark}> ")
    }

    /// Returns the path of the directory in the image.
    fn dir(&self) -> &[u8] {
        if self.dir.is_empty() { b"/" } else { &self.dir }
    }

    /// Changes the directory in the image. As in a shell, `..` is the directory above in the path.
    fn change_dir(&mut self, dir: &OsStr) -> Result<Next> {
        let is_back = dir == "-";
        let new = if is_back {
            self.last_dir.clone()
        } else {
            let start: &[u8] = if is_absolute(dir) { b"" } else { &self.dir };
            normal_path(&join_path(start, dir.as_encoded_bytes()))
        };
        let session = &mut self.session;
        let path: &[u8] = if new.is_empty() { b"/" } else { &new[..] };
        drop(session.filesystem.open_dir(path).with_context(|| Quoted(path).to_string())?);
        session.filesystem = session.filesystem.in_working_dir(path);
        session.start = if new.is_empty() { "/" } else { "." }.into();
        if let Some(shared) = self.shared.lock().expect("no holder panics").as_mut() {
            *shared = session.filesystem.clone();
        }
        self.last_dir = std::mem::replace(&mut self.dir, new);
        if is_back {
            writeln!(io::stdout(), "{}", Quoted(self.dir()))?;
        }
        Ok(Next::Line(ExitCode::SUCCESS))
    }

    fn run_line(&mut self, line: &[u8]) -> Result<Next> {
        let words = words(line)?;
        if words.is_empty() {
            return Ok(Next::Line(ExitCode::SUCCESS));
        }
        self.session.quoted = QuotedWords::of(&words);
        let words = words.into_iter().map(|word| OsString::from_vec(word.bytes));
        let line: Line = match verb::parse(words, "", "") {
            Ok(line) => line,
            Err(help) if !help.use_stderr() => {
                help.print()?;
                return Ok(Next::Line(ExitCode::SUCCESS));
            }
            Err(error) => return Err(one_line(&error)),
        };
        let session = &mut self.session;
        session.global.join(&line.global);
        match &line.verb {
            LineVerb::Files(verb) => {
                let (_, verb) = verb.parts();
                let code = verb.run(session)?;
                io::stdout().flush()?;
                Ok(Next::Line(code))
            }
            LineVerb::Cd(args) => self.change_dir(&args.dir),
            LineVerb::Pwd => {
                writeln!(io::stdout(), "{}", Quoted(self.dir()))?;
                Ok(Next::Line(ExitCode::SUCCESS))
            }
            LineVerb::Lcd(args) => lcd(session, args),
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
}

fn is_absolute(path: &OsStr) -> bool {
    path.as_encoded_bytes().starts_with(b"/")
}

/// Returns an absolute path without `.`, `..` and superfluous slashes; empty for the root.
fn normal_path(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.iter().flat_map(|name| [b"/".as_slice(), name].concat()).collect()
}

/// Changes the directory on the host.
fn lcd(session: &Session, args: &LcdArgs) -> Result<Next> {
    let dir = match &args.dir {
        Some(dir) => session.host_path(dir.as_os_str())?,
        None => env::var_os("HOME").context("HOME is not set")?,
    };
    let dir = PathBuf::from(dir);
    env::set_current_dir(&dir).with_context(|| dir.display().to_string())?;
    Ok(Next::Line(ExitCode::SUCCESS))
}

/// Makes the inode at a path durable.
fn fsync(filesystem: &Filesystem, path: &[u8]) -> Result<()> {
    Ok(filesystem.lookup(path)?.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_path_has_names_only() {
        for (path, normal) in [
            (&b"/a/../b"[..], &b"/b"[..]),
            (b"/..", b""),
            (b"//a/./b/", b"/a/b"),
            (b"a", b"/a"),
            (b"", b""),
        ] {
            assert_eq!(normal_path(path), normal, "{path:?}");
        }
    }
}
