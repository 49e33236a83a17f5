//! Images with a small tree of most kinds of files, for each checksum, node size, profile and
//! feature.

use std::path::Path;
use std::process::Command;

use rustix::fs::FileType;
use userbtrfs_testkit::linux::run;

use crate::golden::content::{noise, text};
use crate::golden::progs::Progs;
use crate::golden::recipe::{Recipe, Session};
use crate::golden::tree::Tree;

/// The base of most recipes: the same small tree.
const EVERYDAY: Recipe = Recipe { sessions: &[Session::clean("", everyday)], ..Recipe::USUAL };

/// One image for each layout of the same files.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "basic",
        covers: "default features, crc32c, 16 KiB nodes; zlib, lzo and zstd, inline and regular",
        size: 256,
        sessions: &[
            Session::clean("compress-force=zlib", |tree| compressed(tree, "zlib")),
            Session::clean("compress-force=lzo", |tree| compressed(tree, "lzo")),
            Session::clean("compress-force=zstd", |tree| compressed(tree, "zstd")),
            Session::clean("", everyday),
        ],
        ..Recipe::USUAL
    },
    Recipe { name: "fresh", covers: "as mkfs leaves it, never mounted", sessions: &[], ..EVERYDAY },
    Recipe { name: "xxhash", covers: "xxhash64", mkfs: &["--csum", "xxhash"], ..EVERYDAY },
    Recipe { name: "sha256", covers: "sha256", mkfs: &["--csum", "sha256"], ..EVERYDAY },
    Recipe { name: "blake2", covers: "blake2b", mkfs: &["--csum", "blake2"], ..EVERYDAY },
    Recipe {
        name: "nodesize-4k",
        covers: "4 KiB nodes, trees of three levels, a directory of several leaves",
        mkfs: &["-n", "4096"],
        sessions: &[Session::clean("", everyday), Session::clean("", many_files)],
        ..Recipe::USUAL
    },
    Recipe { name: "nodesize-32k", covers: "32 KiB nodes", mkfs: &["-n", "32768"], ..EVERYDAY },
    Recipe {
        name: "nodesize-64k",
        covers: "64 KiB nodes; inline up to a sector, uncompressed",
        mkfs: &["-n", "65536"],
        sessions: &[
            Session::clean("", everyday),
            Session::clean("max_inline=4095", |tree| tree.file("4k", text(7, 4000))),
        ],
        ..Recipe::USUAL
    },
    Recipe {
        name: "mixed",
        covers: "mixed block groups: data and metadata together, nodes of 4 KiB",
        size: 64,
        mkfs: &["-M"],
        ..EVERYDAY
    },
    Recipe {
        name: "single",
        covers: "data and metadata single",
        mkfs: &["-d", "single", "-m", "single"],
        ..EVERYDAY
    },
    Recipe {
        name: "dup",
        covers: "data and metadata DUP",
        size: 256,
        mkfs: &["-d", "dup", "-m", "dup"],
        ..EVERYDAY
    },
    Recipe {
        name: "space-cache-v1",
        covers: "the old space cache, no free space tree",
        // Linux caches block groups from 100 MiB on, and makes them a tenth of the device.
        size: 1100,
        mkfs: &["-R", "^free-space-tree"],
        sessions: &[
            Session::clean("space_cache=v1", everyday),
            Session::clean("space_cache=v1", |tree| tree.file("large", vec![0; 12 << 20])),
        ],
        complaints: &["space cache v1 is being deprecated"],
        ..Recipe::USUAL
    },
    Recipe {
        name: "old-format",
        covers: "no skinny metadata, extrefs, NO_HOLES or free space tree, no space cache",
        mkfs: &["-O", "^skinny-metadata,^extref,^no-holes", "-R", "^free-space-tree"],
        sessions: &[Session::clean("nospace_cache", everyday)],
        ..Recipe::USUAL
    },
    Recipe {
        name: "block-group-tree",
        covers: "block group tree, nodes of 4 KiB, xxhash64",
        progs: Progs::Newer,
        mkfs: &["-O", "block-group-tree", "-n", "4096", "--csum", "xxhash"],
        ..EVERYDAY
    },
    Recipe {
        name: "later-defaults",
        covers: "the default features of btrfs-progs 7: with a block group tree",
        progs: Progs::Newer,
        ..EVERYDAY
    },
    Recipe {
        name: "metadata-uuid",
        covers: "a filesystem id changed afterwards: METADATA_UUID",
        after: |image| tune(image, &["-m"]),
        ..EVERYDAY
    },
    Recipe {
        name: "label",
        covers: "a label beyond ASCII",
        mkfs: &["-L", "Gr\u{fc}n \u{6728} \u{1f333}"],
        ..EVERYDAY
    },
    Recipe {
        name: "seed",
        covers: "a seeding device: never to be written",
        after: |image| tune(image, &["-f", "-S", "1"]),
        ..EVERYDAY
    },
];

/// Makes a small tree with one of most kinds of files.
pub(super) fn everyday(tree: &Tree) -> anyhow::Result<()> {
    tree.dir("dir/below/deeper")?;
    tree.dir("empty")?;
    tree.file("dir/empty", b"")?;
    tree.file("dir/inline", text(1, 700))?;
    tree.file("dir/sector", text(2, 4096))?;
    tree.file("dir/odd", noise(3, 10_007))?;
    tree.file("dir/below/long", text(4, 300_001))?;
    tree.file("dir/below/deeper/inline", b"deep down\n")?;
    tree.link("dir/odd", "dir/below/odd too")?;
    tree.symlink("dir/link", "below/long")?;
    tree.xattr("dir/inline", "user.colour", b"green")?;
    tree.node("dir/pipe", FileType::Fifo, 0, 0)?;
    tree.write("dir/hole", 65_536, &text(5, 5000))?;
    tree.mode("dir/sector", 0o4711)?;
    tree.owner("dir/sector", 1000, 100)?;
    tree.subvolume("sub")?;
    tree.file("sub/inside", text(6, 9000))?;
    tree.snapshot(&["-r"], "sub", "snapshot")?;
    tree.append("sub/inside", b"after the snapshot\n")
}

/// Makes files of all shapes that compression treats differently.
fn compressed(tree: &Tree, dir: &str) -> anyhow::Result<()> {
    tree.dir(dir)?;
    let file = |name: &str, content: Vec<u8>| tree.file(format!("{dir}/{name}"), content);
    file("inline", text(11, 3500))?;
    file("inline tiny", vec![b'a'; 100])?;
    file("one extent", text(12, 10_007))?;
    file("many extents", text(13, 400_003))?;
    file("zeros", vec![0; 200_000])?;
    file("noise", noise(14, 9001))?;
    file("half noise", [text(15, 131_072), noise(16, 5000)].concat())?;
    file("rewritten", text(17, 262_144))?;
    tree.commit()?;
    tree.write(format!("{dir}/rewritten"), 20_480, &text(18, 8192))
}

/// Makes enough files for trees of several levels; most names, and so most items, are long.
fn many_files(tree: &Tree) -> anyhow::Result<()> {
    for group in 0..10 {
        tree.dir(format!("many/{group}"))?;
        for number in 0..100_u64 {
            let name = format!("many/{group}/{number:03} {}", "x".repeat(60));
            tree.file(name, text(number, 40))?;
        }
    }
    tree.dir("large")?;
    (0..300).try_for_each(|number| tree.file(format!("large/{number}"), b""))
}

fn tune(image: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    run(Command::new("btrfstune").args(arguments).arg(image)).map(drop)
}
