//! Subvolumes, snapshots and quotas.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use userbtrfs_testkit::linux::run;

use super::everyday::everyday;
use crate::golden::content::text;
use crate::golden::progs::Progs;
use crate::golden::recipe::{Leave, Recipe, Session};
use crate::golden::tree::Tree;

/// One image for each topic.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "subvolumes",
        covers: "nested subvolumes, snapshots of them, another default, deleted and renamed ones",
        sessions: &[Session::clean("", subvolumes), Session::clean("", change_subvolumes)],
        ..Recipe::USUAL
    },
    Recipe {
        name: "deleted",
        covers: "a subvolume deleted and not yet cleaned up: a root without references",
        sessions: &[Session::clean("", |tree| grown(tree, 40)), Session::crash(delete_grown)],
        ..Recipe::USUAL
    },
    Recipe {
        name: "half-dropped",
        covers: "a deleted subvolume of which half is cleaned up: drop progress in its root",
        mkfs: &["-n", "4096"],
        sessions: &[
            Session::clean("", |tree| grown(tree, 4000)),
            Session::crash(delete_grown),
            Session { options: "commit=300,discard=sync", fill: begin_drop, leave: Leave::AtOnce },
        ],
        after: assert_half_dropped,
        tries: 50,
        ..Recipe::USUAL
    },
    Recipe {
        name: "qgroups",
        covers: "quota groups of two levels, with a limit",
        sessions: &[Session::clean("", qgroups), Session::clean("", everyday)],
        ..Recipe::USUAL
    },
    Recipe {
        name: "simple-quotas",
        covers: "simple quotas: owner references at data extents",
        progs: Progs::Newer,
        mkfs: &["-O", "squota"],
        sessions: &[Session::clean("", everyday)],
        ..Recipe::USUAL
    },
];

fn subvolumes(tree: &Tree) -> anyhow::Result<()> {
    tree.subvolume("a")?;
    tree.dir("a/dir")?;
    tree.subvolume("a/dir/b")?;
    tree.subvolume("a/dir/b/c")?;
    for path in ["a", "a/dir/b", "a/dir/b/c"] {
        tree.file(format!("{path}/file"), text(80, 6000))?;
        tree.file(format!("{path}/inline"), path)?;
    }
    tree.snapshot(&["-r"], "a", "a at first")?;
    tree.snapshot(&[], "a/dir/b", "b as it was")?;
    tree.subvolume("deleted")?;
    tree.subvolume("old name")?;
    tree.file("deleted/file", text(81, 6000))
}

fn change_subvolumes(tree: &Tree) -> anyhow::Result<()> {
    tree.append("a/file", b"changed since\n")?;
    tree.remove("b as it was/inline")?;
    tree.snapshot(&["-r"], "a at first", "a at first, again")?;
    tree.rename("old name", "a/dir/new name")?;
    tree.tool(&["btrfs", "subvolume", "delete"], "deleted")?;
    tree.tool(&["btrfs", "subvolume", "sync"], ".")?;
    tree.tool(&["btrfs", "subvolume", "set-default"], "a/dir/b")
}

/// Makes a subvolume with `count` files.
fn grown(tree: &Tree, count: u32) -> anyhow::Result<()> {
    tree.file("stays", text(82, 6000))?;
    tree.subvolume("grown")?;
    (0..count).try_for_each(|number| tree.file(format!("grown/{number}"), b"one of many"))
}

pub(super) fn delete_grown(tree: &Tree) -> anyhow::Result<()> {
    tree.tool(&["btrfs", "subvolume", "delete", "-c"], "grown")
}

/// Wakes the cleaner thread, which stops in the middle when the filesystem is unmounted.
pub(super) fn begin_drop(tree: &Tree) -> anyhow::Result<()> {
    tree.tool(&["btrfs", "filesystem", "sync"], ".")
}

pub(super) fn assert_half_dropped(image: &Path) -> anyhow::Result<()> {
    let print = ["inspect-internal", "dump-tree", "-t", "root"];
    let roots = run(Command::new("btrfs").args(print).arg(image))?.stdout;
    let roots = String::from_utf8_lossy(&roots);
    let progress = roots.lines().filter(|line| line.contains("drop_progress"));
    let begun = progress.filter(|line| !line.contains("key (0 UNKNOWN.0 0)")).count();
    ensure!(begun == 1, "the cleaner was done, or had not begun");
    Ok(())
}

fn qgroups(tree: &Tree) -> anyhow::Result<()> {
    tree.tool(&["btrfs", "quota", "enable"], ".")?;
    tree.tool(&["btrfs", "qgroup", "create", "1/100"], ".")?;
    tree.subvolume("counted")?;
    tree.file("counted/file", text(83, 50_000))?;
    tree.tool(&["btrfs", "qgroup", "assign", "0/256", "1/100"], ".")?;
    tree.tool(&["btrfs", "qgroup", "limit", "10M", "1/100"], ".")?;
    tree.tool(&["btrfs", "quota", "rescan", "-w"], ".")
}
