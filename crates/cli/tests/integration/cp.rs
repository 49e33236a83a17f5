//! `cp`: the attributes that it keeps, its errors, and its destinations.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use userbtrfs::{Attributes, Filesystem, InodeFlags, Timestamp, XattrMode};
use userbtrfs_testkit::manifest::diff;
use userbtrfs_testkit::walk_ours;

use crate::support::made::Made;
use crate::support::{assert_says, pattern};

const OLD: Timestamp = Timestamp { sec: 1_000_000_000, nsec: 7 };

/// Makes a tree with inodes of every kind at `/tree`.
fn fill(made: &Made) {
    let filesystem = made.open_for_writing();
    let tree = filesystem.create_dir("/tree", 0o1751).unwrap();
    let below = tree.create_dir(b"below", 0o700).unwrap();
    filesystem.write("/tree/small", "small").unwrap();
    filesystem.write("/tree/large", pattern(300_000)).unwrap();
    let sparse = tree.create(b"sparse", 0o600).unwrap().open().unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_at(&pattern(10_000), 1 << 30).unwrap();
    filesystem.hard_link("/tree/small", "/tree/below/again").unwrap();
    tree.symlink(b"link", b"below/again").unwrap();
    tree.make_node(b"pipe", 0o010_640, (0, 0)).unwrap();
    tree.make_node(b"device", 0o060_640, (300, 70_000)).unwrap();
    let small = filesystem.lookup("/tree/small").unwrap();
    small.set_xattr(b"user.name", b"value", XattrMode::Either).unwrap();
    let attributes = Attributes {
        mode: Some(0o4755),
        uid: Some(7),
        gid: Some(8),
        accessed: Some(OLD),
        modified: Some(OLD),
        ..Attributes::default()
    };
    for inode in [&small, below.inode(), tree.inode()] {
        inode.set_attributes(&attributes).unwrap();
    }
    drop((small, sparse, below, tree));
    filesystem.close().unwrap();
}

/// Returns the differences between two trees of an image in all that a copy can keep.
fn differences(filesystem: &Filesystem, left: &str, right: &str) -> Vec<String> {
    const NOT_COPIED: &[&str] = &["inode", "subvolume", "ctime", "btime", "atime", "segments"];
    let all = walk_ours::walk(filesystem).unwrap();
    let left = all.below(left.as_bytes());
    let right = all.below(right.as_bytes());
    assert!(left.entries().len() > 8);
    diff(&left, &right, NOT_COPIED).iter().map(ToString::to_string).collect()
}

#[test]
fn archive_copy_keeps_everything() {
    let made = Made::new();
    fill(&made);
    made.does("cp -a", &["/tree", "/copy"]);
    made.does("cp -a", &["/tree", "/copy"]);
    made.does("mkdir", &["/inside"]);
    made.does("cp -a", &["/tree/.", "/inside"]);
    let filesystem = made.open();
    let metadata = |path: &str| filesystem.symlink_metadata(path).unwrap();
    assert_eq!(differences(&filesystem, "/tree", "/inside"), [""; 0]);
    assert_eq!(differences(&filesystem, "/tree", "/copy/tree"), [""; 0]);
    assert_eq!(metadata("/copy/small").nlink, 2);
    assert_eq!(metadata("/copy/small").accessed, OLD);
    assert_eq!(metadata("/copy/sparse").allocated, metadata("/tree/sparse").allocated);
    assert_eq!(filesystem.lookup("/copy/small").unwrap().xattrs().unwrap().len(), 1);
    drop(filesystem);
    made.judge();
}

#[test]
fn plain_copy_keeps_only_content_and_permissions() {
    let made = Made::new();
    fill(&made);
    made.does("cp", &["/tree/small", "/tree/link", "/tree/large", "/"]);
    made.does("cp -r", &["/tree", "/plain"]);
    made.does("cp -rp", &["/tree", "/kept"]);
    let filesystem = made.open();
    let metadata = |path: &str| filesystem.symlink_metadata(path).unwrap();
    assert_eq!(filesystem.read("/link").unwrap(), b"small");
    assert!(metadata("/link").is_file(), "a link is followed");
    assert!(metadata("/plain/link").is_symlink(), "but not where trees are copied");
    assert!(filesystem.read("/large").unwrap() == pattern(300_000));
    for path in ["/small", "/plain/small", "/plain/below/again"] {
        let found = metadata(path);
        assert_eq!((found.mode, found.uid, found.gid, found.nlink), (0o100_755, 0, 0, 1));
        assert!(found.modified > OLD);
        assert!(filesystem.lookup(path).unwrap().xattrs().unwrap().is_empty());
    }
    for path in ["/kept/small", "/kept/below"] {
        let found = metadata(path);
        assert_eq!((found.mode & 0o7777, found.uid, found.gid), (0o4755, 7, 8));
        assert_eq!(found.modified, OLD);
    }
    assert_eq!(metadata("/kept/small").nlink, 1);
    drop(filesystem);
    made.judge();
}

#[test]
fn impossible_copy_is_refused_by_name() {
    let made = Made::new();
    fill(&made);
    let before = made.paths();
    let bad = |words: &str, paths: &[&str], says: &[&str]| {
        assert_says(&made.verb(words, paths).bad(), says);
    };
    bad("cp", &["/tree", "/x"], &["/tree: is a directory"]);
    bad("cp -a", &["/tree", "/tree"], &["cp: /tree: a directory cannot be within itself"]);
    bad("cp -a", &["/tree", "/tree/below/x"], &["cp: /tree: a directory cannot be within itself"]);
    bad("cp", &["/tree/small", "/tree/below/again"], &["/tree/small", "replaced by itself"]);
    bad("cp -a", &["/tree/small", "/tree"], &["/tree/small", "replaced by itself"]);
    bad("cp", &["/none", "/x"], &["/none: no such file or directory"]);
    bad("cp", &["/tree/small", "/tree/large", "/x"], &["/x: not a directory"]);
    bad("cp", &["/tree/small", "/x/y"], &["/x/y: no such file or directory"]);
    assert_eq!(made.paths(), before);
    made.does("ln -s", &["small", "/tree/to small"]);
    for words in ["cp -a", "cp -r", "cp"] {
        bad(words, &["/tree/to small", "/tree/small"], &["replaced by itself"]);
    }
    assert_eq!(made.open().read("/tree/small").unwrap(), b"small");
    made.does("cp --remove-destination", &["/tree/small", "/tree/to small"]);
    assert!(made.open().symlink_metadata("/tree/to small").unwrap().is_file());
    made.does("rm", &["/tree/to small"]);
    bad("cp", &["/none", "/tree/small", "/"], &["/none: no such file or directory"]);
    assert_eq!(made.open().read("/small").unwrap(), b"small", "the rest is done");
    made.judge();
}

#[test]
fn copy_is_written_into_an_existing_file() {
    let made = Made::new();
    fill(&made);
    made.does("cp", &["/tree/large", "/file"]);
    made.does("ln", &["/file", "/other"]);
    made.does("chown", &["7:8", "/file"]);
    made.does("chmod", &["640", "/file"]);
    made.does("setfattr", &["-n", "user.a", "-v", "b", "/file"]);
    for (words, source, content) in [
        ("cp", "/tree/small", b"small".to_vec()),
        ("cp -f --reflink=never", "/tree/large", pattern(300_000)),
        ("cp -r", "/tree/small", b"small".to_vec()),
        ("cp --reflink", "/tree/large", pattern(300_000)),
    ] {
        made.does(words, &[source, "/file"]);
        let filesystem = made.open();
        let found = filesystem.metadata("/file").unwrap();
        assert_eq!((found.mode, found.uid, found.gid, found.nlink), (0o100_640, 7, 8, 2));
        assert_eq!(filesystem.lookup("/file").unwrap().xattr(b"user.a").unwrap(), b"b");
        for path in ["/file", "/other"] {
            assert!(filesystem.read(path).unwrap() == content, "{words} {path}");
        }
    }
    made.does("cp -n", &["/tree/small", "/file"]);
    assert!(made.open().read("/file").unwrap() == pattern(300_000));
    for (words, paths) in [("cp", ["/file", "/other"]), ("cp -r", ["/tree", "/"])] {
        assert_says(&made.verb(words, &paths).bad(), &["replaced by itself"]);
    }
    made.judge();
}

#[test]
fn copy_replaces_an_existing_file_if_attributes_are_kept_or_on_request() {
    let made = Made::new();
    fill(&made);
    made.does("cp", &["/tree/large", "/other"]);
    for words in ["cp -a", "cp -p", "cp --remove-destination"] {
        made.does("ln -f", &["/other", "/file"]);
        made.does(words, &["/tree/small", "/file"]);
        let filesystem = made.open();
        assert_eq!(filesystem.read("/file").unwrap(), b"small", "{words}");
        assert!(filesystem.read("/other").unwrap() == pattern(300_000), "{words}");
    }
    made.judge();
}

/// The compression property is copied, except into a nodatacow directory: that is printed with
/// `-v`, and is no error.
#[test]
fn compression_property_is_kept_unless_nodatacow() {
    const NAME: &[u8] = b"btrfs.compression";
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.write("/file", "content").unwrap();
    let file = filesystem.lookup("/file").unwrap();
    file.set_xattr(NAME, b"zstd", XattrMode::Create).unwrap();
    let dir = filesystem.create_dir("/in place", 0o755).unwrap();
    dir.inode().set_flags(InodeFlags::NODATACOW).unwrap();
    drop((file, dir));
    filesystem.close().unwrap();
    made.does("cp -a", &["/file", "/copy"]);
    let told = made.verb("cp -a -v", &["/file", "/in place"]);
    assert_says(&told.stderr, &["/file", "btrfs.compression could not be kept", "in place"]);
    let counted = made.verb("cp -a", &["/file", "/in place/again"]);
    assert_eq!(counted.code, Some(0));
    assert_says(&counted.stderr, &["1 owner or attribute not preserved"]);
    let filesystem = made.open();
    let value = |path: &str| filesystem.lookup(path).unwrap().xattr(NAME).ok();
    assert_eq!(value("/copy").as_deref(), Some(&b"zstd"[..]));
    assert!(filesystem.metadata("/copy").unwrap().flags.contains(InodeFlags::COMPRESS));
    for path in ["/in place/file", "/in place/again"] {
        assert_eq!(value(path), None);
        assert_eq!(filesystem.read(path).unwrap(), b"content");
    }
    drop(filesystem);
    made.judge();
}

/// As by cp(1): what keeps the permissions of its source has no access list but that of the source.
#[test]
fn default_acl_of_target_is_inherited_unless_permissions_are_kept() {
    // The owner 7, user 1000 7, the group 5, the mask 7, others 0.
    const DEFAULT: &str = "0x02000000 01000700ffffffff 02000700e8030000 04000500ffffffff \
        10000700ffffffff 20000000ffffffff";
    let made = Made::new();
    made.does("mkdir", &["/dir"]);
    let value = DEFAULT.replace(' ', "");
    made.does("setfattr", &["-n", "system.posix_acl_default", "-v", &value, "/dir"]);
    fs::write(made.at("put"), "content").unwrap();
    fs::set_permissions(made.at("put"), fs::Permissions::from_mode(0o664)).unwrap();
    made.does("put", &[made.at("put").to_str().unwrap(), "/"]);
    made.does("put", &[made.at("put").to_str().unwrap(), "/dir"]);
    made.does("cp", &["/put", "/dir/copied"]);
    made.does("cp -p", &["/put", "/dir/preserved"]);
    made.does("mkdir", &["/dir/below"]);
    let filesystem = made.open();
    let found = |path: &str| {
        let inode = filesystem.lookup(path).unwrap();
        let xattrs = inode.xattrs().unwrap().into_iter();
        let names: Vec<_> = xattrs.map(|(name, _)| String::from_utf8(name).unwrap()).collect();
        (inode.metadata().unwrap().mode & 0o7777, names.join(" "))
    };
    let access = "system.posix_acl_access";
    let default = "system.posix_acl_default";
    assert_eq!(found("/dir/put"), (0o664, String::new()));
    assert_eq!(found("/dir/preserved"), (0o664, String::new()));
    assert_eq!(found("/dir/copied"), (0o660, access.to_owned()));
    assert_eq!(found("/dir/below"), (0o750, format!("{default} {access}")));
    made.judge();
}

#[test]
fn copy_shares_data_unless_told_not_to() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.write("/file", pattern(300_000)).unwrap();
    filesystem.write("/small", "small").unwrap();
    let plain = filesystem.create_dir("/plain", 0o755).unwrap();
    plain.inode().set_flags(InodeFlags::NODATACOW).unwrap();
    drop(plain);
    filesystem.close().unwrap();
    for when in ["", "--reflink", "--reflink=auto", "--reflink=always", "--reflink=never"] {
        let verb = format!("cp {when}").trim_end().to_owned();
        let copy = format!("/copy{when}");
        let verb = verb.trim_end();
        made.does(verb, &["/file", &copy]);
        made.does(verb, &["/small", &format!("{copy}-small")]);
        let filesystem = made.open();
        let places = |path: &str| filesystem.open_file(path).unwrap().extents().unwrap();
        assert_eq!(places("/file") == places(&copy), when != "--reflink=never", "{when}");
        assert!(filesystem.read(&copy).unwrap() == pattern(300_000), "{when}");
        assert!(filesystem.read(format!("{copy}-small")).unwrap() == b"small", "{when}");
    }
    // Files there have no checksums.
    made.does("cp", &["/file", "/plain/copied"]);
    let refused = made.verb("cp --reflink", &["/file", "/plain/refused"]).bad();
    assert_says(&refused, &["/plain/refused: invalid: only one of the files has checksums"]);
    let filesystem = made.open();
    assert!(filesystem.read("/plain/copied").unwrap() == pattern(300_000));
    assert!(filesystem.lookup("/plain/refused").is_err());
    drop(filesystem);
    made.judge();
}

#[test]
fn dedupe_shares_equal_sectors_and_prints_how_many_bytes() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let bytes = pattern(300_000);
    let moved = [&pattern(4096)[..], &bytes[8192..250_000]].concat();
    filesystem.write("/a", &bytes).unwrap();
    filesystem.write("/b", &bytes).unwrap();
    filesystem.write("/moved", &moved).unwrap();
    filesystem.write("/other", vec![7; 100_000]).unwrap();
    filesystem.close().unwrap();
    // All of `b`, whole sectors of `moved`, and of `other` all whole sectors but the first.
    let shared = 303_104 + (250_000 - 8192) / 4096 * 4096 + 23 * 4096;
    let ran = made.verb("dedupe", &["/a", "/b", "/moved", "/other", "/a"]).good();
    assert_eq!(ran, format!("{shared} bytes shared\n"));
    let again = made.verb("dedupe", &["/a", "/b", "/moved", "/other"]).good();
    assert_eq!(again, "0 bytes shared\n");
    let filesystem = made.open();
    let places = |path: &str| filesystem.open_file(path).unwrap().extents().unwrap();
    assert_eq!(places("/a"), places("/b"));
    for (path, content) in [("/a", &bytes), ("/b", &bytes), ("/moved", &moved)] {
        assert!(filesystem.read(path).unwrap() == *content, "{path}");
    }
    drop(filesystem);
    made.judge();
    let missing = made.verb("dedupe", &["/none"]).bad();
    assert_says(&missing, &["/none: no such file or directory"]);
}
