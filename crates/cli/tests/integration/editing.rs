//! The verbs that change an image: their effects, their errors, and the checks by Linux.

use userbtrfs::{FileKind, InodeFlags, OpenOptions, Timestamp, XattrMode};

use crate::support::command::verb;
use crate::support::golden::Unpacked;
use crate::support::made::{Made, judge};
use crate::support::{assert_says, pattern};

#[test]
fn directories_are_made_and_removed() {
    let made = Made::new();
    made.does("mkdir", &["/a", "/a/b/"]);
    made.does("mkdir -p -m 2700", &["/a/b/c/d", "/a"]);
    assert_eq!(made.paths(), ["/a", "/a/b", "/a/b/c", "/a/b/c/d"]);
    let filesystem = made.open();
    assert_eq!(filesystem.metadata("/a/b").unwrap().mode, 0o40755);
    assert_eq!(filesystem.metadata("/a/b/c").unwrap().mode, 0o40755);
    assert_eq!(filesystem.metadata("/a/b/c/d").unwrap().mode, 0o42700);
    drop(filesystem);

    let said = made.verb("mkdir", &["/a", "/x/y", "/z"]).bad();
    assert_says(&said, &["/a: file exists", "/x/y: no such file or directory"]);
    assert_says(&made.verb("mkdir", &["/"]).bad(), &["/: file exists"]);
    for (verb, rest) in [("rm", &["/"][..]), ("rm -r", &["//"]), ("mv", &["/", "/z/moved"])] {
        assert_says(&made.verb(verb, rest).bad(), &["/: is the root directory"]);
    }
    for (verb, rest) in [("rm -r", &[""][..]), ("mkdir", &[""]), ("mv", &["", "/z/moved"])] {
        assert_says(&made.verb(verb, rest).bad(), &["no such file or directory"]);
    }
    assert_eq!(made.paths(), ["/a", "/a/b", "/a/b/c", "/a/b/c/d", "/z"]);
    assert_says(&made.verb("rm", &["/a"]).bad(), &["/a: is a directory"]);
    made.judge();
    made.does("rm -r", &["/a", "/z"]);
    made.does("rm -rf", &["/a"]);
    assert_says(&made.verb("rm -r", &["/a"]).bad(), &["/a: no such file"]);
    assert!(made.paths().is_empty());
    made.judge();
}

#[test]
fn mv_renames_files() {
    let made = Made::new();
    made.does("mkdir", &["/a", "/b", "/b/c"]);
    made.does("truncate -s 5", &["/f", "/g"]);
    made.does("mv", &["/f", "/g", "/a"]);
    made.does("mv", &["/b/c", "/d"]);
    made.does("mv", &["/d", "/a"]);
    assert_eq!(made.paths(), ["/a", "/a/d", "/a/f", "/a/g", "/b"]);
    made.does("mv --exchange", &["/a", "/b"]);
    assert!(made.paths().contains(&"/b/d".to_owned()));
    assert_says(&made.verb("mv", &["/b", "/b/d"]).bad(), &["/b: a directory cannot be"]);
    made.does("mv -n", &["/b/f", "/b/g"]);
    assert!(made.paths().contains(&"/b/f".to_owned()));
    assert_says(&made.verb("mv", &["/b/f", "/b/g", "/x"]).bad(), &["/x: not a directory"]);
    made.does("mv -T", &["/b", "/a"]);
    made.does("mv", &["/a/f", "/a/g"]);
    assert_eq!(made.paths().len(), 3);
    made.judge();
}

/// As mv(1) between filesystems: a copy with all attributes, and the removal of the source.
#[test]
fn mv_moves_to_another_subvolume() {
    let made = Made::new();
    let content = pattern(300_000);
    let filesystem = made.open_for_writing();
    filesystem.create_dir_all("/tree/dir", 0o750).unwrap();
    filesystem.write("/tree/file", &content).unwrap();
    filesystem.lookup("/tree/file").unwrap().set_xattr(b"user.a", b"b", XattrMode::Create).unwrap();
    filesystem.hard_link("/tree/file", "/tree/dir/other name").unwrap();
    filesystem.symlink("file", "/tree/link").unwrap();
    filesystem.write("/small", "small").unwrap();
    filesystem.close().unwrap();
    made.verb("subvolume create", &["/sub"]).good();
    made.does("mkdir", &["/sub/full", "/sub/full/x", "/sub/tree"]);
    made.does("truncate -s 9", &["/sub/small"]);

    made.does("mv -n", &["/small", "/sub"]);
    assert_eq!(made.open().metadata("/sub/small").unwrap().size, 9, "it is skipped");
    made.does("mv", &["/tree", "/small", "/sub"]);
    let filesystem = made.open();
    assert_eq!(filesystem.read("/sub/small").unwrap(), b"small");
    let file = filesystem.lookup("/sub/tree/file").unwrap();
    assert!(file.open().unwrap().read_all().unwrap() == content);
    assert_eq!(file.xattr(b"user.a").unwrap(), b"b");
    assert_eq!(file.id(), filesystem.lookup("/sub/tree/dir/other name").unwrap().id());
    assert_eq!(filesystem.metadata("/sub/tree/dir").unwrap().mode, 0o40_750);
    assert_eq!(filesystem.read_link("/sub/tree/link").unwrap(), b"file");
    let paths = made.paths();
    assert!(paths.iter().all(|path| path.starts_with("/sub")), "{paths:?}");
    drop((file, filesystem));

    made.does("mkdir", &["/full"]);
    for (source, reason) in [("/full", "directory not empty"), ("/sub/small", "is a directory")] {
        let target = if source == "/full" { "/sub/full" } else { "/full" };
        let said = made.verb("mv -T", &[source, target]).bad();
        assert_says(&said, &[&format!("{target}: {reason}")]);
        assert!(made.open().lookup(source).is_ok(), "{source} is kept");
    }
    assert_says(&made.verb("mv --exchange", &["/full", "/sub/full"]).bad(), &["another subvolume"]);
    made.judge();
}

/// A file stays if it cannot be copied whole.
#[test]
fn mv_to_another_subvolume_keeps_what_has_no_space() {
    let made = Made::of_size("128M");
    made.verb("subvolume create", &["/sub"]).good();
    let filesystem = made.open_for_writing();
    let dir = filesystem.create_dir("/sub/plain", 0o755).unwrap();
    // Data with and without checksums is not shared.
    dir.inode().set_flags(InodeFlags::NODATACOW).unwrap();
    filesystem.write("/large", vec![1; 60 << 20]).unwrap();
    drop(dir);
    filesystem.close().unwrap();
    let said = made.verb("mv", &["/large", "/sub/plain"]).bad();
    assert_says(&said, &["/sub/plain/large: no space left", "/large: not moved whole; it is kept"]);
    assert_eq!(made.paths(), ["/large", "/sub", "/sub/plain"]);
    made.judge();
}

#[test]
fn mv_onto_the_same_file_is_refused() {
    let made = Made::new();
    made.does("mkdir", &["/a"]);
    made.does("truncate -s 5", &["/a/f", "/big"]);
    let said = made.verb("mv", &["/big", "/big"]).bad();
    assert_says(&said, &["'/big' and '/big' are the same file"]);
    let said = made.verb("mv", &["/a/f", "/big", "/a"]).bad();
    assert_says(&said, &["'/a/f' and '/a/f' are the same file"]);
    assert_eq!(made.paths(), ["/a", "/a/big", "/a/f"], "the rest is done");
    made.verb("mv -T", &["/a", "/a/"]).bad();
    made.does("ln", &["/a/f", "/g"]);
    let said = made.verb("mv", &["/a/f", "/g"]).bad();
    assert_says(&said, &["'/a/f' and '/g' are the same file"]);
    // A link that takes the place of its target would lead to itself.
    made.does("ln -s", &["g", "/s"]);
    let said = made.verb("mv", &["/s", "/g"]).bad();
    assert_says(&said, &["'/s' and '/g' are the same file"]);
    made.does("mv", &["/g", "/s"]);
    assert_eq!(made.paths(), ["/a", "/a/big", "/a/f", "/s"]);
    assert!(made.open().symlink_metadata("/s").unwrap().is_file());
    made.does("rm -f", &[]);
    made.does("rm -f", &["/s/below", "/none"]);
    made.does("mv", &["/s", "/g"]);
    made.does("rm", &["/a/f"]);
    made.does("ln -s", &["a", "/to a"]);
    let said = made.verb("mv", &["/to a/", "/new"]).bad();
    assert_eq!(said, "userbtrfs: /to a/: not a directory\n");
    made.judge();
}

#[test]
fn an_empty_path_leads_to_nothing() {
    let made = Made::new();
    made.does("touch", &["/s"]);
    made.verb("subvolume create", &["/sub"]).good();
    let before = made.paths();
    let refused = |words: &str, paths: &[&str]| {
        let said = made.verb(words, paths).bad();
        assert!(said.contains("'': no such file or directory"), "{words}: {said}");
    };
    for paths in [&["/s", ""][..], &["", "/s"], &["-t", "", "/s"]] {
        for words in ["mv", "cp", "ln"] {
            refused(words, paths);
        }
    }
    let of_one = "ls, ls -R, find, stat, stat -L, du, du -s, tree, cat, rm, rm -r, rmdir, mkdir, \
                  mkdir -p, touch, truncate -s 1, getfattr, filesystem du, filesystem defragment, \
                  filesystem defragment -r, subvolume show, subvolume delete, subvolume create";
    for words in of_one.split(", ") {
        refused(words, &[""]);
    }
    refused("chmod -R", &["700", ""]);
    refused("chown", &["1", ""]);
    refused("subvolume snapshot", &["", "/new"]);
    refused("subvolume snapshot", &["/sub", ""]);
    made.does("rm -f", &[""]);
    assert_eq!(made.paths(), before);
    made.judge();
}

#[test]
fn ln_makes_hard_and_symbolic_links() {
    let made = Made::new();
    made.does("mkdir", &["/a"]);
    made.does("truncate -s 100", &["/f"]);
    made.does("ln", &["/f", "/a"]);
    made.does("ln", &["/f", "/g"]);
    made.does("ln -s", &["../f", "/a/s"]);
    made.does("ln -s", &["nowhere", "/s"]);
    let filesystem = made.open();
    assert_eq!(filesystem.metadata("/a/s").unwrap().nlink, 3);
    assert_eq!(filesystem.read_link("/a/s").unwrap(), b"../f");
    assert_eq!(filesystem.symlink_metadata("/s").unwrap().kind, FileKind::Symlink);
    drop(filesystem);
    assert_says(&made.verb("ln", &["/a", "/x"]).bad(), &["/a: operation not permitted"]);
    assert_says(&made.verb("ln", &["/f", "/g"]).bad(), &["/g: file exists"]);
    made.judge();
    made.does("rm", &["/f", "/g", "/s"]);
    assert_eq!(made.open().metadata("/a/f").unwrap().nlink, 1);
    made.judge();
}

#[test]
fn permissions_and_owners_change() {
    let made = Made::new();
    made.does("mkdir -p", &["/a/b"]);
    made.does("truncate -s 0", &["/a/f"]);
    made.does("ln -s", &["f", "/a/s"]);
    made.does("chmod", &["4711", "/a/s"]);
    assert_eq!(made.open().metadata("/a/f").unwrap().mode, 0o104_711);
    made.does("chmod -R", &["go-rwx,u=rwX", "/a"]);
    made.does("chown -R", &["7:8", "/a"]);
    made.does("chown --no-dereference", &["9", "/a/s"]);
    let filesystem = made.open();
    let of = |path: &str| filesystem.symlink_metadata(path).unwrap();
    assert_eq!((of("/a").mode, of("/a/b").mode), (0o40700, 0o40700));
    assert_eq!((of("/a/f").mode, of("/a/s").mode), (0o100_700, 0o120_777));
    assert_eq!((of("/a/f").uid, of("/a/f").gid), (7, 8));
    assert_eq!((of("/a/s").uid, of("/a/s").gid), (9, 8));
    drop(filesystem);
    made.does("chown", &[":3", "/a/s"]);
    assert_eq!(made.open().metadata("/a/f").unwrap().gid, 3);
    made.does("ln -s", &["a", "/to a"]);
    made.does("chown -R", &["11:12", "/to a"]);
    let filesystem = made.open();
    let of = |path: &str| filesystem.symlink_metadata(path).unwrap();
    assert_eq!((of("/to a").uid, of("/to a").gid), (11, 12));
    assert_eq!((of("/a").uid, of("/a/f").gid), (7, 3), "the link is not followed");
    drop(filesystem);
    assert_says(&made.verb("chmod", &["600", "/x"]).bad(), &["/x: no such file"]);
    for bad in [&["9000", "/a"][..], &["u+q", "/a"]] {
        assert_eq!(made.verb("chmod", bad).code, Some(1));
    }
    let said = made.verb("chown", &["no such user", "/a"]).bad();
    assert_says(&said, &["invalid user: 'no such user'"]);
    made.judge();
}

#[test]
fn attributes_are_set_shown_and_removed() {
    let made = Made::new();
    made.does("truncate -s 0", &["/f"]);
    made.does("setfattr", &["-n", "user.text", "-v", "a \"b\"", "/f"]);
    made.does("setfattr", &["-n", "user.hex", "-v", "0x00ff", "/f"]);
    made.does("setfattr", &["-n", "user.base64", "-v", "0sQUI=", "/f"]);
    made.does("setfattr", &["-n", "trusted.none", "/f"]);
    let names = "# file: /f\nuser.base64\nuser.hex\nuser.text\n\n";
    assert_eq!(made.verb("getfattr", &["/f"]).good(), names);
    let dump = "# file: /f\nuser.base64=\"AB\"\nuser.hex=0sAP8=\nuser.text=\"a \\\"b\\\"\"\n\n";
    assert_eq!(made.verb("getfattr -d", &["/f"]).good(), dump);
    let one = made.verb("getfattr -e hex -n user.hex", &["/f"]).good();
    assert_eq!(one, "# file: /f\nuser.hex=0x00ff\n\n");
    assert_eq!(made.verb("getfattr --only-values -n user.base64", &["/f"]).good(), "AB");
    assert_says(&made.verb("getfattr -m -", &["/f"]).good(), &["trusted.none"]);
    // The pattern is a regular expression, as in getfattr(1).
    for (pattern, names) in [
        (".", "trusted.none\nuser.base64\nuser.hex\nuser.text\n"),
        ("hex|one$", "trusted.none\nuser.hex\n"),
        (r"^user\.[th]", "user.hex\nuser.text\n"),
    ] {
        let shown = made.verb("getfattr", &["-m", pattern, "/f"]).good();
        assert_eq!(shown, format!("# file: /f\n{names}\n"), "{pattern}");
    }
    assert_eq!(made.verb("getfattr -m ^hex", &["/f"]).good(), "");
    let said = made.verb("getfattr -m (", &["/f"]).bad();
    assert_eq!(said, "userbtrfs: invalid regular expression '('\n");
    made.does("ln -s", &["f", "/link"]);
    made.does("setfattr -h", &["-n", "trusted.link", "-v", "1", "/link"]);
    let of_link = made.verb("getfattr -hd -m -", &["/link"]).good();
    assert_eq!(of_link, "# file: /link\ntrusted.link=\"1\"\n\n");
    for words in ["getfattr --format json -n user.base64", "getfattr --format json -d"] {
        let text = made.verb(words, &["/f"]).good();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["getfattr"][0]["path"], "/f");
        let first = &document["getfattr"][0]["xattrs"][0];
        assert_eq!((&first["name"], &first["value"]), (&"user.base64".into(), &"\"AB\"".into()));
    }
    let hex = made.verb("getfattr --format json -e hex -n user.base64", &["/f"]).good();
    assert_says(&hex, &["\"0x4142\""]);
    made.judge();
    made.does("setfattr", &["-x", "user.hex", "/f"]);
    assert_says(
        &made.verb("setfattr", &["-x", "user.hex", "/f"]).bad(),
        &["/f: no such attribute"],
    );
    assert_says(&made.verb("getfattr", &["-n", "user.hex", "/f"]).bad(), &["no such attribute"]);
    made.judge();
}

/// Inodes that are changed get the time of the change; others keep theirs.
#[test]
fn times_change_only_with_their_inode() {
    let made = Made::new();
    made.does("mkdir", &["/a"]);
    made.does("truncate -s 1", &["/a/f"]);
    let before = made.open().metadata("/a").unwrap();
    made.does("chmod", &["600", "/a/f"]);
    assert_eq!(made.open().metadata("/a").unwrap().modified, before.modified);
    made.does("rm", &["/a/f"]);
    let after = made.open().metadata("/a").unwrap();
    assert!(after.modified > before.modified && after.created == before.created);
    assert!(after.modified > Timestamp { sec: 1_600_000_000, nsec: 0 });
}

/// Images that Linux made can be changed like ours.
#[test]
fn golden_images_are_edited() {
    for name in ["basic", "block-group-tree", "blake2", "dup", "later-defaults"] {
        let image = Unpacked::new(name);
        verb("mkdir -p", &image.path(), &["/made/here"]).good();
        verb("mv", &image.path(), &["/made", "/moved"]).good();
        let found = verb("find", &image.path(), &["/moved"]).good();
        assert_eq!(found, "/moved\n/moved/here\n", "{name}");
        judge(&image.path());
    }
}

/// An image that cannot be written is refused, and is not changed.
#[test]
fn write_without_write_access_is_refused() {
    let made = Made::new();
    let before = std::fs::read(made.image()).unwrap();
    let open = made.open_for_writing();
    assert_says(
        &made.verb("mkdir", &["/a"]).bad(),
        &["image: in use by another userbtrfs (open for writing or mounted)"],
    );
    open.close().unwrap();
    let only_read = made.open();
    assert!(!only_read.is_writable());
    let error = only_read.create_dir("/a", 0o755).err().unwrap();
    assert_eq!(error.errno(), 30);
    assert!(std::fs::read(made.image()).unwrap() == before, "nothing was written");
}

/// Subvolumes cannot be removed yet. They stay with their content, and all else is removed.
#[test]
fn unremovable_entries_are_named_and_the_rest_is_removed() {
    let image = Unpacked::new("subvolumes");
    let below = |path: &str| verb("find --subvol a", &image.path(), &[path]).good();
    let kept = below("/dir");
    assert!(kept.contains("/dir/b/") && kept.contains("/dir/new name"), "{kept}");
    verb("mkdir -p --subvol a", &image.path(), &["/dir/x/y", "/dir/z", "/other"]).good();
    verb("mkdir -p --subvol a", &image.path(), &["/dir/b/of b"]).good();
    let filesystem = OpenOptions::new().write(true).open(image.path()).unwrap();
    let subvolumes = filesystem.subvolumes().unwrap();
    let b = subvolumes.iter().find(|it| it.path == b"a/dir/b").unwrap().id;
    filesystem.set_subvolume_read_only(b, true).unwrap();
    filesystem.close().unwrap();
    let in_b = || verb("find --subvol a", &image.path(), &["/dir/b"]).good();
    let kept = in_b();
    let said = verb("rm -r --subvol a", &image.path(), &["/dir", "/none", "/other"]).bad();
    assert!(said.contains("userbtrfs: /dir/b/of b: read-only"), "{said}");
    assert!(said.ends_with("userbtrfs: /none: no such file or directory\n"), "{said}");
    assert_eq!(in_b(), kept);
    assert_eq!(below("/dir").lines().count(), 1 + kept.lines().count(), "nothing else is left");
    assert!(!below("/").contains("other"));
    judge(&image.path());
}

#[test]
fn error_of_a_second_path_names_that_path() {
    let made = Made::new();
    made.does("mkdir", &["/dir", "/full", "/full/dir"]);
    made.does("mkdir", &["/full/dir/in"]);
    for (words, paths, says) in [
        ("mv", ["/dir", "/no/x"], "/no/x: no such file or directory"),
        ("mv", ["/no", "/dir"], "/no: no such file or directory"),
        ("mv", ["/dir", "/full"], "/full/dir: directory not empty"),
        ("ln", ["/dir", "/no/x"], "/no/x: no such file or directory"),
        ("ln -s", ["anything", "/no/x"], "/no/x: no such file or directory"),
    ] {
        let said = made.verb(words, &paths).bad();
        assert_eq!(said, format!("userbtrfs: {says}\n"), "{words} {paths:?}");
    }
}
