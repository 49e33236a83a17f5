//! `mv`: renames files.

use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use userbtrfs::{Error, Filesystem, Quoted, RenameMode};

use crate::cli::paths::{Destination, with_path};
use crate::cli::report::{ExitStatus, progress};
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;
use crate::cli::verbs::destination::DestinationArgs;

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of mv")]
pub(crate) struct MvArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// Skip files whose new name exists
    #[arg(short, long, conflicts_with = "exchange", overrides_with = "force")]
    no_clobber: bool,
    /// Replace existing files (default)
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    /// Exchange source and destination
    #[arg(long)]
    exchange: bool,
}

impl RunVerb for MvArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let plain = self.destination.no_target_directory || self.exchange;
        let paths = self.destination.expanded_paths(session)?;
        let (sources, destination) = Destination::split(filesystem, &paths, plain)?;
        let failures = ExitStatus::default();
        for source in sources {
            let path = source.as_encoded_bytes();
            let move_it = || -> Result<()> {
                let target = destination.of(path).with_context(|| shown(source))?;
                if self.mode() == RenameMode::Replace {
                    match Place::of(filesystem, path, &target) {
                        Place::Same => {
                            let [from, to] = [path, &target].map(Quoted);
                            failures.report(&anyhow!("'{from}' and '{to}' are the same file"));
                            return Ok(());
                        }
                        // A rename to another name of the same inode has no effect.
                        Place::OtherName => {
                            filesystem.remove_file(path).with_context(|| shown(source))?;
                            return progress(&session.global, || self.describe(path, &target));
                        }
                        Place::Other => {}
                    }
                }
                let renamed = filesystem.rename_with(path, &target, self.mode());
                if self.no_clobber && matches!(renamed, Err(Error::Exists)) {
                    return progress(&session.global, || format!("skipped '{}'", Quoted(&target)));
                }
                renamed.map_err(|error| with_path(filesystem, path, &target, error))?;
                progress(&session.global, || self.describe(path, &target))
            };
            failures.continue_after(move_it())?;
        }
        Ok(failures.code())
    }
}

/// The file at the new name of a file that is moved.
enum Place {
    /// The file itself under its old name.
    Same,
    /// The file under another of its names.
    OtherName,
    /// Another file, or none.
    Other,
}

impl Place {
    /// Returns what is at `target`; errors are left to the rename.
    fn of(filesystem: &Filesystem, source: &[u8], target: &[u8]) -> Self {
        let find = |path: &[u8]| -> Result<_, Error> {
            let (dir, name) = filesystem.open_parent_to_remove(path)?;
            let inode = dir.lookup(&name)?;
            Ok((dir.inode().id(), name, inode))
        };
        let (Ok(from), Ok(to)) = (find(source), find(target)) else { return Self::Other };
        let is_dir = || from.2.metadata().is_ok_and(|metadata| metadata.is_dir());
        if from.2.id() != to.2.id() {
            Self::Other
        } else if from.0 == to.0 && from.1 == to.1 {
            Self::Same
        } else if is_dir() {
            Self::Other
        } else {
            Self::OtherName
        }
    }
}

impl MvArgs {
    /// Returns the line of `--verbose`, as mv(1) prints it.
    fn describe(&self, source: &[u8], target: &[u8]) -> String {
        let source = Quoted(source);
        let target = Quoted(target);
        if self.exchange {
            format!("exchanged '{source}' <-> '{target}'")
        } else {
            format!("renamed '{source}' -> '{target}'")
        }
    }

    fn mode(&self) -> RenameMode {
        match (self.exchange, self.no_clobber) {
            (true, _) => RenameMode::Exchange,
            (false, true) => RenameMode::NoReplace,
            (false, false) => RenameMode::Replace,
        }
    }
}
