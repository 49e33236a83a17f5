//! Commits and subvolumes.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;

use super::RandomWorkload;
use crate::linux::run;

/// `btrfs subvolume ARGUMENTS... PATHS...`
fn btrfs_subvolume(arguments: &[&str], paths: &[&Path]) -> io::Result<()> {
    let mut command = Command::new("btrfs");
    command.arg("subvolume").args(arguments).args(paths);
    run(&mut command).map(drop).map_err(io::Error::other)
}

pub(super) fn commit(churn: &mut RandomWorkload) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(&churn.root)?)?)
}

/// Creates a subvolume in any directory; a snapshot of the parent has an empty directory there.
pub(super) fn make(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.new_path()?;
    btrfs_subvolume(&["create"], &[&path])?;
    churn.dirs.push(path.clone());
    churn.sources.push(path.clone());
    churn.deletable.push(path);
    Ok(())
}

pub(super) fn snapshot(churn: &mut RandomWorkload) -> io::Result<()> {
    let from = churn.random.pick(&churn.sources).cloned().ok_or_else(super::nothing)?;
    let path = churn.new_path()?;
    btrfs_subvolume(&["snapshot"], &[&from, &path])?;
    churn.copy_known(&from, &path);
    churn.deletable.push(path);
    Ok(())
}

pub(super) fn snapshot_read_only(churn: &mut RandomWorkload) -> io::Result<()> {
    let from = churn.random.pick(&churn.sources).cloned().ok_or_else(super::nothing)?;
    let path = churn.new_path()?;
    btrfs_subvolume(&["snapshot", "-r"], &[&from, &path])?;
    churn.deletable.push(path);
    Ok(())
}

pub(super) fn delete(churn: &mut RandomWorkload) -> io::Result<()> {
    let path = churn.random.pick(&churn.deletable).cloned().ok_or_else(super::nothing)?;
    btrfs_subvolume(&["delete"], &[&path])?;
    churn.forget(&path);
    Ok(())
}
