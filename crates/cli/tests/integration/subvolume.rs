//! `subvolume` and `property` on images, compared with btrfs-progs on a mount of the same image.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use userbtrfs::BlockGroupFlags;
use userbtrfs_testkit::linux::{self, Linux, available_or_skip};

use super::support::command::{Ran, command};
use super::support::made::Made;

/// Returns a filesystem with subvolumes, nested ones and snapshots.
fn made() -> Made {
    let made = Made::new();
    made.does("mkdir", &["/d"]);
    for (words, paths) in [
        ("create", &["/a", "/a/b", "/d/c"][..]),
        ("snapshot", &["/a", "/s1"]),
        ("snapshot -r", &["/a", "/d"]),
        ("snapshot", &["/a/b", "/d/s 3"]),
    ] {
        made.does(&format!("subvolume -q {words}"), paths);
    }
    made
}

/// Runs btrfs-progs in a directory, with the times of our output.
fn btrfs(words: &str, root: &Path, path: &str) -> String {
    let mut command = Command::new("btrfs");
    command.args(words.split(' ')).arg(path).current_dir(root).env("TZ", "UTC");
    String::from_utf8(linux::run(&mut command).unwrap().stdout).unwrap()
}

const LISTS: [&str; 18] = [
    "",
    " -p",
    " -c",
    " -g",
    " -u",
    " -q",
    " -R",
    " -s",
    " -r",
    " -d",
    " -o",
    " -a",
    " -t",
    " -tpcguqR",
    " -ts",
    " --sort=-gen,path",
    " -G +8",
    " -C -8",
];

#[test]
fn subvolumes_are_listed_and_shown_as_btrfs_progs_does() {
    if !available_or_skip() {
        return;
    }
    let made = made();
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&made.image(), "ro,noatime").unwrap();
    for options in LISTS {
        for path in ["/", "/a", "/d"] {
            let theirs =
                btrfs(&format!("subvolume list{options}"), mount.path(), &format!(".{path}"));
            let ours = made.verb(&format!("subvolume list{options}"), &[path]).good();
            assert_eq!(ours, theirs, "list{options} {path}");
        }
    }
    // The installed version shows the creation time as that of a send that never was.
    let without_send = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.contains("Send time")).map(str::to_owned).collect()
    };
    for path in ["/", "/a", "/s1", "/d/a", "/d/s 3"] {
        let theirs = btrfs("subvolume show", mount.path(), &format!(".{path}"));
        let ours = made.verb("subvolume show", &[path]).good();
        assert_eq!(without_send(&ours), without_send(&theirs), "show {path}");
        for kind in ["", " -ts", " -ti"] {
            let theirs = btrfs(&format!("property get{kind}"), mount.path(), &format!(".{path}"));
            assert_eq!(made.verb(&format!("property get{kind}"), &[path]).good(), theirs, "{path}");
        }
    }
    let theirs = btrfs("subvolume get-default", mount.path(), ".");
    assert_eq!(made.verb("subvolume get-default", &[]).good(), theirs);
}

#[test]
fn default_subvolume_is_set_by_path_or_id_and_kept() {
    let made = made();
    let default = || made.verb("subvolume get-default", &[]).good();
    assert_eq!(default(), "ID 5 (FS_TREE)\n");
    made.does("subvolume set-default", &["/a"]);
    assert!(default().starts_with("ID 256 gen ") && default().ends_with("path a\n"));
    let said = made.verb("subvolume delete --root-subvolid 5", &["/a"]).bad();
    assert_eq!(said, "userbtrfs: /a: is the default subvolume\n");
    made.does("subvolume set-default", &["5"]);
    assert_eq!(default(), "ID 5 (FS_TREE)\n");
    let said = made.verb("subvolume set-default", &["999"]).bad();
    assert_eq!(said, "userbtrfs: 999: no such subvolume\n");
    let said = made.verb("subvolume delete", &["/a"]).bad();
    assert_eq!(said, "userbtrfs: /a: directory not empty\n");
    made.does("subvolume -q delete", &["/a/b", "/a"]);
    made.judge();
}

#[test]
fn deletion_frees_the_space_before_it_returns() {
    let made = Made::new();
    let used = || made.verb("df -b", &[]).good();
    made.does("subvolume -q create", &["/s"]);
    made.does("subvolume -q delete", &["/s"]);
    let before = used();
    made.does("subvolume -q create -p", &["/new/dir/s"]);
    let data = made.at("data");
    std::fs::write(&data, vec![7; 5 << 20]).unwrap();
    made.does("put", &[data.to_str().unwrap(), "/new/dir/s/file"]);
    made.does("subvolume -q snapshot", &["/new/dir/s", "/new/snap"]);
    made.judge();
    let listed = made.verb("subvolume list", &[]).good();
    let id = listed.lines().last().unwrap().split(' ').nth(1).unwrap();
    made.does(&format!("subvolume -q delete -i {id}"), &[]);
    let said = made.verb("subvolume delete -c", &["/nope", "/new/dir/s"]);
    assert_eq!(said.code, Some(1));
    assert_eq!(said.stderr, "userbtrfs: /nope: no such file or directory\n");
    assert_eq!(said.stdout, b"Delete subvolume (commit): '/new/dir/s'\n");
    assert_eq!(made.verb("subvolume list -d", &[]).good(), "");
    made.does("rm -r", &["/new"]);
    assert_eq!(used(), before);
    made.does("subvolume sync", &[]);
    made.judge();
}

/// Starts a deletion, and interrupts it as soon as it says that the subvolume is deleted.
fn delete_and_interrupt(made: &Made) {
    let mut delete = command(["subvolume", "delete"]);
    delete.arg(made.image()).arg("/s").stdout(Stdio::piped());
    let mut child = delete.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "Delete subvolume (no-commit): '/s'\n");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() || status.signal() == Some(Signal::INT.as_raw()), "{status:?}");
}

/// The subvolume is there as it was, if the signal was faster than the wait for its deletion; or it
/// is deleted, and the next verb drops the rest of its tree.
#[test]
fn deletion_that_a_signal_stops_leaves_the_subvolume_or_the_rest_to_drop() {
    const FILES: u32 = 12_000;
    let made = Made::new();
    made.does("subvolume -q create", &["/s"]);
    let filesystem = made.open_for_writing();
    for number in 0..FILES {
        filesystem.write(format!("/s/file {number}"), vec![1; 4096]).unwrap();
    }
    filesystem.close().unwrap();
    let files = made.verb("ls", &["/s"]).good();
    let mut tries = 0;
    while !made.verb("ls", &[]).good().is_empty() {
        assert_eq!(made.verb("ls", &["/s"]).good(), files);
        assert!(tries < 20, "it is never deleted");
        tries += 1;
        delete_and_interrupt(&made);
        made.judge();
    }
    let left = made.verb("subvolume list -d", &[]).good();
    println!("after {tries} tries: {left:?} is left");
    let said = made.verb("subvolume sync", &[]).good();
    let is_left = usize::from(!left.is_empty());
    assert_eq!(said, "Waiting for 1 subvolume\nSubvolume id 256 is gone (1/1)\n".repeat(is_left));
    assert_eq!(made.verb("subvolume list -d", &[]).good(), "");
    let kinds = made.open().usage().unwrap().kinds;
    let data = kinds.iter().filter(|kind| kind.flags.contains(BlockGroupFlags::DATA));
    assert_eq!(data.map(|kind| kind.used).sum::<u64>(), 0);
    made.judge();
}

#[test]
fn bad_subvolume_arguments_are_refused_and_change_nothing() {
    let made = made();
    let before = made.verb("subvolume list -u", &[]).good();
    let long = format!("/{}", "x".repeat(256));
    let cases: [(&str, &[&str], &str); 11] = [
        ("subvolume create", &["/a"], "/a: file exists"),
        ("subvolume create", &["/nope/x"], "/nope/x: no such file or directory"),
        ("subvolume create", &[&long], "file name too long"),
        ("subvolume create", &["/"], "/: file exists"),
        ("subvolume create", &["/d/a/x"], "/d/a/x: read-only"),
        ("subvolume create -i 0/5", &["/x"], "-i: quota groups are not supported"),
        ("subvolume snapshot", &["/d", "/x"], "/d: no such subvolume"),
        ("subvolume snapshot", &["/", "/d"], "/: source has no file name"),
        ("subvolume snapshot", &["/a", "/nope/x"], "/nope/x: no such file or directory"),
        ("subvolume delete", &["/d"], "/d: no such subvolume"),
        ("subvolume sync", &["256"], "subvolume 256 is not deleted"),
    ];
    for (words, paths, why) in cases {
        let said = made.verb(words, paths).bad();
        assert!(said.ends_with(&format!("{why}\n")), "{words} {paths:?}: {said}");
    }
    assert_eq!(made.verb("subvolume list -u", &[]).good(), before);
    made.judge();
}

#[test]
fn read_only_property_is_set_unless_the_subvolume_was_received() {
    let made = made();
    let get = |path: &str| made.verb("property get", &[path, "ro"]).good();
    assert_eq!(get("/a"), "ro=false\n");
    made.does("property set", &["/a", "ro", "true"]);
    assert_eq!(get("/a"), "ro=true\n");
    assert_eq!(made.verb("mkdir", &["/a/x"]).bad(), "userbtrfs: /a/x: read-only\n");
    made.does("property set", &["/a", "ro", "false"]);
    made.does("mkdir", &["/a/x"]);
    let filesystem = made.open_for_writing();
    let id = userbtrfs::TreeId(260);
    filesystem.set_received_uuid(id, uuid::Uuid::from_u128(7)).unwrap();
    filesystem.close().unwrap();
    let refused: Ran = made.verb("property set", &["/d/a", "ro", "false"]);
    assert!(refused.bad().contains("cannot flip ro->rw with received_uuid set"));
    assert_eq!(get("/d/a"), "ro=true\n");
    made.does("property set -f", &["/d/a", "ro", "false"]);
    assert_eq!(get("/d/a"), "ro=false\n");
    let shown = made.verb("subvolume show", &["/d/a"]).good();
    assert!(shown.contains("Received UUID: \t\t-\n"), "{shown}");
    for (paths, why) in [
        (["/d", "ro", "true"], "object is not compatible with property: ro"),
        (["/a", "label", "x"], "object is not compatible with property: label"),
        (["/a", "nonsense", "x"], "unknown property: nonsense"),
        (["/a", "ro", "maybe"], "invalid value for property: maybe"),
    ] {
        assert_eq!(made.verb("property set", &paths).bad(), format!("userbtrfs: {why}\n"));
    }
    made.judge();
}
