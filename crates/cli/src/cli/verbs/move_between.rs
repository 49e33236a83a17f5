//! A move to another subvolume, which mv(1) does between filesystems: a copy with all attributes,
//! which shares the data, and the removal of the source when its copy is complete.

use std::sync::atomic::AtomicBool;

use anyhow::{Result, anyhow};
use userbtrfs::copy::{Copier, CopyError, CopyOptions, ImageSource, ImageTarget, Progress};
use userbtrfs::{Error, Filesystem, Quoted};

use crate::cli::host::meter::Total;
use crate::cli::host::progress::while_watched;
use crate::cli::host::signals::Interrupted;
use crate::cli::host::totals::of_image_trees;
use crate::cli::paths::with_path;
use crate::cli::report::{ExitStatus, fail};
use crate::cli::session::Session;

/// Moves the tree at `source` to the name `target`, and returns true. If a part of it cannot be
/// copied, reports that, keeps the source, and returns false.
pub(super) fn move_between(
    session: &Session,
    source: &[u8],
    target: &[u8],
    failures: &ExitStatus,
) -> Result<bool> {
    let filesystem = &session.filesystem;
    let about = |error| with_path(filesystem, source, target, error);
    let inode = filesystem.lookup_no_follow(source)?;
    let is_dir = inode.metadata()?.is_dir();
    make_way(filesystem, target, is_dir).map_err(about)?;
    let (dir, name) = filesystem.open_parent(target)?;
    let place = ImageTarget { dir: &dir, name: Some(&name), path: target };

    let progress = Progress::default();
    let copier = Copier::new(CopyOptions::default(), &progress);
    let report = |error: CopyError| fail(&error.to_string());
    let total = |stop: &AtomicBool| of_image_trees([inode.clone()], stop);
    while_watched(&session.global, &progress, Total::Measured(&total), || {
        copier.copy(&ImageSource { inode: &inode, path: source }, &place, &report);
        Ok(())
    })?;
    if progress.is_stopped() {
        return Err(anyhow::Error::new(Interrupted).context("mv"));
    }
    if progress.errors() > 0 || progress.not_kept() > 0 {
        failures.report(&anyhow!("{}: not moved whole; it is kept", Quoted(source)));
        return Ok(false);
    }
    if is_dir {
        filesystem.remove_dir_all(source)?;
    } else {
        filesystem.remove_file(source)?;
    }
    Ok(true)
}

/// Removes an empty directory at the target, which a directory replaces; fails if what is there
/// cannot be replaced, as rename(2) does.
fn make_way(filesystem: &Filesystem, target: &[u8], by_dir: bool) -> Result<(), Error> {
    let Ok(there) = filesystem.symlink_metadata(target) else { return Ok(()) };
    match (there.is_dir(), by_dir) {
        (true, true) => filesystem.remove_dir(target).map_err(|failed| failed.error),
        (true, false) => Err(Error::IsADirectory),
        (false, true) => Err(Error::NotADirectory),
        (false, false) => Ok(()),
    }
}
