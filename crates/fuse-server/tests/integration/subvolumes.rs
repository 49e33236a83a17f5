//! Subvolumes and snapshots, below the mounted one and mounted themselves.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use userbtrfs_engine::api::OpenOptions;
use userbtrfs_testkit::walk_linux;

use crate::support::{Ours, Site, shell};

const MAKE: &str = "mkdir dir; btrfs -q subvolume create dir/sub; echo one >dir/sub/file; \
    ln dir/sub/file dir/sub/link; btrfs -q subvolume snapshot dir/sub snap; \
    btrfs -q subvolume snapshot -r dir/sub frozen; echo two >snap/file; echo three >file; \
    btrfs -q subvolume create dir/sub/inner; btrfs -q subvolume snapshot dir/sub outer";

#[test]
fn subvolumes_are_shown_with_distinct_inode_numbers() {
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
        // A snapshot has an empty directory at the place of a subvolume.
        assert_eq!(fs::read_dir(root.join("outer/inner")).unwrap().count(), 0);
        // A walk of the tree finds no loops, and there are no links between subvolumes.
        assert_eq!(shell(root, "find . -name file | wc -l").trim(), "5");
        shell(root, "! ln file snap/other 2>/dev/null; mv file snap/moved; mv snap/moved file");
        shell(root, "! sh -c 'echo x >frozen/file' 2>/dev/null; ! rm -f frozen/file 2>/dev/null");
        shell(root, "echo four >snap/new; echo five >>dir/sub/file; mkdir dir/sub/inner/made");
    });
    userbtrfs_testkit::linux::btrfs_check(&site.image()).unwrap();
    site.with_linux("ro,noatime", |root| {
        assert_eq!(fs::read_to_string(root.join("snap/new")).unwrap(), "four\n");
        assert_eq!(fs::read_to_string(root.join("dir/sub/file")).unwrap(), "one\nfive\n");
        assert!(root.join("dir/sub/inner/made").is_dir());
    });
}

/// A snapshot has the names of the subvolumes in its source, each as an empty directory: the kernel
/// must not take two of them for one, which it would show at only one path.
#[test]
fn places_of_subvolumes_in_a_snapshot_are_directories_of_their_own() {
    const NESTED: &str = "btrfs -q subvolume create source; mkdir source/dir; \
        for name in one two dir/three; do btrfs -q subvolume create source/$name; done; \
        echo content >source/one/file; btrfs -q subvolume snapshot source snap; \
        btrfs -q subvolume snapshot snap again";
    const PLACES: [&str; 3] = ["one", "two", "dir/three"];
    let look = |snapshot: &Path| {
        let open = PLACES.map(|place| {
            let path = snapshot.join(place);
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "{place}");
            (File::open(&path).unwrap(), path)
        });
        // The path that the kernel has for each, before it is looked up again.
        for (file, path) in &open {
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            assert_eq!(fs::read_link(link).unwrap(), *path);
        }
        for (file, path) in &open {
            let held = file.metadata().unwrap();
            let found = fs::metadata(path).unwrap();
            assert_eq!((held.ino(), held.dev()), (found.ino(), found.dev()));
            assert!(found.is_dir() && found.ino() & 0xFF == 2, "{path:?}: {}", found.ino());
        }
        assert_eq!(shell(snapshot, "find . | sort"), ".\n./dir\n./dir/three\n./one\n./two\n");
        let listed = shell(snapshot, "ls -Ai1 . dir | grep -c '^ *[0-9]* [a-z]'");
        assert_eq!(listed.trim(), "4");
    };
    let Some(site) = Site::new() else { return };
    site.format();
    site.with_linux("noatime", |root| {
        shell(root, NESTED);
        for name in ["snap", "again"] {
            look(&root.join(name));
        }
    });
    site.with_ours(|root| {
        for name in ["snap", "again", "snap"] {
            look(&root.join(name));
        }
        assert_eq!(fs::read_to_string(root.join("source/one/file")).unwrap(), "content\n");
        assert!(fs::create_dir(root.join("snap/two/made")).is_err());
    });
    let ours = Ours::new(&site, OpenOptions::new().write(true).subvolume_path(b"/snap"));
    look(ours.path());
    ours.end();
    userbtrfs_testkit::linux::btrfs_check(&site.image()).unwrap();
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
    // The subvolume in it shows a number of its own.
    let differences = userbtrfs_testkit::manifest::diff(&shown, &linux, &["inode", "subvolume"]);
    assert!(differences.is_empty(), "{differences:#?}");
}
