//! Images of special files: holes, shared extents, many extents, flags.

use rustix::fs::IFlags;
use userbtrfs_testkit::SECTOR;

use crate::golden::content::{noise, text};
use crate::golden::recipe::{Recipe, Session};
use crate::golden::tree::Tree;

/// The size of a sector, in bytes.
/// One tebibyte, in bytes.
const TEBIBYTE: u64 = 1 << 40;
/// `FS_NOCOMP_FL`, which rustix does not define.
const NO_COMPRESSION: IFlags = IFlags::from_bits_retain(0x400);

/// One image for each topic.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "holes",
        covers: "holes with NO_HOLES, preallocation, a file beyond 1 TiB",
        sessions: &[Session::clean("", holes)],
        ..Recipe::USUAL
    },
    Recipe {
        name: "hole-items",
        covers: "the same with hole items: no NO_HOLES",
        mkfs: &["-O", "^no-holes"],
        sessions: &[Session::clean("", holes)],
        ..Recipe::USUAL
    },
    Recipe {
        name: "shared",
        covers: "reflinks, also of parts of compressed extents and within a file; a snapshot",
        sessions: &[
            Session::clean("compress-force=zstd", |tree| shared(tree, "compressed")),
            Session::clean("", |tree| shared(tree, "plain")),
            Session::clean("", |tree| tree.snapshot(&[], ".", "snapshot")),
            Session::clean("", |tree| {
                tree.write("snapshot/plain/whole", 12_288, b"changed in the snapshot")
            }),
        ],
        ..Recipe::USUAL
    },
    Recipe {
        name: "extents",
        covers: "a file of hundreds of extents; free space in bitmaps; an extent used in part",
        sessions: &[
            Session::clean("", |tree| scattered(tree, 0)),
            Session::clean("", |tree| scattered(tree, 1)),
        ],
        ..Recipe::USUAL
    },
    Recipe {
        name: "flags",
        covers: "NODATACOW and NODATASUM without checksums, compression wishes, all inode flags",
        sessions: &[
            Session::clean("", flags),
            Session::clean("nodatasum", |tree| tree.file("no sum", text(50, 20_001))),
        ],
        ..Recipe::USUAL
    },
];

fn holes(tree: &Tree) -> anyhow::Result<()> {
    tree.size("only a hole", 1_000_000)?;
    tree.write("at the start", 3 * SECTOR + 5, b"data after a hole")?;
    tree.file("at the end", text(20, 10_000))?;
    tree.size("at the end", 100_001)?;
    tree.file("punched", text(21, 200_000))?;
    tree.file("punched within a sector", text(22, 20_000))?;
    tree.file("inline grown", b"short")?;
    tree.file("cut", text(23, 50_000))?;
    tree.commit()?;
    tree.punch("punched", 16 * SECTOR, 8 * SECTOR)?;
    tree.punch("punched within a sector", 5000, 100)?;
    tree.size("inline grown", 9000)?;
    tree.size("cut", 10_001)?;
    tree.size("cut", 30_000)?;
    preallocated(tree)?;
    tree.write("huge", 0, &text(24, 5000))?;
    tree.write("huge", TEBIBYTE / 2 + 7, b"in the middle")?;
    tree.size("huge", TEBIBYTE + (1 << 30) + 1)
}

fn preallocated(tree: &Tree) -> anyhow::Result<()> {
    tree.preallocate("preallocated beyond the end", 0, 64 * SECTOR)?;
    tree.write("preallocated beyond the end", 0, &text(25, 9000))?;
    tree.preallocate("preallocated", 0, 64 * SECTOR)?;
    tree.size("preallocated", 64 * SECTOR)?;
    tree.commit()?;
    tree.write("preallocated", 10 * SECTOR, &text(26, 5 * 4096))?;
    tree.write("preallocated", 40 * SECTOR + 100, b"a few bytes")
}

fn shared(tree: &Tree, dir: &str) -> anyhow::Result<()> {
    let at = |name: &str| format!("{dir}/{name}");
    let base = at("base");
    let part = at("part");
    let inline = at("inline");
    tree.dir(dir)?;
    tree.file(&base, text(30, 400_003))?;
    tree.file(&inline, text(31, 300))?;
    tree.file(&part, text(32, 100_000))?;
    tree.commit()?;
    tree.clone_all(&base, &at("whole"))?;
    tree.clone_all(&inline, &at("inline too"))?;
    tree.clone_range(&base, 5 * SECTOR, &part, SECTOR, 16 * 4096)?;
    tree.clone_range(&base, 31 * SECTOR, &part, 100 * SECTOR, 3 * 4096)?;
    tree.clone_range(&base, 8 * SECTOR, &base, 70 * SECTOR, 4 * 4096)?;
    tree.clone_range(&base, 90 * SECTOR, &at("after a hole"), 20 * SECTOR, 2 * 4096)?;
    tree.commit()?;
    tree.write(at("whole"), 40 * SECTOR, &text(33, 4096))
}

/// Fills every second sector of a file in each turn, so that extents are not merged; makes files,
/// of which the second turn removes every second; overwrites the middle of a long extent.
fn scattered(tree: &Tree, turn: u64) -> anyhow::Result<()> {
    for number in 0..120 {
        let sector = 2 * number + turn;
        tree.write("many extents", sector * SECTOR, &text(sector, 4096))?;
        tree.fsync("many extents")?;
    }
    for number in (0..100).step_by(if turn == 0 { 1 } else { 2 }) {
        let name = format!("file {number}");
        if turn == 0 { tree.file(name, text(number, 5000))? } else { tree.remove(name)? }
    }
    let offset = turn * 20 * SECTOR;
    tree.write("in part", offset, &text(40 + turn, if turn == 0 { 300_000 } else { 40_000 }))
}

fn flags(tree: &Tree) -> anyhow::Result<()> {
    tree.file("no cow", b"")?;
    tree.flags("no cow", IFlags::NOCOW)?;
    tree.write("no cow", 0, &text(51, 30_001))?;
    tree.preallocate("no cow", 10 * SECTOR, 20 * SECTOR)?;
    tree.dir("all no cow")?;
    tree.flags("all no cow", IFlags::NOCOW)?;
    tree.file("all no cow/child", noise(52, 9001))?;
    tree.dir("all compressed")?;
    tree.flags("all compressed", IFlags::COMPRESSED)?;
    tree.file("all compressed/child", text(53, 100_000))?;
    tree.dir("wish")?;
    tree.tool(&["sh", "-c", "btrfs property set \"$0\" compression zstd"], "wish")?;
    tree.file("wish/child", text(54, 100_000))?;
    tree.commit()?;
    tree.write("no cow", SECTOR, &text(55, 4096))?;
    let each = [
        ("append", IFlags::APPEND),
        ("immutable", IFlags::IMMUTABLE),
        ("no access time", IFlags::NOATIME),
        ("no dump", IFlags::NODUMP),
        ("no compression", NO_COMPRESSION),
        ("sync", IFlags::SYNC),
    ];
    for (name, flag) in each {
        tree.file(name, name)?;
        tree.flags(name, flag)?;
    }
    tree.dir("dirsync")?;
    tree.flags("dirsync", IFlags::DIRSYNC)
}
