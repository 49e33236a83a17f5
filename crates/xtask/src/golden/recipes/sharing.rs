//! Snapshots and reflinks together: blocks and extents with many references.

use userbtrfs_testkit::SECTOR;

use super::subvolumes::{assert_half_dropped, begin_drop, delete_grown};
use crate::golden::content::{noise, text};
use crate::golden::recipe::{Leave, Recipe, Session};
use crate::golden::tree::Tree;

/// Files that fill several leaves of 4 KiB.
const FILES: u32 = 60;
/// The files of many extents, and the extents of each: their tree takes the cleaner a while.
const LONG_FILES: u32 = 20;
const EXTENTS: u64 = 1000;

/// One image for each topic.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "snapshots",
        covers: "snapshots of snapshots and a received one, reflinks across them, deduplication",
        mkfs: &["-n", "4096"],
        sessions: &[
            Session::clean("compress-force=zstd", packed),
            Session::clean("", plain),
            Session::clean("", snapshots),
            Session::clean("", reflinks),
            Session::clean("", deduped),
            Session::clean("", received),
        ],
        ..Recipe::USUAL
    },
    Recipe {
        name: "half-dropped-shared",
        covers: "a half dropped subvolume that shares blocks and extents with a snapshot of it",
        mkfs: &["-n", "4096"],
        sessions: &[
            Session::clean("", grown_and_copied),
            Session::clean("", change_kept),
            Session::crash(delete_grown),
            Session { options: "commit=300,discard=sync", fill: begin_drop, leave: Leave::AtOnce },
        ],
        after: assert_half_dropped,
        tries: 50,
        ..Recipe::USUAL
    },
];

/// Makes a subvolume with compressed files.
fn packed(tree: &Tree) -> anyhow::Result<()> {
    tree.subvolume("base")?;
    tree.file("base/packed", text(100, 300_001))?;
    tree.file("base/packed inline", text(101, 1500))
}

/// Makes files of all other kinds.
fn plain(tree: &Tree) -> anyhow::Result<()> {
    tree.file("base/plain", noise(102, 200_001))?;
    tree.file("base/inline", text(103, 900))?;
    tree.write("base/sparse", 100 * SECTOR, &noise(104, 20_000))?;
    tree.preallocate("base/preallocated", 0, 64 * SECTOR)?;
    tree.size("base/preallocated", 64 * SECTOR)?;
    tree.write("base/preallocated", 20 * SECTOR, &noise(105, 30_000))?;
    tree.dir("base/many")?;
    (0..FILES).try_for_each(|number| tree.file(format!("base/many/{number}"), text(106, 300)))
}

/// Makes snapshots, also of snapshots and inside of each other, and changes both sides.
fn snapshots(tree: &Tree) -> anyhow::Result<()> {
    tree.snapshot(&["-r"], "base", "first")?;
    tree.write("base/plain", 10 * SECTOR, &noise(110, 9000))?;
    tree.snapshot(&[], "base", "second")?;
    changed_in_part(tree, "second/many")?;
    tree.subvolume("second/inner")?;
    tree.file("second/inner/file", noise(111, 5000))?;
    tree.snapshot(&[], "second", "second/inner/third")?;
    tree.remove("second/inner/third/packed")?;
    tree.snapshot(&["-r"], "second/inner/third", "base/fourth")?;
    tree.snapshot(&[], "first", "of the first")?;
    tree.append("of the first/plain", &noise(112, 7000))
}

/// Appends to some files of a directory, so that some of the leaves are no longer shared.
fn changed_in_part(tree: &Tree, dir: &str) -> anyhow::Result<()> {
    (0..FILES).step_by(7).try_for_each(|number| tree.append(format!("{dir}/{number}"), b"changed"))
}

/// Shares whole files, parts of them and shifted parts, within and across subvolumes.
fn reflinks(tree: &Tree) -> anyhow::Result<()> {
    for name in ["plain", "packed", "packed inline", "inline", "sparse", "preallocated"] {
        tree.clone_all(&format!("base/{name}"), &format!("base/{name}, too"))?;
        tree.clone_all(&format!("first/{name}"), &format!("second/{name}, of the first"))?;
    }
    tree.clone_range("base/plain", 5 * SECTOR, "base/parts", 3 * SECTOR, 16 * 4096)?;
    tree.clone_range("base/packed", 31 * SECTOR, "base/parts", 30 * SECTOR, 7 * 4096)?;
    tree.clone_range("first/packed", 8 * SECTOR, "second/plain", 20 * SECTOR, 4 * 4096)?;
    tree.clone_range("base/preallocated", 15 * SECTOR, "second/parts", SECTOR, 30 * 4096)?;
    tree.clone_range("base/plain", 2 * SECTOR, "base/plain", 40 * SECTOR, 3 * 4096)?;
    tree.commit()?;
    tree.write("base/preallocated, too", 2 * SECTOR, &noise(120, 9000))?;
    tree.write("base/packed, too", 40 * SECTOR, &text(121, 5000))
}

/// Writes equal data twice, and shares all or a part of it.
fn deduped(tree: &Tree) -> anyhow::Result<()> {
    for name in ["base/equal", "base/equal, too", "second/equal"] {
        tree.file(name, noise(130, 100_000))?;
    }
    tree.commit()?;
    tree.dedupe("base/equal", 0, "base/equal, too", 0, 100_000)?;
    tree.dedupe("base/equal", 4 * SECTOR, "second/equal", 4 * SECTOR, 9 * SECTOR)
}

/// Receives a snapshot, and makes a snapshot of that: writable, it loses the received UUID.
fn received(tree: &Tree) -> anyhow::Result<()> {
    tree.dir("received")?;
    tree.send_and_receive("first", "received")?;
    tree.snapshot(&["-r"], "received/first", "received, again")?;
    tree.snapshot(&[], "received/first", "received, changed")?;
    tree.remove("received, changed/inline")
}

/// Makes a subvolume with files of many extents, all parts of one, and a snapshot of it.
fn grown_and_copied(tree: &Tree) -> anyhow::Result<()> {
    const SECTORS: u64 = 16;
    tree.subvolume("grown")?;
    tree.file("shared", noise(140, 65_536))?;
    for at in 0..EXTENTS {
        let from = at * 7 % SECTORS;
        tree.clone_range("shared", from * SECTOR, "grown/0", at * SECTOR, 4096)?;
    }
    for number in 1..LONG_FILES {
        tree.clone_all("grown/0", &format!("grown/{number}"))?;
    }
    tree.snapshot(&[], "grown", "kept")
}

/// Changes every leaf of the snapshot, so that the deleted subvolume has those before alone.
fn change_kept(tree: &Tree) -> anyhow::Result<()> {
    for number in 0..LONG_FILES {
        for at in (0..EXTENTS).step_by(25) {
            tree.write(format!("kept/{number}"), at * SECTOR, &noise(141, 4096))?;
        }
    }
    Ok(())
}
