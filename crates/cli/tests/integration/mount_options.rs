//! Mount options: their effect on new files, as in Linux, and on access, times and durability.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use userbtrfs::{Extent, ExtentKind};
use userbtrfs_testkit::linux::{self, Linux};
use userbtrfs_testkit::test_env::{NOBODY, has_program, until};

use super::control::stats;
use super::support::assert_says;
use super::support::command::Ran;
use super::support::nobody::Nobody;
use super::support::site::Site;

/// Makes files in every way, some with flags of their own, and prints the flags of all.
const MAKE: &str = "echo content >file; mkdir dir; head -c 9999 /dev/zero | tr '\\0' x >dir/large; \
    ln -s file symlink; mkfifo pipe; touch summed; chattr -C summed; echo content >summed; \
    touch in_place; chattr +C in_place; echo content >in_place; \
    mkdir compressed; setfattr -n btrfs.compression -v zstd compressed; \
    touch compressed/empty; mkdir compressed/dir; \
    mkdir all_in_place; chattr +C all_in_place; echo content >all_in_place/inherits; \
    python3 -c 'import os; f = os.open(\".\", os.O_TMPFILE | os.O_RDWR); os.write(f, b\"text\"); \
        os.link(f\"/proc/self/fd/{f}\", \"unnamed\", dst_dir_fd=os.open(\".\", 0))'; \
    lsattr -R .; getfattr -R -d -m - compressed | sort";

/// The visible result of `MAKE`.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// The output of `lsattr`.
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
    if !["chattr", "setfattr", "python3"].into_iter().all(has_program) {
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
        // Forced, so that no file is marked incompressible, which depends on the time of a write.
        ("compress-force=zstd,nodatacow", IN_PLACE),
        ("nodatacow,compress-force=zstd", PLAIN),
        ("nodatasum,compress-force=lzo", PLAIN),
        ("compress-force,nodatasum", UNSUMMED),
    ] {
        let theirs = of_linux(&site, options);
        let ours = of_ours(&site, options);
        // The root directory is at index 0, before the first file.
        assert_eq!(theirs.flags[1], flags, "{options}");
        assert_eq!(ours, theirs, "{options}");
    }
}

#[test]
fn data_written_through_a_mount_is_compressed() {
    let Some(site) = Site::new() else { return };
    let text = "one line of text after another\n".repeat(50_000);
    for options in ["compress", "compress=lzo", "compress-force=zstd:-5", "compress=zstd:99"] {
        site.made.format("256M");
        site.mount(&["-o", options]).good();
        fs::write(site.point().join("file"), &text).unwrap();
        File::open(site.point().join("file")).unwrap().sync_all().unwrap();
        fs::write(site.point().join("small"), &text[..3000]).unwrap();
        assert!(fs::read_to_string(site.point().join("file")).unwrap() == text);
        site.umount();
        site.judge();
        site.made.judge();
        let filesystem = site.made.open();
        assert!(filesystem.read("/file").unwrap() == text.as_bytes(), "{options}");
        let extents = filesystem.open_file("/file").unwrap().extents().unwrap();
        let is_compressed =
            |extent: &Extent| matches!(extent.kind, ExtentKind::Data { compression: Some(_), .. });
        assert!(extents.iter().any(is_compressed), "{options}");
    }
}

/// By its id or its path, for us as for Linux.
#[test]
fn a_subvolume_is_mounted() {
    const MAKE: &str = "btrfs -q subvolume create one; mkdir one/dir; \
        btrfs -q subvolume create one/dir/two; for name in . one one/dir/two; do \
        echo $name >$name/file; done; btrfs -q subvolume set-default one";
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&site.image(), "rw").unwrap();
    linux::run(Command::new("sh").args(["-ec", MAKE]).current_dir(mount.path())).unwrap();
    drop(mount);
    let shown = |root: &Path| fs::read_to_string(root.join("file")).unwrap();
    for (option, root) in [
        ("rw", "one"),
        ("subvolid=5", "."),
        ("subvolid=0", "."),
        ("subvolid=256", "one"),
        ("subvolid=257", "one/dir/two"),
        ("subvol=/", "."),
        ("subvol=one", "one"),
        ("subvol=/one/dir/two", "one/dir/two"),
        ("subvolid=257,subvol=/one/dir/two", "one/dir/two"),
        ("subvol=/,subvolid=0", "."),
    ] {
        let mount = linux.mount(&site.image(), option).unwrap();
        assert_eq!(shown(mount.path()).trim(), root, "{option}");
        drop(mount);
        site.mount(&["-o", option]).good();
        assert_eq!(shown(&site.point()).trim(), root, "{option}");
        site.umount();
        // Linux does not check our lock: the server must have ended.
        site.judge();
    }
    for (option, why) in [
        ("subvolid=258", "subvolume 258: no such subvolume"),
        ("subvol=one,subvolid=257", "subvol=one is subvolume 256, not subvolid=257"),
        ("subvolid=256,subvol=/", "subvol=/ is subvolume 5, not subvolid=256"),
        ("subvol=absent", "subvolume \"absent\": no such file or directory"),
        ("subvol=one/dir", "subvolume \"one/dir\": no such subvolume"),
        ("subvol=one/file", "subvolume \"one/file\": no such subvolume"),
    ] {
        linux.mount(&site.image(), option).unwrap_err();
        assert_says(&site.mount(&["-o", option]).bad(), &[why]);
    }
}

/// Returns the results of making a file, of opening a device, and of running a set-user-ID `id` as
/// another user.
fn look(root: &Path) -> [String; 3] {
    let made = File::create(root.join("made")).map(|_| "done".to_owned());
    let opened = File::options().write(true).open(root.join("null"));
    let user = Nobody::program(root.join("id")).arg("-u").output();
    let user = user.map(|said| String::from_utf8(said.stdout).unwrap().trim().to_owned());
    let why = |error: io::Error| Errno::from_io_error(&error).unwrap().to_string();
    [made, opened.map(|_| "done".to_owned()), user].map(|done| done.unwrap_or_else(why))
}

/// An operation that an option forbids fails only with that option, for us as for Linux.
#[test]
fn operation_forbidden_by_an_option_is_refused() {
    const MAKE: &str = "mknod -m 666 null c 1 3; cp \"$(command -v id)\" id; chmod 4755 id";
    let Some(site) = Site::new() else { return };
    fs::set_permissions(site.made.at(""), fs::Permissions::from_mode(0o755)).unwrap();
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&site.image(), "rw").unwrap();
    linux::run(Command::new("sh").args(["-ec", MAKE]).current_dir(mount.path())).unwrap();
    drop(mount);
    let read_only = &*Errno::ROFS.to_string();
    let denied = &*Errno::ACCESS.to_string();
    let nobody = &*NOBODY.to_string();
    for (option, seen) in [
        ("rw", ["done", "done", "0"]),
        ("ro", [read_only, "done", "0"]),
        ("nodev", ["done", denied, "0"]),
        ("noexec", ["done", "done", denied]),
        ("nosuid", ["done", "done", nobody]),
        ("ro,nosuid,nodev,noexec", [read_only, denied, denied]),
    ] {
        let mount = linux.mount(&site.image(), option).unwrap();
        assert_eq!(look(mount.path()), seen, "{option}");
        drop(mount);
        site.mount(&["-o", &format!("{option},allow_other")]).good();
        assert_eq!(look(&site.point()), seen, "{option}");
        site.umount();
        site.judge();
    }
}

#[test]
fn other_users_have_access_with_allow_other() {
    let Some(site) = Site::new() else { return };
    fs::set_permissions(site.made.at(""), fs::Permissions::from_mode(0o755)).unwrap();
    for (option, is_let_in) in [("allow_other", true), ("rw", false)] {
        site.mount(&["-o", option]).good();
        fs::write(site.point().join("file"), "content").unwrap();
        fs::write(site.point().join("secret"), "content").unwrap();
        let own = fs::Permissions::from_mode(0o600);
        fs::set_permissions(site.point().join("secret"), own).unwrap();
        let cat = |name: &str| {
            let mut cat = Nobody::program("cat");
            Ran::from(cat.env("LC_ALL", "C").arg(site.point().join(name)).output().unwrap())
        };
        let file = cat("file");
        let secret = cat("secret");
        assert_eq!(file.stdout == b"content", is_let_in, "{option}: {file:?}");
        assert_eq!(file.stderr.contains("Permission denied"), !is_let_in, "{option}: {file:?}");
        assert!(secret.stderr.contains("Permission denied"), "{option}: {secret:?}");
        site.umount();
    }
    site.judge();
}

/// No option makes reads update access times: the kernel does not tell the server of reads from
/// its cache.
#[test]
fn times_of_access_change_only_when_they_are_set() {
    let Some(site) = Site::new() else { return };
    for options in ["rw", "noatime", "relatime", "strictatime"] {
        site.mount(&["-o", options]).good();
        let line = site.line().unwrap();
        assert_eq!(line.contains("noatime"), options == "noatime", "{line}");
        let path = site.point().join("file");
        fs::write(&path, "content").unwrap();
        let set = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(set)).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
        assert_eq!(path.metadata().unwrap().accessed().unwrap(), set, "{options}");
        site.umount();
        site.mount(&["-o", options]).good();
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
        assert_eq!(path.metadata().unwrap().accessed().unwrap(), set, "{options}");
        site.umount();
    }
    site.judge();
}

/// There are more threads only while some of them sleep.
#[test]
fn thread_count_follows_the_option() {
    let Some(site) = Site::new() else { return };
    for wanted in [1, 20] {
        let server = site.serve(&["-o", &format!("threads={wanted}")]);
        // A thread that ends meanwhile has no name any more, and a new one has none yet.
        let name =
            |task: io::Result<fs::DirEntry>| fs::read(task.unwrap().path().join("comm")).ok();
        let count = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
            tasks.filter_map(name).filter(|name| name == b"fuse\n").count()
        };
        until("that many threads", || (wanted..=2 * wanted).contains(&count()));
        // The number does not grow with requests.
        assert_eq!(stats(&site.point())["state"], "read-write");
        assert!((wanted..=2 * wanted).contains(&count()), "{wanted}: {}", count());
        site.umount();
        Ran::from(server.wait_with_output().unwrap()).good();
    }
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
fn writes_are_durable_after_the_commit_interval() {
    let Some(site) = Site::new() else { return };
    let mut server = site.serve(&["-o", "commit=1"]);
    fs::write(site.point().join("file"), "content").unwrap();
    // A reader of the image sees what is committed.
    until("a commit", || site.made.verb("cat", &["/file"]).stdout == b"content");
    server.kill().unwrap();
    site.umount();
    server.wait().unwrap();
    assert_says(&site.made.verb("dump log", &[]).good(), &["no log is pending"]);
    assert_eq!(site.made.verb("cat", &["/file"]).good(), "content");
    site.judge();
}

/// A server that is killed leaves a dead mount, unless the helper watches it.
#[test]
fn auto_unmount_unmounts_after_the_server_was_killed() {
    let Some(site) = Site::new() else { return };
    if !has_program("fusermount3") {
        return;
    }
    let mut child = site.serve(&["-o", "auto_unmount"]);
    fs::write(site.point().join("file"), "content").unwrap();
    let device = "mknod device c 1 3 && echo x >device && cp /bin/true . && chmod u+s true";
    linux::run(Command::new("sh").args(["-ec", device]).current_dir(site.point())).unwrap();
    let line = site.line().unwrap();
    assert!(
        !line.contains("nosuid") && !line.contains("nodev"),
        "as root otherwise mounts: {line}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    until("the unmount", || !site.is_mounted());
    site.judge();
    let child = site.serve(&["-o", "auto_unmount"]);
    site.umount();
    Ran::from(child.wait_with_output().unwrap()).good();
}

#[test]
fn symbolic_links_are_not_followed_with_nosymfollow() {
    let Some(site) = Site::new() else { return };
    site.mount(&["-o", "nosymfollow,lazytime"]).good();
    fs::write(site.point().join("file"), "content").unwrap();
    std::os::unix::fs::symlink("file", site.point().join("link")).unwrap();
    let error = fs::read(site.point().join("link")).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP));
    assert_eq!(fs::read_link(site.point().join("link")).unwrap(), Path::new("file"));
    let line = site.line().unwrap();
    assert!(line.contains("nosymfollow") && line.contains("lazytime"), "{line}");
    site.umount();
    site.judge();
}

/// The kernel decides on security contexts: without a module that has them it refuses them.
#[test]
fn security_context_reaches_the_kernel() {
    let Some(site) = Site::new() else { return };
    if Path::new("/sys/fs/selinux").exists() {
        return;
    }
    let said = site.mount(&["-o", "context=\"system_u:object_r:x:s0:c1,c2\""]).bad();
    assert!(said.contains("mount failed: Invalid argument"), "{said}");
}
