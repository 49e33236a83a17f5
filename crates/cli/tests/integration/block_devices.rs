//! A block device in place of an image file: the verbs accept it, and Linux mounts the same one.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use userbtrfs_testkit::linux::{Access, Linux, LoopDevice, Mount};
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::test_env::{fuse_or_skip, skip};

use super::support::command::{Ran, command, verb};
use super::support::made::judge;
use super::support::{assert_says, pattern};

const BIG: usize = 40 << 20;
const SMALL: usize = 100_000;

/// Runs the shell with these lines as its input.
fn shell(device: &Path, lines: &str) -> Ran {
    let mut command = command(["shell".as_ref(), device.as_os_str()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// Returns the number of bytes that a file takes on the disk.
fn allocated(file: &Path) -> u64 {
    let file = File::open(file).unwrap();
    // Some filesystems delay the allocation.
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn block_device_works_as_an_image_file() {
    skip_unless_linux!();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let below = at("below");
    File::create(&below).unwrap().set_len(512 << 20).unwrap();
    fs::create_dir(at("tree")).unwrap();
    fs::write(at("tree/big"), pattern(BIG)).unwrap();
    fs::write(at("tree/small"), pattern(SMALL)).unwrap();
    let tree = at("tree");
    let out = at("out");
    let tree = tree.to_str().unwrap();
    let out = out.to_str().unwrap();

    let linux = Linux::lock().unwrap();
    let device = LoopDevice::attach(&linux, &below, Access::ReadWrite).unwrap();
    let on = |words: &str, rest: &[&str]| verb(words, device.path(), rest).good();
    on("mkfs -q", &[]);
    on("put -q", &[tree, "/"]);
    on("get -q", &["/tree", out]);
    for (name, length) in [("big", BIG), ("small", SMALL)] {
        assert!(fs::read(at("out").join(name)).unwrap() == pattern(length), "{name}");
    }
    assert_says(&on("df", &[]), &["Data, single: total=", "used=40.10MiB"]);
    assert_says(&on("stat", &["/tree/small"]), &["100000"]);
    let full = allocated(&below);
    on("rm --discard", &["/tree/big"]);
    let left = allocated(&below);
    assert!(left + BIG as u64 <= full, "{full} bytes, then {left}");

    let crash = |name: &str| {
        let put = format!("put --fsync {tree}/small /{name}");
        let lines = format!("mkdir /{name}.synced\nsync\n{put}\nmkdir /{name}.lost\ncrash\n");
        shell(device.path(), &lines).good();
        assert_says(&on("dump log", &[]), &["log of what was fsynced", &format!("\"{name}\"")]);
    };
    crash("ours");
    assert_says(&on("dump super", &[]), &["log_root"]);
    assert_says(&on("log replay", &[]), &["inodes: 1\n"]);
    assert_says(&on("dump log", &[]), &["no log is pending"]);
    crash("linux");

    let mount = Mount::new(vec![device], "noatime").unwrap();
    let mut shown: Vec<_> =
        fs::read_dir(mount.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    shown.sort();
    assert_eq!(shown, ["linux", "linux.synced", "ours", "ours.synced", "tree"]);
    for path in ["linux", "ours", "tree/small"] {
        assert!(fs::read(mount.path().join(path)).unwrap() == pattern(SMALL), "{path}");
    }
    drop(mount);
    linux.assert_no_complaints().unwrap();
    drop(linux);
    judge(&below);
}

/// In a user namespace the kernel permits no `fuseblk`.
#[test]
fn device_is_mounted_as_fuse_where_fuseblk_is_not_permitted() {
    const SCRIPT: &str = "\"$0\" mount \"$1\" \"$2\"; cat /proc/self/mountinfo; \
        echo content >\"$2/file\"; \"$0\" umount \"$2\"; \"$0\" cat \"$1\" /file";
    skip_unless_linux!();
    if !fuse_or_skip() {
        return;
    }
    let in_namespace = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).args(words);
        command
    };
    if !in_namespace(&["true"]).status().is_ok_and(|status| status.success()) {
        return skip("no namespaces of users");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    File::create(at("below")).unwrap().set_len(256 << 20).unwrap();
    fs::create_dir(at("point")).unwrap();
    let linux = Linux::lock().unwrap();
    let device = LoopDevice::attach(&linux, &at("below"), Access::ReadWrite).unwrap();
    verb("mkfs -q", device.path(), &[]).good();
    let mut command = in_namespace(&["sh", "-ec", SCRIPT, env!("CARGO_BIN_EXE_userbtrfs")]);
    let ran = Ran::from(command.arg(device.path()).arg(at("point")).output().unwrap());
    let said = ran.good();
    let mounted = format!("{} rw,relatime - fuse.userbtrfs ", at("point").display());
    assert!(said.contains(&mounted) && said.ends_with("\ncontent\n"), "{said}");
    drop((device, linux));
    judge(&at("below"));
}
