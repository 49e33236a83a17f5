//! Subvolumes changed through a mount, by the verbs and by rmdir, rm and rename.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::chown;
use std::process::Command;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use userbtrfs_testkit::test_env::has_program;

use super::support::command::{Ran, run};
use super::support::site::Site;

/// Runs a verb on paths in the mount.
fn verb(site: &Site, words: &str, paths: &[&str]) -> Ran {
    let paths = paths.iter().map(|path| site.point().join(path).into_os_string());
    run(words.split(' ').map(|word| OsStr::new(word).to_owned()).chain(paths))
}

#[test]
fn subvolumes_are_made_and_deleted_by_paths_in_a_mount() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let point = site.point();
    let does = |words: &str, paths: &[&str]| {
        assert_eq!(verb(&site, &format!("subvolume -q {words}"), paths).good(), "");
    };
    // The kernel caches that the name is absent.
    assert!(!point.join("a").exists());
    does("create", &["a", "two"]);
    assert!(point.join("a").is_dir());
    // Data that only the kernel has is in the snapshot.
    let path = point.join("a/file");
    let mut file = File::create(path).unwrap();
    file.write_all(b"before").unwrap();
    does("snapshot -r", &["a", "frozen"]);
    file.write_all(b" and after").unwrap();
    assert_eq!(fs::read(point.join("frozen/file")).unwrap(), b"before");
    assert!(fs::write(point.join("frozen/x"), "").is_err());
    does("snapshot", &["frozen", "two"]);
    fs::write(point.join("two/frozen/file"), "changed").unwrap();
    assert_eq!(fs::read(point.join("frozen/file")).unwrap(), b"before");
    let said = verb(&site, "subvolume create", &["a"]).bad();
    assert_eq!(said, format!("userbtrfs: {}: file exists\n", point.join("a").display()));
    let said = verb(&site, "subvolume delete", &["two"]).bad();
    assert!(said.ends_with("two: directory not empty\n"), "{said}");
    // An open file of a deleted subvolume stays readable.
    let mut open = File::open(point.join("frozen/file")).unwrap();
    does("delete -c", &["frozen", "a"]);
    assert!(!point.join("frozen").exists() && !point.join("a").exists());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before");
    drop((open, file));
    site.umount();
    site.judge();
    let list = site.made.verb("subvolume list", &[]).good();
    let paths: Vec<_> = list.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(paths, ["two", "two/frozen"]);
    site.made.judge();
}

#[test]
fn subvolumes_in_a_mount_are_removed_and_renamed_like_directories() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let point = site.point();
    let tree = ["tree", "tree/sub", "tree/sub/inner", "empty", "old"];
    fs::create_dir(point.join(tree[0])).unwrap();
    for path in &tree[1..] {
        verb(&site, "subvolume -q create", &[path]).good();
    }
    fs::write(point.join("tree/sub/inner/file"), "x").unwrap();
    fs::write(point.join("old/file"), "kept").unwrap();
    fs::rename(point.join("old"), point.join("tree/sub/new")).unwrap();
    assert_eq!(fs::read_to_string(point.join("tree/sub/new/file")).unwrap(), "kept");
    fs::rename(point.join("tree/sub/new"), point.join("new")).unwrap();
    let exchange = |old: &str, new: &str| {
        let [old, new] = [old, new].map(|name| point.join(name));
        renameat_with(CWD, old, CWD, new, RenameFlags::EXCHANGE)
    };
    fs::write(point.join("plain"), "plain").unwrap();
    assert_eq!(exchange("plain", "tree/sub/inner"), Err(Errno::XDEV));
    for (old, new) in [("new", "tree/sub/inner"), ("plain", "new")] {
        exchange(old, new).unwrap();
    }
    assert_eq!(fs::read_to_string(point.join("new")).unwrap(), "plain");
    assert_eq!(fs::read_to_string(point.join("plain/file")).unwrap(), "x");
    assert_eq!(fs::read_to_string(point.join("tree/sub/inner/file")).unwrap(), "kept");
    for (old, new) in [("plain", "new"), ("tree/sub/inner", "new")] {
        exchange(old, new).unwrap();
    }
    fs::remove_file(point.join("plain")).unwrap();
    fs::remove_dir(point.join("empty")).unwrap();
    assert!(fs::remove_dir(point.join("new")).is_err());
    assert!(Command::new("rm").arg("-rf").arg(point.join("tree")).status().unwrap().success());
    assert!(!point.join("tree").exists());
    site.umount();
    site.judge();
    let list = site.made.verb("subvolume list", &[]).good();
    assert!(list.lines().count() == 1 && list.ends_with("path new\n"), "{list}");
    site.made.judge();
}

#[test]
fn subvolumes_in_a_mount_are_shown_and_set_by_their_paths() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let point = site.point();
    let path_of = |path: &str| point.join(path).into_os_string();
    let with = |words: &str, path: &str, more: &[&str]| {
        let words = words.split(' ').map(|word| OsStr::new(word).to_owned());
        run(words.chain([path_of(path)]).chain(more.iter().map(|word| (*word).into())))
    };
    verb(&site, "subvolume -q create", &["a", "a/b", "gone"]).good();
    assert_eq!(with("property get", "a", &[]).good(), "ro=false\n");
    // Data that only the kernel has is written before the subvolume is read-only.
    let mut open = File::create(point.join("a/b/file")).unwrap();
    open.write_all(b"kept").unwrap();
    assert_eq!(with("property set", "a/b", &["ro", "true"]).good(), "");
    drop(open);
    assert_eq!(with("property get", "a/b", &["ro"]).good(), "ro=true\n");
    let refused = fs::write(point.join("a/b/other"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "EROFS");
    assert!(with("subvolume show", "a/b", &[]).good().contains("Flags: \t\t\treadonly\n"));
    let whole = with("subvolume show", "", &["/a/b"]).good();
    assert_eq!(with("subvolume show", "a/b", &[]).good(), whole);
    assert_eq!(with("property set", "a/b", &["ro", "false"]).good(), "");
    fs::write(point.join("a/b/other"), "").unwrap();
    let default = || with("subvolume get-default", "a", &[]).good();
    assert_eq!(with("subvolume set-default", "a/b", &[]).good(), "");
    assert!(default().ends_with(" path a/b\n"), "{}", default());
    assert_eq!(with("subvolume set-default", "", &["/a"]).good(), "");
    assert!(default().ends_with(" path a\n"), "{}", default());
    assert_eq!(with("subvolume set-default", "a", &["5"]).good(), "");
    assert_eq!(default(), "ID 5 (FS_TREE)\n");
    fs::create_dir(point.join("plain")).unwrap();
    for (words, more) in [
        ("property get -ts", &[][..]),
        ("property set -ts", &["ro", "true"][..]),
        ("subvolume set-default", &[]),
        ("subvolume show", &[]),
    ] {
        let said = with(words, "plain", more).bad();
        assert_eq!(said, format!("userbtrfs: {}/plain: no such subvolume\n", point.display()));
    }
    let said = with("property set", "a", &["label", "x"]).bad();
    assert_eq!(said, "userbtrfs: object is not compatible with property: label\n");
    assert_eq!(with("property get", "plain", &[]).good(), "");
    assert_eq!(with("property set", "plain", &["compression", "zstd"]).good(), "");
    assert_eq!(with("property get", "plain", &[]).good(), "compression=zstd\n");
    // An open file keeps a deleted subvolume.
    let open = File::create(point.join("gone/file")).unwrap();
    verb(&site, "subvolume -q delete", &["gone"]).good();
    drop(open);
    let said = with("subvolume sync", "", &[]).good();
    let waited = "Waiting for 1 subvolume\nSubvolume id 258 is gone (1/1)\n";
    assert!(said.is_empty() || said == waited, "{said}");
    assert_eq!(with("subvolume sync", "", &[]).good(), "");
    let said = with("subvolume sync", "", &["256"]).bad();
    assert_eq!(said, "userbtrfs: subvolume 256 is not deleted\n");
    site.umount();
    site.judge();
    assert_eq!(site.made.verb("cat", &["/a/b/file"]).good(), "kept");
}

#[test]
fn user_subvol_rm_allowed_lets_owners_delete_subvolumes_by_ioctl() {
    const DELETE: &str = "import fcntl, os\n\
        os.setgroups([])\nos.setgid(1000)\nos.setuid(1000)\n\
        argument = b'sub'.rjust(11, b'\\0').ljust(4096, b'\\0')\n\
        fcntl.ioctl(os.open('.', os.O_RDONLY), 0x5000940f, bytearray(argument))";
    let delete = |site: &Site| {
        let mut python = Command::new("python3");
        python.args(["-c", DELETE]).current_dir(site.point().join("mine"));
        let output = python.output().unwrap();
        let is_refused = String::from_utf8_lossy(&output.stderr).contains("PermissionError");
        assert_ne!(output.status.success(), is_refused, "{output:?}");
        !is_refused
    };
    if !has_program("python3") {
        return;
    }
    for (options, is_allowed) in
        [("allow_other", false), ("allow_other,user_subvol_rm_allowed", true)]
    {
        let Some(site) = Site::new() else { return };
        site.mount(&["-o", options]).good();
        fs::create_dir(site.point().join("mine")).unwrap();
        verb(&site, "subvolume -q create", &["mine/sub"]).good();
        for path in ["mine", "mine/sub"] {
            chown(site.point().join(path), Some(1000), Some(1000)).unwrap();
        }
        assert_eq!(delete(&site), is_allowed);
        assert_eq!(site.point().join("mine/sub").exists(), !is_allowed);
        site.umount();
        site.judge();
    }
}
