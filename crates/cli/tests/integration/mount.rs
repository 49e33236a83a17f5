//! `mount`: its start and end, in the foreground and in the background, and crashes of it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use userbtrfs::OpenOptions;
use userbtrfs_testkit::linux::{self, Access, Linux, LoopDevice};
use userbtrfs_testkit::test_env::{FUSE_FOR_ALL, NOBODY, has_program, is_apart, until};

use super::support::command::{Ran, command, run, verb};
use super::support::nobody::Nobody;
use super::support::site::{Site, send, unmount};

#[test]
fn a_mount_in_the_background_is_ready_when_the_command_returns() {
    let Some(site) = Site::new() else { return };
    site.mount(&["-o", "noatime,fsname=a name"]).good();
    let line = site.line().unwrap();
    assert!(line.starts_with("a\\040name ") && line.contains(" fuse.userbtrfs rw,"), "{line}");
    fs::write(site.point().join("file"), "content").unwrap();
    site.umount();
    // The next mount waits for the end of this one.
    site.mount(&[]).good();
    assert_eq!(fs::read_to_string(site.point().join("file")).unwrap(), "content");
    site.umount();
    site.judge();
}

#[test]
fn a_signal_ends_a_mount_in_use_with_a_commit() {
    let Some(site) = Site::new() else { return };
    for signal in [Signal::TERM, Signal::INT] {
        let child = site.serve(&[]);
        let mut file = File::create(site.point().join("file")).unwrap();
        file.write_all(b"content").unwrap();
        send(signal, &child);
        Ran::from(child.wait_with_output().unwrap()).good();
        assert!(!site.is_mounted() && file.sync_all().is_err());
        drop(file);
        assert_eq!(site.made.verb("cat", &["/file"]).good(), "content");
    }
    site.judge();
}

/// A signal also ends a mount with a second mount point, which stays until it is unmounted.
#[test]
fn signal_ends_a_mount_with_two_mount_points() {
    let Some(site) = Site::new() else { return };
    let child = site.serve(&[]);
    let second = site.made.at("second");
    fs::create_dir(&second).unwrap();
    let bind = |arguments: &[&OsStr]| {
        assert!(Command::new("mount").args(arguments).status().unwrap().success());
    };
    bind(&["--bind".as_ref(), site.point().as_os_str(), second.as_os_str()]);
    fs::write(second.join("file"), "content").unwrap();
    send(Signal::TERM, &child);
    let ended = child.wait_with_output();
    unmount(&second);
    Ran::from(ended.unwrap()).good();
    assert_eq!(site.made.verb("cat", &["/file"]).good(), "content");
    site.judge();
}

#[test]
fn ignored_signal_stays_ignored() {
    let Some(site) = Site::new() else { return };
    let command = command(site.arguments(&["-f"]));
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(command.get_program());
    shell.args(command.get_args()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = shell.spawn().unwrap();
    until("the mount", || site.is_mounted());
    send(Signal::HUP, &child);
    for number in 0..100 {
        fs::write(site.point().join("file"), number.to_string()).unwrap();
    }
    send(Signal::TERM, &child);
    Ran::from(child.wait_with_output().unwrap()).good();
    assert_eq!(site.made.verb("cat", &["/file"]).good(), "99");
    site.judge();
}

/// Before anything is mounted, the process just ends, whatever it waits for.
#[test]
fn signal_ends_a_process_that_waits_for_the_image() {
    let Some(site) = Site::new() else { return };
    // Like a process that is closing the image and does not finish.
    let closing = OpenOptions::new().write(true).open(site.image()).unwrap();
    closing.mark_closing();
    let mut child = command(site.arguments(&["-f"])).spawn().unwrap();
    let inode = format!(":{} ", site.image().metadata().unwrap().ino());
    let waits = |line: &str| line.contains("-> OFDLCK") && line.contains(&inode);
    until("it to wait", || fs::read_to_string("/proc/locks").unwrap().lines().any(waits));
    send(Signal::TERM, &child);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    closing.close().unwrap();
    site.judge();
}

#[test]
fn umount_ends_the_process() {
    let Some(site) = Site::new() else { return };
    let child = site.serve(&["-v", "-o", "ssd,space_cache=v2"]);
    site.umount();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for option in ["ssd", "space_cache=v2"] {
        let says = format!("userbtrfs: mount: option {option} has no effect\n");
        assert!(ran.stderr.contains(&says), "{ran:?}");
    }
    site.judge();
}

#[test]
fn impossible_mount_is_refused_by_name() {
    let Some(site) = Site::new() else { return };
    let refused = |ran: Ran, says: &[&str]| {
        let said = ran.bad();
        for word in says {
            assert!(said.contains(word), "{said}");
        }
        assert!(!site.is_mounted());
    };
    refused(site.mount(&["-o", "ro,nonsense=1"]), &["unknown mount option \"nonsense=1\""]);
    refused(site.mount(&["-o", "compress=zip"]), &["compress", "zip"]);
    refused(site.mount(&["-o", "subvol=none"]), &["no such"]);
    let image = site.image();
    let point = site.point();
    let mount =
        |image: &Path, point: &Path| run([Path::new("mount"), image, point].map(Path::as_os_str));
    refused(mount(&site.made.at("absent"), &point), &["absent", "No such file"]);
    refused(mount(&image, &site.made.at("nowhere")), &["nowhere", "No such file"]);
    fs::write(site.made.at("other"), vec![0; 1 << 20]).unwrap();
    refused(mount(&site.made.at("other"), &point), &["other", "not a btrfs"]);
    refused(mount(&point, &point), &["directory"]);
    let by_linux = Linux::lock().unwrap();
    let mounted = by_linux.mount(&image, "noatime").unwrap();
    refused(mount(&image, &point), &["image", "is mounted"]);
    // A read-only mount conflicts with nothing, and shows what was committed.
    fs::write(mounted.path().join("file"), "of Linux").unwrap();
    linux::run(Command::new("sync").arg("-f").arg(mounted.path())).unwrap();
    site.mount(&["-o", "ro"]).good();
    assert_eq!(fs::read_to_string(point.join("file")).unwrap(), "of Linux");
    site.umount();
    drop(mounted);
    // A loop device over the image that is not mounted does not conflict.
    let device = LoopDevice::attach(&by_linux, &image, Access::ReadWrite).unwrap();
    site.mount(&[]).good();
    site.umount();
    site.judge();
    // Two loop devices over it are one image.
    let other = LoopDevice::attach(&by_linux, &image, Access::ReadWrite).unwrap();
    let held = OpenOptions::new().write(true).open(device.path()).unwrap();
    for path in [other.path(), &image] {
        let said = verb("mkdir", path, &["/dir"]).bad();
        assert!(said.contains("in use by another userbtrfs"), "{said}");
    }
    held.close().unwrap();
    verb("mkdir", other.path(), &["/dir"]).good();
    drop((device, other, by_linux));
    let held = OpenOptions::new().write(true).open(&image).unwrap();
    let said = site.mount(&[]).bad();
    assert!(said.contains("image") && said.contains("open for writing"), "{said}");
    held.close().unwrap();
    site.mount(&[]).good();
    let said = site.mount(&[]).bad();
    assert!(said.contains("is mounted at") && said.contains("already"), "{said}");
    site.umount();
}

#[test]
fn mount_finds_the_command_as_its_helper() {
    let Some(site) = Site::new() else { return };
    let helper = site.made.at("mount.fuse.userbtrfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_userbtrfs"), &helper).unwrap();
    let call = |more: &[&str]| {
        let mut command = Command::new(&helper);
        command.arg(site.image()).arg(site.point()).args(more);
        Ran::from(command.output().unwrap())
    };
    call(&["-f", "-o", "rw"]).good();
    assert!(!site.is_mounted());
    call(&["-n", "-o", "rw,nosuid,nodev,_netdev", "-t", "fuse.userbtrfs"]).good();
    let line = site.line().unwrap();
    assert!(line.contains(" fuse.userbtrfs rw,nosuid,nodev,"), "{line}");
    site.umount();
    call(&["-o", "degraded"]).bad();
    site.judge();
}

/// Mounts with mount(8), which finds the command as a helper in /sbin: by type, and by a line of
/// fstab.
#[test]
fn mount_and_fstab_mount_it() {
    const HELPER: &str = "mkdir \"$0/old\" \"$0/new\"; mount --bind /sbin \"$0/old\"; \
        ln -s \"$0\"/old/* \"$0/new\"; ln -sf \"$PROGRAM\" \"$0/new/mount.fuse.userbtrfs\"; \
        mount --bind \"$0/new\" /sbin";
    let Some(site) = Site::new() else { return };
    let helper = format!("PROGRAM={}; {HELPER}", env!("CARGO_BIN_EXE_userbtrfs"));
    if !is_apart("mount::mount_and_fstab_mount_it", &helper) {
        return;
    }
    let image = site.image();
    let point = site.point();
    let mount = |arguments: &[&OsStr]| linux::run(Command::new("mount").args(arguments)).unwrap();
    let kind = ["-t", "fuse.userbtrfs", "-o", "nosuid,commit=5"].map(OsStr::new);
    mount(&[&kind[..], &[image.as_os_str(), point.as_os_str()]].concat());
    let line = site.line().unwrap();
    assert!(line.contains(" fuse.userbtrfs rw,nosuid,"), "{line}");
    fs::write(point.join("file"), "content").unwrap();
    site.umount();
    let table = site.made.at("fstab");
    let paths = [&image, &point].map(|path| path.display());
    let [image, place] = paths;
    let options = "ro,noauto,nofail,x-systemd.requires=network.target,_netdev";
    fs::write(&table, format!("{image} {place} fuse.userbtrfs {options} 0 0\n")).unwrap();
    mount(&["-T".as_ref(), table.as_os_str(), point.as_os_str()]);
    let line = site.line().unwrap();
    assert!(line.contains(" fuse.userbtrfs ro,"), "{line}");
    assert_eq!(fs::read_to_string(point.join("file")).unwrap(), "content");
    site.umount();
    site.judge();
}

#[test]
fn any_user_may_mount_where_fusermount_is() {
    let Some(site) = Site::new() else { return };
    let this = "mount::any_user_may_mount_where_fusermount_is";
    if !has_program("fusermount3") || !is_apart(this, FUSE_FOR_ALL) {
        return;
    }
    Nobody::of(&site).run(site.arguments(&[])).good();
    site.umount();
    site.judge();
}

#[test]
fn any_user_writes_in_a_filesystem_of_theirs() {
    let Some(site) = Site::new() else { return };
    let this = "mount::any_user_writes_in_a_filesystem_of_theirs";
    if !has_program("fusermount3") || !is_apart(this, FUSE_FOR_ALL) {
        return;
    }
    let nobody = Nobody::of(&site);
    let image = site.image();
    let point = site.point();
    let owner = format!("{NOBODY}:{NOBODY}");
    let words = ["mkfs", "-q", "-f", "--owner", &owner].map(OsStr::new);
    nobody.run(words.into_iter().chain([image.as_os_str()])).good();
    let shell = |script: &str| {
        let mut shell = Nobody::program("sh");
        linux::run(shell.args(["-ec", script]).arg(&point)).unwrap().stdout
    };
    nobody.run(site.arguments(&[])).good();
    shell("mkdir $0/dir; echo content > $0/dir/file; sync $0/dir/file");
    assert_eq!(shell("cat $0/dir/file"), b"content\n");
    shell("fusermount3 -u $0");
    // The next mount waits for the end of this one.
    nobody.run(site.arguments(&[])).good();
    assert_eq!(shell("cat $0/dir/file; stat -c %u:%g $0 $0/dir/file; fusermount3 -u $0"), {
        format!("content\n{owner}\n{owner}\n").into_bytes()
    });
    site.judge();
}

/// Unmounts without a program, so that the server has no time to notice it.
fn unmount_at_once(site: &Site) {
    let unmount = || rustix::mount::unmount(site.point(), UnmountFlags::empty());
    until("nobody to use it", || unmount().is_ok());
}

/// An image that is mounted read-only cannot be opened for writing, but can be mounted read-only
/// again. A writer after umount(8) waits until the server has ended.
#[test]
fn read_only_mount_and_writer_refuse_each_other() {
    let Some(site) = Site::new() else { return };
    let second = site.made.at("second");
    fs::create_dir(&second).unwrap();
    let second = second.to_str().unwrap();
    site.mount(&["-o", "ro"]).good();
    site.made.verb("mount -o ro", &[second]).good();
    let said = site.made.verb("mkdir", &["/a"]).bad();
    assert!(
        said.contains("image: in use by another userbtrfs (a mount at ") && said.contains("point)"),
        "{said}"
    );
    let said = site.made.verb("mount", &[second]).bad();
    assert!(said.contains("image") && said.contains("is mounted read-only"), "{said}");
    site.made.verb("ls", &[]).good();
    unmount(second.as_ref());
    for turn in 0..4 {
        unmount_at_once(&site);
        site.made.verb("mkdir", &[&format!("/{turn}")]).good();
        site.mount(&["-o", "ro"]).good();
    }
    site.umount();
    site.mount(&[]).good();
    // The server of the writable mount has it, and shows the same.
    site.made.verb("mount -o ro", &[second]).good();
    fs::write(site.point().join("file"), "content").unwrap();
    assert_eq!(fs::read_to_string(format!("{second}/file")).unwrap(), "content");
    let error = fs::write(format!("{second}/file"), "other").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    unmount(second.as_ref());
    site.umount();
    site.judge();
}

/// umount(8) may return before the server has ended; a reader still sees its last commit.
#[test]
fn reader_after_umount_sees_the_last_commit() {
    let Some(site) = Site::new() else { return };
    let second = site.made.at("second");
    fs::create_dir(&second).unwrap();
    let second = second.to_str().unwrap();
    for turn in 0..4 {
        let makes = |name: String| {
            site.mount(&[]).good();
            fs::create_dir(site.point().join(&name)).unwrap();
            unmount_at_once(&site);
            name
        };
        let name = makes(format!("listed{turn}"));
        assert!(site.made.verb("ls", &[]).good().lines().any(|line| line == name), "{name}");
        let name = makes(format!("dumped{turn}"));
        assert!(site.made.verb("dump tree", &["-t", "fs"]).good().contains(&name), "{name}");
        let name = makes(format!("mounted{turn}"));
        site.made.verb("mount -o ro", &[second]).good();
        assert!(Path::new(second).join(&name).is_dir(), "{name}");
        unmount(second.as_ref());
    }
    site.judge();
}

/// The kernel has one superblock per block device, and would mount one whose server is gone at
/// another mount point.
#[test]
fn a_block_device_whose_mount_has_lost_its_server_is_busy() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let device = LoopDevice::attach(&linux, &site.image(), Access::ReadWrite).unwrap();
    let mut child = site.serve_device(device.path(), &[]);
    send(Signal::KILL, &child);
    child.wait().unwrap();
    let second = site.made.at("second");
    fs::create_dir(&second).unwrap();
    let mount = || run(["mount".as_ref(), device.path().as_os_str(), second.as_os_str()]);
    let refused = mount().bad();
    assert!(refused.contains("busy"), "{refused}");
    assert!(fs::read_dir(&second).unwrap().next().is_none());
    site.umount();
    mount().good();
    fs::write(second.join("file"), "content").unwrap();
    unmount(&second);
    assert_eq!(site.made.verb("cat", &["/file"]).good(), "content");
    drop(device);
    site.judge();
}

/// With fuseblk, umount(8) waits for the server, and sync(2) is passed to it.
#[test]
fn a_block_device_is_committed_when_umount_returns() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let device = LoopDevice::attach(&linux, &site.image(), Access::ReadWrite).unwrap();
    let mount = || {
        let point = site.point();
        run(["mount".as_ref(), device.path().as_os_str(), point.as_os_str()])
    };
    for turn in 0..3 {
        mount().good();
        let line = site.line().unwrap();
        assert!(line.contains(" fuseblk.userbtrfs rw,"), "{line}");
        assert!(mount().bad().contains("already"), "a second one at the same place is refused");
        fs::write(site.point().join(format!("synced{turn}")), "content").unwrap();
        rustix::fs::syncfs(File::open(site.point()).unwrap()).unwrap();
        let shown = run(["ls".as_ref(), device.path().as_os_str(), "/".as_ref()]).good();
        assert!(shown.contains(&format!("synced{turn}")), "{shown}");
        fs::write(site.point().join(format!("file{turn}")), "content").unwrap();
        site.umount();
        let shown = run(["ls".as_ref(), device.path().as_os_str(), "/".as_ref()]).good();
        assert!(shown.contains(&format!("file{turn}")), "{shown}");
    }
    drop(device);
    site.judge();
}
