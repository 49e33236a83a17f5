//! Images of special names and inodes: links, special files, times, xattrs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::FileType;

use crate::golden::content::{colliding_names, noise, text};
use crate::golden::recipe::{Recipe, Session};
use crate::golden::tree::Tree;

/// One image for each topic.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        name: "links",
        covers: "hard links by INODE_REF and EXTREF, two EXTREFs of one hash, a full INODE_REF",
        sessions: &[
            Session::clean("", |tree| links(tree, 150)),
            Session::clean("", colliding_links),
        ],
        ..Recipe::USUAL
    },
    Recipe {
        name: "no-extref",
        covers: "hard links without the EXTREF feature",
        mkfs: &["-O", "^extref"],
        sessions: &[Session::clean("", |tree| links(tree, 50))],
        ..Recipe::USUAL
    },
    Recipe {
        name: "special",
        covers: "symlinks up to 4095 bytes, devices, pipes, sockets, modes, owners, all times",
        sessions: &[Session::clean("", special), Session::clean("", times)],
        ..Recipe::USUAL
    },
    Recipe {
        name: "names",
        covers: "names of 255 bytes, of any bytes, of one hash; paths longer than PATH_MAX",
        sessions: &[Session::clean("", names)],
        ..Recipe::USUAL
    },
    Recipe {
        name: "xattrs",
        covers: "user, trusted, security and system xattrs, ACLs, large ones, two of one hash",
        sessions: &[Session::clean("", xattrs), Session::clean("", acls)],
        ..Recipe::USUAL
    },
];

/// Makes links with names so long that one INODE_REF item has room for fewer than eighty.
fn links(tree: &Tree, count: u32) -> anyhow::Result<()> {
    tree.dir("here")?;
    tree.dir("there")?;
    tree.file("here/first", text(60, 5000))?;
    for number in 0..count {
        tree.link("here/first", format!("here/{number:03} {}", "n".repeat(196)))?;
    }
    tree.link("here/first", "there/second")?;
    tree.node("here/pipe", FileType::Fifo, 0, 0)?;
    tree.link("here/pipe", "there/pipe")?;
    tree.symlink("here/symlink", "first")?;
    tree.link("here/symlink", "there/symlink")
}

fn colliding_links(tree: &Tree) -> anyhow::Result<()> {
    let names = colliding_names(&"c".repeat(192));
    names.iter().try_for_each(|name| tree.link("here/first", format!("here/{name}")))
}

fn special(tree: &Tree) -> anyhow::Result<()> {
    for length in [1, 59, 255, 3000, 4095] {
        tree.symlink(format!("to {length} bytes"), &"/t".repeat(2048)[..length])?;
    }
    tree.symlink("to any bytes", OsStr::from_bytes(b"\xff\xfe \n%"))?;
    tree.node("null", FileType::CharacterDevice, 1, 3)?;
    tree.node("whiteout", FileType::CharacterDevice, 0, 0)?;
    tree.node("disk", FileType::BlockDevice, 259, 7)?;
    tree.node("largest numbers", FileType::BlockDevice, 4095, 1_048_575)?;
    tree.node("pipe", FileType::Fifo, 0, 0)?;
    tree.node("socket", FileType::Socket, 0, 0)?;
    for mode in [0o0000, 0o0777, 0o1777, 0o2755, 0o4755, 0o7777] {
        let name = format!("mode {mode:o}");
        tree.file(&name, b"")?;
        tree.mode(&name, mode)?;
    }
    tree.file("owned", b"")?;
    tree.owner("owned", 4_294_967_294, 65_534)?;
    tree.owner("to 1 bytes", 12, 34)
}

fn times(tree: &Tree) -> anyhow::Result<()> {
    let each = [
        ("before 1970", (-1, 0), (-1, 999_999_999)),
        ("long before", (-(1 << 31), 1), (-(1 << 40), 500_000_000)),
        ("at 1970", (0, 0), (0, 1)),
        ("after 2038", (1 << 31, 0), (1 << 33, 123_456_789)),
        ("long after", (1 << 40, 0), (1 << 42, 999_999_999)),
    ];
    for (name, access, change) in each {
        tree.file(name, b"")?;
        tree.times(name, access, change)?;
    }
    tree.times("pipe", (-7, 7), (7, 0))?;
    tree.times("to 1 bytes", (-8, 8), (8, 0))
}

fn names(tree: &Tree) -> anyhow::Result<()> {
    tree.dir("dir")?;
    let any = |bytes: &[u8]| tree.at("dir").join(OsStr::from_bytes(bytes));
    let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    tree.file(any(&every), b"every byte")?;
    tree.file(any(&[b'l'; 255]), b"longest")?;
    let odd: [&[u8]; 9] = [
        b" ",
        b"...",
        b"new\nline",
        b"\xff\xfe\xfd",
        b"%41",
        b"back\\slash",
        b"\"quoted\"",
        "Gr\u{fc}n \u{6728}".as_bytes(),
        b"-",
    ];
    odd.into_iter().try_for_each(|name| tree.file(any(name), name))?;
    let colliding = colliding_names("same hash ");
    colliding.iter().try_for_each(|name| tree.file(format!("dir/{name}"), name))?;
    tree.file("dir/x", b"lower")?;
    tree.file("dir/X", b"upper")?;
    tree.deep("deep", &"d".repeat(120), 40)
}

fn xattrs(tree: &Tree) -> anyhow::Result<()> {
    tree.dir("dir")?;
    tree.file("file", text(70, 5000))?;
    tree.symlink("link", "file")?;
    tree.node("null", FileType::CharacterDevice, 1, 3)?;
    for path in ["dir", "file"] {
        tree.xattr(path, "user.plain", b"value")?;
        tree.xattr(path, "user.empty", b"")?;
        tree.xattr(path, "user.any bytes", &noise(71, 40))?;
    }
    for path in ["dir", "file", "link", "null"] {
        tree.xattr(path, "trusted.mark", path.as_bytes())?;
        tree.xattr(path, "security.mark", path.as_bytes())?;
    }
    let may_bind = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    tree.xattr("file", "security.capability", &may_bind)?;
    tree.xattr("file", "user.large", &text(72, 16_000))?;
    tree.xattr("file", &format!("user.{}", "n".repeat(250)), b"longest name")?;
    let [a, b] = colliding_names("user.same hash ");
    tree.xattr("file", &a, b"one")?;
    tree.xattr("file", &b, b"other")?;
    (0..100).try_for_each(|n| tree.xattr("dir", &format!("user.{n}"), &text(n, 100)))
}

fn acls(tree: &Tree) -> anyhow::Result<()> {
    tree.dir("acl")?;
    let rules = "u:1000:rwx,u:1001:r--,g:100:r-x,m::rwx";
    tree.tool(&["setfacl", "-m", rules], "acl")?;
    tree.tool(&["setfacl", "-d", "-m", rules], "acl")?;
    tree.file("acl/inherits", b"inherits\n")?;
    tree.dir("acl/inherits too")?;
    tree.tool(&["setfacl", "-m", rules], "file")
}
