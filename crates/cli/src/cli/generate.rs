//! `generate`: writes the manual pages and the shell completions, for a package or an installation.
//!
//! 1. What a verb is called and takes is read from the command line's own definition.
//! 2. Everything else is a document of the project, which `man` converts.

mod document;
mod inline;
mod man;
mod page;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Command, Subcommand};
use clap_complete::Shell;

use super::output::stdout;
use page::NAME;

#[derive(Subcommand)]
pub(crate) enum GenerateVerb {
    /// Write manual pages into a directory
    Man {
        /// Directory, created if missing
        dir: PathBuf,
        /// Also convert the documents in this directory
        #[arg(long, value_name = "DIR")]
        docs: Option<PathBuf>,
    },
    /// Print the completions for a shell
    Completions {
        /// Shell
        shell: Shell,
    },
}

/// A document that becomes a manual page.
struct Document {
    file: &'static str,
    /// The name of the page, and its further names.
    names: &'static [&'static str],
    section: &'static str,
    purpose: &'static str,
}

/// The documents that become manual pages.
const DOCUMENTS: [Document; 3] = [
    Document {
        file: "mount.md",
        names: &["userbtrfs"],
        section: "5",
        purpose: "mount options and limits of mounts of userbtrfs",
    },
    Document {
        file: "command.md",
        names: &["userbtrfs"],
        section: "7",
        purpose: "reference of the command userbtrfs",
    },
    Document {
        file: "mount-helper.md",
        names: &["mount.fuse.userbtrfs", "umount.fuse.userbtrfs"],
        section: "8",
        purpose: "helpers of mount(8) and umount(8) for userbtrfs",
    },
];

/// Runs the verb. `command` is the definition of the command line.
pub(crate) fn run(verb: &GenerateVerb, command: Command) -> Result<ExitCode> {
    match verb {
        GenerateVerb::Man { dir, docs } => {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            for (file, text) in man::pages(command) {
                write(dir, &file, &text)?;
            }
            if let Some(docs) = docs {
                DOCUMENTS.iter().try_for_each(|document| convert(document, docs, dir))?;
            }
        }
        GenerateVerb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut without_hidden(&command), NAME, &mut script);
            stdout().write_all(&script)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a command with the names and texts of another one, without its hidden subcommands and
/// arguments, which completions would have.
fn without_hidden(command: &Command) -> Command {
    // The parser takes only names that are never freed; the process ends after this.
    let leak = |text: &str| -> &'static str { text.to_owned().leak() };
    let mut shown = Command::new(leak(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .visible_aliases(command.get_visible_aliases().map(leak))
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_help_subcommand(command.is_disable_help_subcommand_set())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()))
        .subcommands(command.get_subcommands().filter(|it| !it.is_hide_set()).map(without_hidden));
    if let Some(version) = command.get_version() {
        shown = shown.version(leak(version));
    }
    shown
}

/// Writes the pages of a document: one, and a reference to it by each further name.
fn convert(document: &Document, docs: &Path, dir: &Path) -> Result<()> {
    let path = docs.join(document.file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let Document { names, section, purpose, .. } = document;
    let (first, others) = names.split_first().expect("a document has a name");
    let page = document::page(names, section, purpose, &text);
    write(dir, &format!("{first}.{section}"), &page)?;
    let link = format!(".so man{section}/{first}.{section}\n");
    others.iter().try_for_each(|name| write(dir, &format!("{name}.{section}"), &link))
}

fn write(dir: &Path, file: &str, text: &str) -> Result<()> {
    let path = dir.join(file);
    fs::write(&path, text).with_context(|| path.display().to_string())
}
