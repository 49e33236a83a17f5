//! What options of a mount do: to what is made in it, as Linux's do, and to what is shown and kept.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use userbtrfs_crashlab::here::{has_program, until};
use userbtrfs_crashlab::linux::{self, Linux};

use super::mount::Site;
use super::support::assert_says;

/// Makes files in each of the ways there are, of which some have flags of their own, and shows
/// the flags of all.
const MAKE: &str = "echo content >file; mkdir dir; head -c 9999 /dev/zero | tr '\\0' x >dir/large; \
    ln -s file symlink; mkfifo pipe; touch summed; chattr -C summed; echo content >summed; \
    touch in_place; chattr +C in_place; echo content >in_place; \
    mkdir all_in_place; chattr +C all_in_place; echo content >all_in_place/inherits; \
    python3 -c 'import os; f = os.open(\".\", os.O_TMPFILE | os.O_RDWR); os.write(f, b\"text\"); \
        os.link(f\"/proc/self/fd/{f}\", \"unnamed\", dst_dir_fd=os.open(\".\", 0))'; \
    lsattr -R .";

/// What is to be seen after `MAKE`.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// What `lsattr` showed.
    shown: String,
    /// The flags of each inode on disk.
    flags: Vec<String>,
    has_checksums: bool,
}

fn make(root: &Path) -> String {
    let made = linux::run(Command::new("sh").args(["-ec", MAKE]).current_dir(root)).unwrap();
    String::from_utf8(made.stdout).unwrap()
}

fn see(image: &Path, shown: String) -> Seen {
    let dump = |tree: &str| {
        let mut command = Command::new("btrfs");
        command.args(["inspect-internal", "dump-tree", "-t", tree]).arg(image);
        String::from_utf8(linux::run(&mut command).unwrap().stdout).unwrap()
    };
    let fs_tree = dump("fs");
    let is_inode = |item: &&str| item.lines().next().unwrap().contains(" INODE_ITEM 0)");
    let inodes = fs_tree.split("\titem ").filter(is_inode);
    let flags = inodes.map(|item| {
        let after = item.split_once(" flags ").unwrap().1;
        after.lines().next().unwrap().to_owned()
    });
    Seen { shown, flags: flags.collect(), has_checksums: dump("csum").contains("EXTENT_CSUM") }
}

fn of_linux(site: &Site, options: &str) -> Seen {
    site.made.format("256M");
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&site.image(), options).unwrap();
    let shown = make(mount.path());
    drop(mount);
    linux.assert_no_complaints().unwrap();
    see(&site.image(), shown)
}

fn of_ours(site: &Site, options: &str) -> Seen {
    site.made.format("256M");
    site.mount(&["-o", options]).good();
    let shown = make(&site.point());
    site.umount();
    site.judge();
    see(&site.image(), shown)
}

#[test]
fn new_files_are_stored_as_the_options_say() {
    const IN_PLACE: &str = "0x3(NODATASUM|NODATACOW)";
    const UNSUMMED: &str = "0x1(NODATASUM)";
    const PLAIN: &str = "0x0(none)";
    let Some(site) = Site::new() else { return };
    if !has_program("chattr") || !has_program("python3") {
        return;
    }
    for (options, flags) in [
        ("nodatacow", IN_PLACE),
        ("nodatasum", UNSUMMED),
        ("datacow,datasum", PLAIN),
        ("nodatacow,datacow", UNSUMMED),
        ("nodatacow,datasum", PLAIN),
        ("nodatasum,datacow", UNSUMMED),
        ("datasum,nodatacow", IN_PLACE),
    ] {
        let (theirs, ours) = (of_linux(&site, options), of_ours(&site, options));
        // The root directory is before the first file.
        assert_eq!(theirs.flags[1], flags, "{options}");
        assert_eq!(ours, theirs, "{options}");
    }
}

#[test]
fn a_subvolume_is_mounted_by_its_number() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&site.image(), "rw").unwrap();
    let mut btrfs = Command::new("btrfs");
    linux::run(btrfs.args(["subvolume", "create"]).arg(mount.path().join("one"))).unwrap();
    fs::write(mount.path().join("one/file"), "content").unwrap();
    drop(mount);
    drop(linux);
    for (number, is_it) in [("256", true), ("5", false), ("0", false)] {
        site.mount(&["-o", &format!("subvolid={number}")]).good();
        let found = fs::read_to_string(site.point().join("file"));
        assert_eq!(found.is_ok_and(|content| content == "content"), is_it, "{number}");
        assert_eq!(site.point().join("one").is_dir(), !is_it, "{number}");
        site.umount();
    }
    assert_says(&site.mount(&["-o", "subvolid=257"]).bad(), &["no such subvolume"]);
    site.judge();
}

#[test]
fn a_log_that_is_not_replayed_is_not_shown() {
    let Some(site) = Site::new() else { return };
    let mut server = site.serve(&["-o", "commit=0"]);
    let file = File::create(site.point().join("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    server.kill().unwrap();
    site.umount();
    server.wait().unwrap();
    for (options, is_shown) in [("ro,nologreplay", false), ("ro", true), ("rw", true)] {
        let said = site.mount(&["-o", options]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.stderr.contains("is not replayed"), !is_shown, "{said:?}");
        assert_eq!(site.point().join("file").exists(), is_shown, "{options}");
        site.umount();
    }
    site.judge();
}

#[test]
fn what_is_written_is_durable_when_the_time_to_commit_has_passed() {
    let Some(site) = Site::new() else { return };
    let mut server = site.serve(&["-o", "commit=1"]);
    fs::write(site.point().join("file"), "content").unwrap();
    // Who only reads the image sees what is committed.
    until("a commit", || site.made.verb("cat", &["/file"]).stdout == b"content");
    server.kill().unwrap();
    site.umount();
    server.wait().unwrap();
    assert_says(&site.made.verb("dump log", &[]).good(), &["no log is pending"]);
    assert_eq!(site.made.verb("cat", &["/file"]).good(), "content");
    site.judge();
}
