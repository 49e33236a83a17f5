//! Images as after a crash, copied while mounted.

use super::everyday::everyday;
use crate::golden::content::text;
use crate::golden::recipe::{Recipe, Session, Shows};
use crate::golden::tree::Tree;

/// One image for each kind of pending work.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "log",
        covers: "a log to replay, of two subvolumes: writes, names, xattrs, holes, truncation",
        sessions: &[Session::clean("", before), Session::crash(logged)],
        shows: Shows::Log,
        ..Recipe::USUAL
    },
    Recipe {
        name: "log-4k",
        covers: "a log of several levels: 4 KiB nodes and hundreds of logged files",
        mkfs: &["-n", "4096"],
        sessions: &[Session::clean("", everyday), Session::crash(much_logged)],
        shows: Shows::Log,
        ..Recipe::USUAL
    },
    Recipe {
        name: "orphan",
        covers: "unlinked files that were open: orphan items",
        sessions: &[Session::crash(orphans)],
        ..Recipe::USUAL
    },
];

fn before(tree: &Tree) -> anyhow::Result<()> {
    everyday(tree)?;
    tree.dir("d")?;
    for name in ["appended", "renamed", "linked", "truncated", "punched", "marked", "unlinked"] {
        tree.file(format!("d/{name}"), text(90, 30_000))?;
    }
    tree.xattr("d/marked", "user.old", b"to go")
}

/// Makes changes with fsyncs, which are all in the log tree; none requires a full commit.
fn logged(tree: &Tree) -> anyhow::Result<()> {
    tree.file("d/new", text(91, 20_001))?;
    tree.fsync("d/new")?;
    tree.file("d/new inline", b"small")?;
    tree.fsync("d/new inline")?;
    tree.append("d/appended", &text(92, 10_000))?;
    tree.fsync("d/appended")?;
    tree.link("d/linked", "d/linked too")?;
    tree.fsync("d/linked")?;
    tree.size("d/truncated", 5001)?;
    tree.fsync("d/truncated")?;
    tree.punch("d/punched", 8192, 8192)?;
    tree.preallocate("d/punched", 65_536, 65_536)?;
    tree.fsync("d/punched")?;
    tree.xattr("d/marked", "user.new", b"to stay")?;
    tree.tool(&["setfattr", "-x", "user.old"], "d/marked")?;
    tree.mode("d/marked", 0o600)?;
    tree.fsync("d/marked")?;
    tree.file("sub/logged too", text(93, 6000))?;
    tree.fsync("sub/logged too")?;
    tree.remove("d/unlinked")?;
    tree.rename("d/renamed", "d/renamed now")?;
    tree.fsync("d")?;
    tree.file("d/never synced", b"lost")
}

fn much_logged(tree: &Tree) -> anyhow::Result<()> {
    tree.dir("logged")?;
    for number in 0..400 {
        let name = format!("logged/{number:03} {}", "x".repeat(40));
        tree.file(&name, text(number, 60))?;
        tree.fsync(&name)?;
    }
    Ok(())
}

fn orphans(tree: &Tree) -> anyhow::Result<()> {
    tree.dir("d")?;
    tree.file("d/stays", text(94, 5000))?;
    tree.file_held_unlinked("d/goes", &text(95, 100_000))?;
    tree.file_held_unlinked("d/goes too", b"inline")?;
    tree.commit()
}
