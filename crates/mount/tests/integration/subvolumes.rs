//! Subvolumes and snapshots, below the one that is mounted and instead of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use userbtrfs_crashlab::walk_linux;
use userbtrfs_engine::api::OpenOptions;

use crate::support::{Ours, Site, shell};

const MAKE: &str = "mkdir dir; btrfs -q subvolume create dir/sub; echo one >dir/sub/file; \
    ln dir/sub/file dir/sub/link; btrfs -q subvolume snapshot dir/sub snap; \
    btrfs -q subvolume snapshot -r dir/sub frozen; echo two >snap/file; echo three >file; \
    btrfs -q subvolume create dir/sub/inner; btrfs -q subvolume snapshot dir/sub outer";

#[test]
fn all_subvolumes_are_there_and_no_two_inodes_pass_for_one() {
    let Some(site) = Site::new() else { return };
    site.format();
    site.with_linux("noatime", |root| shell(root, MAKE));
    site.with_ours(|root| {
        for (path, content) in [("dir/sub/file", "one"), ("snap/file", "two"), ("file", "three")] {
            assert_eq!(fs::read_to_string(root.join(path)).unwrap().trim(), content);
        }
        let roots = ["", "dir/sub", "snap", "frozen", "dir/sub/inner"];
        let numbers: BTreeSet<_> =
            roots.iter().map(|path| fs::metadata(root.join(path)).unwrap().ino()).collect();
        assert_eq!(numbers.len(), roots.len());
        // In what was a subvolume's place in a snapshot is an empty directory.
        assert_eq!(fs::read_dir(root.join("outer/inner")).unwrap().count(), 0);
        // Who walks finds no loops, and no links between subvolumes.
        assert_eq!(shell(root, "find . -name file | wc -l").trim(), "5");
        shell(root, "! ln file snap/other 2>/dev/null; mv file snap/moved; mv snap/moved file");
        shell(root, "! sh -c 'echo x >frozen/file' 2>/dev/null; ! rm -f frozen/file 2>/dev/null");
        shell(root, "echo four >snap/new; echo five >>dir/sub/file; mkdir dir/sub/inner/made");
    });
    userbtrfs_crashlab::linux::btrfs_check(&site.image()).unwrap();
    site.with_linux("ro,noatime", |root| {
        assert_eq!(fs::read_to_string(root.join("snap/new")).unwrap(), "four\n");
        assert_eq!(fs::read_to_string(root.join("dir/sub/file")).unwrap(), "one\nfive\n");
        assert!(root.join("dir/sub/inner/made").is_dir());
    });
}

#[test]
fn another_subvolume_is_mounted_as_the_root() {
    let Some(site) = Site::new() else { return };
    site.format();
    site.with_linux("noatime", |root| shell(root, MAKE));
    let ours = Ours::new(&site, OpenOptions::new().write(true).subvolume_path(b"/dir/sub"));
    assert_eq!(fs::metadata(ours.path()).unwrap().ino(), 256);
    fs::write(ours.path().join("made"), "here").unwrap();
    let shown = walk_linux::walk(ours.path()).unwrap();
    ours.end();
    let linux =
        site.with_linux("ro,noatime,subvol=dir/sub", |root| walk_linux::walk(root).unwrap());
    // The subvolume within shows a number of its own.
    let differences = userbtrfs_crashlab::manifest::diff(&shown, &linux, &["inode", "subvolume"]);
    assert!(differences.is_empty(), "{differences:#?}");
}
