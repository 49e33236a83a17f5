//! Where a verb acts: opens an image for it, or finds that a path is in a mount.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use userbtrfs::{Filesystem, Quoted};

use crate::cli::args::{DirectIo, Global, RootArgs, WriteArgs};
use crate::cli::output::stdout;
use crate::cli::session::{Access, Session};

/// One commit, at the end of the verb.
pub(in crate::cli::admin) fn once(image: &WriteArgs) -> Access {
    Access::Once { discard: image.discard }
}

/// Returns the line about a new snapshot.
pub(in crate::cli::admin) fn made_snapshot(read_only: bool, source: &str, dest: &[u8]) -> String {
    let kind = if read_only { "readonly snapshot" } else { "snapshot" };
    format!("Create a {kind} of '{source}' in '{}'", Quoted(dest))
}

/// Opens an image, and prints what `write` writes of it.
pub(in crate::cli::admin) fn print(
    global: &Global,
    root: &RootArgs,
    write: impl FnOnce(&mut dyn Write, &Filesystem) -> Result<()>,
) -> Result<ExitCode> {
    let filesystem = Session::open(global, root, Access::Read)?.filesystem;
    let mut out = stdout();
    write(&mut out, &filesystem)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the argument if it is a directory, which is a mount point and no image.
pub(in crate::cli::admin) fn mountpoint(root: &RootArgs) -> Result<Option<&Path>> {
    let image = &root.image.image;
    if !image.is_dir() {
        return Ok(None);
    }
    refuse_options(root)?;
    Ok(Some(image))
}

/// Fails if an option was given that applies to images only.
pub(in crate::cli::admin) fn refuse_options(root: &RootArgs) -> Result<()> {
    let of_images = [
        ("--subvol", root.subvol.is_some()),
        ("--subvolid", root.subvolid.is_some()),
        ("--direct", root.direct != DirectIo::Auto),
        ("--no-log-replay", root.no_log_replay),
    ];
    let given = of_images.iter().find(|(_, given)| *given).map(|(option, _)| *option);
    match given.or_else(|| root.image.given_option()) {
        Some(option) => bail!("{}: {option} applies to images only", root.image.image.display()),
        None => Ok(()),
    }
}

/// Opens an image, changes it, and closes it.
pub(in crate::cli::admin) fn change(
    global: &Global,
    image: &WriteArgs,
    access: Access,
    change: impl FnOnce(&Session) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let session = Session::open(global, &image.root, access)?;
    let done = change(&session);
    session.close()?;
    done
}
