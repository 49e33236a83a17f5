//! `setfattr`: sets and removes extended attributes.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::{Quoted, XattrMode};

use crate::cli::args::Global;
use crate::cli::paths::{Traversal, each_inode};
use crate::cli::report::progress;
use crate::cli::session::{RunVerb, Session};
use crate::cli::verbs::encoding::decode;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[command(group = clap::ArgGroup::new("attribute").required(true))]
pub(crate) struct SetfattrArgs {
    /// Attribute to set
    #[arg(short, long, group = "attribute")]
    name: Option<OsString>,
    /// Value: text, text in double quotes, 0x and hexadecimal digits, or 0s and base64
    #[arg(short = 'v', long, requires = "name")]
    value: Option<OsString>,
    /// Attribute to remove
    #[arg(short = 'x', long, value_name = "NAME", group = "attribute")]
    remove: Option<OsString>,
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Change symbolic links, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print progress
    // Replaces the global option, whose letter `-v` is `--value` here.
    #[arg(long, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl RunVerb for SetfattrArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let value = self.value.as_ref().map_or(Ok(Vec::new()), |value| {
            decode(value.as_encoded_bytes()).with_context(|| value.display().to_string())
        })?;
        let traversal = Traversal { recursive: false, follow: !self.no_dereference };
        // The option takes the place of the global one.
        let global = Global { verbose: self.verbose, ..session.global.clone() };
        each_inode(&session.filesystem, &self.paths, traversal, |path, inode| {
            if let Some(name) = &self.name {
                inode.set_xattr(name.as_encoded_bytes(), &value, XattrMode::Either)?;
                let name = Quoted(name.as_encoded_bytes());
                progress(&global, || format!("set attribute '{name}' of '{}'", Quoted(path)))?;
            }
            if let Some(name) = &self.remove {
                inode.remove_xattr(name.as_encoded_bytes())?;
                let name = Quoted(name.as_encoded_bytes());
                progress(&global, || format!("removed attribute '{name}' of '{}'", Quoted(path)))?;
            }
            Ok(())
        })
    }
}
