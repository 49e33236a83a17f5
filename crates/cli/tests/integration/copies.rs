//! Copies in all directions: what `put`, `cp` and `get` have in common.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::thread;

use userbtrfs::copy::{Copier, CopyOptions, ImageTarget, Progress};
use userbtrfs::{Attributes, Timestamp, TreeId, XattrMode};
use userbtrfs_image_builder::ImageEditor;
use userbtrfs_testkit::test_env::skip;

use crate::support::forging::{edit_leaf, inode, put_name};
use crate::support::held::Held;
use crate::support::made::Made;
use crate::support::site::unmount;
use crate::support::{access_list, assert_says, damage_attributes};

/// Makes an image with a file `/dir/file`; returns the numbers of both inodes.
fn with_dir(made: &Made) -> (u64, u64) {
    made.does("mkdir", &["/dir"]);
    let filesystem = made.open_for_writing();
    filesystem.write("/dir/file", b"content").unwrap();
    let number = |path: &str| filesystem.lookup(path).unwrap().id().number;
    let numbers = (number("/dir"), number("/dir/file"));
    filesystem.close().unwrap();
    numbers
}

/// Each entry is named that cannot be read, or whose name would lead elsewhere.
#[test]
fn bad_entries_are_named_and_the_rest_is_copied() {
    let made = Made::new();
    let (dir, file) = with_dir(&made);
    let mut editor = ImageEditor::open(&made.image()).unwrap();
    edit_leaf(&mut editor, TreeId::FS, inode(dir), |items| {
        put_name(items, dir, 10, b"lost", (inode(5000), 1));
        put_name(items, dir, 11, b"../escaped", (inode(file), 1));
    });
    drop(editor);
    let expected = ["/dir/lost: inode 5000", "/dir/../escaped: refused"];
    assert_says(&made.verb("get", &["/dir", made.at("copy").to_str().unwrap()]).bad(), &expected);
    assert_says(&made.verb("cp -a", &["/dir", "/copy"]).bad(), &expected);
    assert_eq!(fs::read(made.at("copy/file")).unwrap(), b"content");
    assert_eq!(made.verb("cat", &["/copy/file"]).good(), "content");
    assert_eq!(made.verb("ls", &["/copy"]).good(), "file\n");
    assert!(!made.at("escaped").exists());
}

#[test]
fn file_whose_attributes_cannot_be_read_is_copied_without_them() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.write("/file", b"content").unwrap();
    let file = filesystem.lookup("/file").unwrap();
    for name in ["user.a", "user.b", "user.c", "user.d"] {
        file.set_xattr(name.as_bytes(), &[1; 9000], XattrMode::Either).unwrap();
    }
    let modified = Some(Timestamp { sec: 1_000_000_000, nsec: 7 });
    let attributes = Attributes { mode: Some(0o751), modified, ..Attributes::default() };
    file.set_attributes(&attributes).unwrap();
    let number = file.id().number;
    drop(file);
    filesystem.close().unwrap();
    assert_eq!(damage_attributes(&made.image()), BTreeSet::from([number]));
    let copy = made.at("copy");
    for said in [
        made.verb("cp -a", &["/file", "/copy"]).bad(),
        made.verb("get -q", &["/file", copy.to_str().unwrap()]).bad(),
    ] {
        assert_says(&said, &[": /file: tree block"]);
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(made.verb("cat", &["/copy"]).good(), "content");
    let found = made.open().metadata("/copy").unwrap();
    assert_eq!((found.mode & 0o7777, found.modified.sec), (0o751, 1_000_000_000));
    let found = fs::metadata(&copy).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime()), (0o751, 1_000_000_000));
    assert_eq!(fs::read(copy).unwrap(), b"content");
}

/// A new file of another user must not be executed, or read by others, before it is complete.
#[test]
fn incomplete_copies_are_private_and_directories_get_their_mode_if_stopped() {
    let made = Made::new();
    let source = made.at("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large"), vec![1; 128 << 20]).unwrap();
    for path in [&source, &source.join("large")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o4755)).unwrap();
    }
    let (filesystem, held) = Held::open(&made);
    let progress = Progress::default();
    let copier = Copier::new(CopyOptions::default(), &progress);
    let root = filesystem.root();
    let mode = |path: &str| filesystem.metadata(path).unwrap().mode & 0o7777;
    thread::scope(|scope| {
        let mode = &mode;
        let progress = &progress;
        // The copy cannot end before it is stopped.
        scope.spawn(move || {
            let _held = held;
            while progress.bytes() < 1 << 20 {
                thread::yield_now();
            }
            assert_eq!((mode("/copy"), mode("/copy/large")), (0o700, 0o600));
            progress.stop();
        });
        let target = ImageTarget { dir: &root, name: Some(b"copy"), path: b"/copy" };
        copier.put(&source, &target, &|error| panic!("{error}"));
    });
    assert_eq!(mode("/copy"), 0o4755);
    assert!(filesystem.metadata("/copy/large").is_err());
    drop(root);
    filesystem.close().unwrap();
    made.judge();
}

/// With an ACL of the directory before, the copied mode would grant rights to others.
#[test]
fn acls_of_an_existing_directory_are_removed_where_the_mode_is_kept() {
    const ACL: &[u8] = b"system.posix_acl_access";
    let made = Made::new();
    with_dir(&made);
    made.does("mkdir", &["/kept", "/plain"]);
    let filesystem = made.open_for_writing();
    for path in ["/kept", "/plain"] {
        let into = filesystem.lookup(path).unwrap();
        into.set_xattr(ACL, &access_list(), XattrMode::Either).unwrap();
    }
    filesystem.close().unwrap();
    made.does("cp -rp", &["/dir/.", "/kept"]);
    made.does("cp -r", &["/dir/.", "/plain"]);
    let filesystem = made.open();
    let has_list = |path: &str| filesystem.lookup(path).unwrap().xattr(ACL).is_ok();
    assert!(!has_list("/kept") && has_list("/plain"));
}

/// A directory of the destination is on another filesystem.
#[test]
fn hard_link_that_is_not_possible_becomes_a_file() {
    let made = Made::new();
    with_dir(&made);
    made.does("ln", &["/dir/file", "/dir/again"]);
    made.does("mkdir", &["/dir/sub"]);
    made.does("ln", &["/dir/file", "/dir/sub/other"]);
    let sub = made.at("copy/sub");
    fs::create_dir_all(&sub).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=8M", "tmpfs"]).arg(&sub);
    if !rustix::process::geteuid().is_root() || !mount.status().unwrap().success() {
        return skip("no mounts");
    }
    let ran = made.verb("get", &["/dir/.", made.at("copy").to_str().unwrap()]);
    let read = fs::read(sub.join("other"));
    unmount(&sub);
    ran.good();
    assert_eq!(read.unwrap(), b"content");
    let number = |name: &str| made.at("copy").join(name).metadata().unwrap().ino();
    assert_eq!(number("file"), number("again"));
}
