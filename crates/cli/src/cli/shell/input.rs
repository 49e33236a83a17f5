//! The lines of the shell: from an editor if stdin and stdout are a terminal, else from stdin.
//!
//! 1. The editor keeps a history in a file of the user. If that cannot be read or written, the
//!    history is that of this shell alone.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, StdinLock};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};

use crate::cli::host::signals::{PROMPT_HINT, PromptFilesystem};
use crate::cli::report::print_error;
use crate::cli::shell::completion::ShellHelper;

/// The number of lines that the history keeps.
const HISTORY_LEN: usize = 1000;

/// The source of the lines.
pub(super) enum Input {
    /// Lines from stdin, and the number of those that were read.
    Script { stdin: StdinLock<'static>, lines: u64 },
    /// Lines that a user edits.
    Prompt { editor: Box<Editor<ShellHelper, DefaultHistory>>, history: Option<PathBuf> },
}

impl Input {
    /// Opens the input. `command` has the verbs that are completed, `filesystem` the paths.
    pub(super) fn new(command: &clap::Command, filesystem: &PromptFilesystem) -> Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || !io::stdout().is_terminal() {
            return Ok(Self::Script { stdin: stdin.lock(), lines: 0 });
        }
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY_LEN)?
            .history_ignore_space(true)
            .auto_add_history(true)
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(ShellHelper::new(command, Arc::clone(filesystem))));
        let history = history_file();
        if let Some(path) = &history {
            let _ = editor.load_history(path);
        }
        Ok(Self::Prompt { editor: Box::new(editor), history })
    }

    /// Returns true if a user enters the lines.
    pub(super) fn is_prompt(&self) -> bool {
        matches!(self, Self::Prompt { .. })
    }

    /// Returns the number of the line that was returned last.
    pub(super) fn line_number(&self) -> u64 {
        match self {
            Self::Script { lines, .. } => *lines,
            Self::Prompt { .. } => 0,
        }
    }

    /// Returns the next line, `None` at the end of the input.
    pub(super) fn next(&mut self, prompt: impl Fn() -> String) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Script { stdin, lines } => {
                let mut line = Vec::new();
                let len = stdin.read_until(b'\n', &mut line).context("standard input")?;
                *lines += 1;
                Ok((len > 0).then_some(line))
            }
            Self::Prompt { editor, .. } => loop {
                match editor.readline(&prompt()) {
                    Ok(line) => return Ok(Some(line.into_bytes())),
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(ReadlineError::Interrupted) => print_error(PROMPT_HINT),
                    // A signal that another thread handles.
                    Err(ReadlineError::Signal(_) | ReadlineError::Errno(Errno::EINTR)) => {}
                    Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {
                    }
                    Err(error) => return Err(error).context("standard input"),
                }
            },
        }
    }

    /// Reads the rest of a script; returns true if it holds a line that `is_wanted` accepts.
    pub(super) fn has_further_line(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> bool {
        let Self::Script { stdin, .. } = self else { return false };
        let mut lines = stdin.split(b'\n').map_while(Result::ok);
        lines.any(|line| is_wanted(&line))
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Self::Prompt { editor, history: Some(path) } = self {
            let _ = path.parent().map(fs::create_dir_all);
            let _ = editor.append_history(path);
        }
    }
}

/// Returns the path of the history, in the place of the XDG base directory specification.
fn history_file() -> Option<PathBuf> {
    let given = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/state"));
    Some(given.or_else(home)?.join("userbtrfs/history"))
}
