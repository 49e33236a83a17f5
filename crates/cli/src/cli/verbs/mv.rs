//! `mv`: renames files, and moves them to other subvolumes.

use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use userbtrfs::{Error, Filesystem, Quoted, RenameMode};

use crate::cli::paths::{Destination, Placed, with_path};
use crate::cli::report::{ExitStatus, progress};
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;
use crate::cli::verbs::destination::DestinationArgs;
use crate::cli::verbs::move_between::move_between;

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
        let mut placed = Placed::default();
        for source in sources {
            let path = source.as_encoded_bytes();
            let mut move_it = || -> Result<()> {
                let target = destination.of(path).with_context(|| shown(source))?;
                if self.mode() == RenameMode::Replace && is_same(filesystem, path, &target) {
                    let [from, to] = [path, &target].map(Quoted);
                    failures.report(&anyhow!("'{from}' and '{to}' are the same file"));
                    return Ok(());
                }
                if self.mode() == RenameMode::Replace
                    && let Err(error) = placed.check_free(filesystem, path, &target)
                {
                    failures.report(&error);
                    return Ok(());
                }
                let is_there = |path: &[u8]| filesystem.symlink_metadata(path).is_ok();
                if self.no_clobber && is_there(path) && is_there(&target) {
                    return progress(&session.global, || format!("skipped '{}'", Quoted(&target)));
                }
                if !self.move_to(session, path, &target, &failures)? {
                    return Ok(());
                }
                placed.record(path, target.clone());
                progress(&session.global, || self.describe(path, &target))
            };
            failures.continue_after(move_it())?;
        }
        Ok(failures.code())
    }
}

/// Returns true if what is at `target` is the source, or what the source leads to as a symbolic
/// link: it would be lost. Errors are left to the rename.
fn is_same(filesystem: &Filesystem, source: &[u8], target: &[u8]) -> bool {
    let at = |path| filesystem.lookup_no_follow(path).ok();
    let (Some(from), Some(to)) = (at(source), at(target)) else { return false };
    let leads_to = || filesystem.lookup(source).is_ok_and(|found| found.id() == to.id());
    from.id() == to.id() || leads_to()
}

impl MvArgs {
    /// Gives what is at `source` the name `target`; returns false if a failure was reported.
    fn move_to(
        &self,
        session: &Session,
        source: &[u8],
        target: &[u8],
        failures: &ExitStatus,
    ) -> Result<bool> {
        let filesystem = &session.filesystem;
        let renamed = filesystem.rename_with(source, target, self.mode());
        match renamed.map_err(|failed| failed.error) {
            Ok(()) => Ok(true),
            Err(Error::CrossDevice) if !self.exchange => {
                move_between(session, source, target, failures)
            }
            Err(error) => Err(with_path(filesystem, source, target, error)),
        }
    }

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
