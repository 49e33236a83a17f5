//! `subvolume delete` and `sync`.
//!
//! 1. On an image the verb waits until the space is freed, since no process stays to do it. A
//!    signal ends that: the deletion is committed, and the next writable opening continues.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use userbtrfs::{Dir, Error, Filesystem, InodeId, Quoted, TreeId, join_path};

use super::mounted;
use super::place::{change, mountpoint, refuse_options};
use crate::cli::args::{Global, WriteArgs};
use crate::cli::host::signals::Signals;
use crate::cli::report::{ExitStatus, announce};
use crate::cli::session::Access;
use crate::cli::text::shown;

#[derive(clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Paths of the subvolumes (in a mount, the first takes the place of IMAGE)
    paths: Vec<OsString>,
    /// Delete the subvolume with this id
    #[arg(short = 'i', long = "subvolid", value_name = "ID", conflicts_with = "paths")]
    deleted_id: Option<u64>,
    /// Commit at the end (images: always)
    #[arg(short = 'c', long)]
    commit_after: bool,
    /// Commit after each (images: at the end)
    #[arg(short = 'C', long)]
    commit_each: bool,
}

#[derive(clap::Args)]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Ids of deleted subvolumes [default: all]
    ids: Vec<u64>,
}

/// A subvolume to delete: its directory, its name, and its name for messages.
struct Target {
    dir: Dir,
    name: Vec<u8>,
    shown: String,
}

/// Several commits, so that the space of what is deleted is freed meanwhile.
fn often(image: &WriteArgs) -> Access {
    Access::Write { discard: image.discard }
}

pub(super) fn delete(global: &Global, args: &DeleteArgs) -> Result<ExitCode> {
    let first = &args.image.root.image.image;
    if mounted::is_in_mount(first) {
        refuse_options(&args.image.root)?;
        let commit = args.commit_after || args.commit_each;
        if let Some(id) = args.deleted_id {
            return mounted::delete_id(global, first, id, commit, |shown| args.line(shown, true));
        }
        let paths = [first.as_os_str()].into_iter().chain(args.paths.iter().map(AsRef::as_ref));
        let last = args.paths.last().map_or(first.as_os_str(), AsRef::as_ref);
        let line = |path: &Path| args.line(&path.display().to_string(), path == last);
        return Ok(mounted::delete(global, paths, commit, line));
    }
    let is_given = !args.paths.is_empty() || args.deleted_id.is_some();
    ensure!(is_given, "{}: no path in the image is given", first.display());
    change(global, &args.image, often(&args.image), |session| {
        let filesystem = &session.filesystem;
        let failures = ExitStatus::default();
        let mut deleted = Vec::new();
        let mut targets = args.targets(filesystem).peekable();
        while let Some(target) = targets.next() {
            let is_last = targets.peek().is_none();
            let done = target.and_then(|target| {
                deleted.push(target.delete(filesystem)?);
                announce(global, || args.line(&target.shown, is_last))
            });
            failures.continue_after(done)?;
        }
        wait_until_gone(filesystem, &deleted)?;
        Ok(failures.code())
    })
}

impl DeleteArgs {
    fn targets<'a>(
        &'a self,
        filesystem: &'a Filesystem,
    ) -> Box<dyn Iterator<Item = Result<Target>> + 'a> {
        match self.deleted_id {
            Some(id) => Box::new(std::iter::once(Target::of_id(filesystem, TreeId(id)))),
            None => Box::new(self.paths.iter().map(|path| {
                let found = filesystem.open_parent_to_remove(path.as_encoded_bytes());
                let (dir, name) = found.with_context(|| shown(path))?;
                Ok(Target { dir, name, shown: shown(path) })
            })),
        }
    }

    /// Returns the line about a deleted subvolume, as btrfs-progs prints it.
    fn line(&self, shown: &str, is_last: bool) -> String {
        let is_committed = self.commit_each || self.commit_after && is_last;
        let how = if is_committed { "commit" } else { "no-commit" };
        format!("Delete subvolume ({how}): '{shown}'")
    }
}

impl Target {
    fn of_id(filesystem: &Filesystem, id: TreeId) -> Result<Self> {
        let shown = format!("subvolume {}", id.0);
        let find = || {
            let info = filesystem.subvolume(id)?;
            let (Some(subvolume), Some(number)) = (info.parent, info.dir) else {
                return Err(Error::IsRoot);
            };
            let dir = filesystem.inode(InodeId { subvolume, number }).open_dir()?;
            Ok((dir, info.name, Quoted(&join_path(b"/", &info.path)).to_string()))
        };
        let (dir, name, shown) = find().context(shown)?;
        Ok(Self { dir, name, shown })
    }

    fn delete(&self, filesystem: &Filesystem) -> Result<TreeId> {
        match self.dir.delete_subvolume(&self.name) {
            Err(Error::NotPermitted) if self.is_default(filesystem)? => {
                bail!("{}: is the default subvolume", self.shown)
            }
            deleted => deleted.with_context(|| self.shown.clone()),
        }
    }

    fn is_default(&self, filesystem: &Filesystem) -> Result<bool> {
        let id = self.dir.lookup(&self.name)?.id();
        Ok(id.subvolume == filesystem.default_subvolume()?)
    }
}

/// Waits until the trees of deleted subvolumes are dropped, or a signal ends that; returns whether
/// they are.
fn wait_until_gone(filesystem: &Filesystem, ids: &[TreeId]) -> Result<bool> {
    if ids.is_empty() {
        return Ok(true);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let _signals = Signals::set(&stop)?;
    Ok(filesystem.wait_for_deleted(ids, || !stop.load(Ordering::Relaxed))?)
}

pub(super) fn sync(global: &Global, args: &SyncArgs) -> Result<ExitCode> {
    if let Some(point) = mountpoint(&args.image.root)? {
        return mounted::sync(global, point, &args.ids);
    }
    change(global, &args.image, often(&args.image), |session| {
        let filesystem = &session.filesystem;
        let ids = to_wait_for(filesystem, &args.ids)?;
        let count = ids.len();
        if count > 0 {
            announce(global, || mounted::waiting_for(count))?;
        }
        for (at, id) in ids.into_iter().enumerate() {
            if !wait_until_gone(filesystem, &[id])? {
                bail!("interrupted: subvolume {} is not gone", id.0);
            }
            let at = at + 1;
            announce(global, || format!("Subvolume id {} is gone ({at}/{count})", id.0))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Writes the ids of those deleted subvolumes that are not gone: of the given ones, or of all.
pub(in crate::cli) fn write_deleted(
    out: &mut dyn Write,
    filesystem: &Filesystem,
    given: &[u64],
) -> Result<()> {
    for id in to_wait_for(filesystem, given)? {
        // The deletion becomes durable, without which the space is not freed.
        if !filesystem.wait_for_deleted(&[id], || false)? {
            writeln!(out, "{}", id.0)?;
        }
    }
    Ok(())
}

/// Returns the ids to wait for: all deleted subvolumes, or the given ids.
fn to_wait_for(filesystem: &Filesystem, given: &[u64]) -> Result<Vec<TreeId>> {
    if given.is_empty() {
        let deleted = filesystem.deleted_subvolumes()?;
        return Ok(deleted.iter().map(|subvolume| subvolume.id).collect());
    }
    for id in given {
        if filesystem.subvolume(TreeId(*id)).is_ok() {
            bail!("subvolume {id} is not deleted");
        }
    }
    Ok(given.iter().copied().map(TreeId).collect())
}
