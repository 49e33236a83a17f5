//! Commits and subvolumes.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;

use super::tree::{Tree, nothing};
use crate::linux::run;

/// `btrfs subvolume ARGUMENTS... PATHS...`
fn btrfs_subvolume(arguments: &[&str], paths: &[&Path]) -> io::Result<()> {
    let mut command = Command::new("btrfs");
    command.arg("subvolume").args(arguments).args(paths);
    run(&mut command).map(drop).map_err(io::Error::other)
}

pub(super) fn commit(tree: &mut Tree) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(&tree.root)?)?)
}

/// Creates a subvolume in any directory; a snapshot of the parent has an empty directory there.
pub(super) fn make(tree: &mut Tree) -> io::Result<()> {
    let path = tree.new_path()?;
    btrfs_subvolume(&["create"], &[&path])?;
    tree.dirs.push(path.clone());
    tree.sources.push(path.clone());
    tree.deletable.push(path);
    Ok(())
}

pub(super) fn snapshot(tree: &mut Tree) -> io::Result<()> {
    let from = tree.random.pick(&tree.sources).cloned().ok_or_else(nothing)?;
    let path = tree.new_path()?;
    btrfs_subvolume(&["snapshot"], &[&from, &path])?;
    tree.copy_known(&from, &path);
    tree.deletable.push(path);
    Ok(())
}

pub(super) fn snapshot_read_only(tree: &mut Tree) -> io::Result<()> {
    let from = tree.random.pick(&tree.sources).cloned().ok_or_else(nothing)?;
    let path = tree.new_path()?;
    btrfs_subvolume(&["snapshot", "-r"], &[&from, &path])?;
    tree.deletable.push(path);
    Ok(())
}

pub(super) fn delete(tree: &mut Tree) -> io::Result<()> {
    let path = tree.random.pick(&tree.deletable).cloned().ok_or_else(nothing)?;
    btrfs_subvolume(&["delete"], &[&path])?;
    tree.forget(&path);
    Ok(())
}
