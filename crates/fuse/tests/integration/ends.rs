//! Tests of mounting, failing to mount, and unmounting.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tempfile::TempDir;
use userbtrfs_fuse::{
    Mount, MountError, MountFlags, MountMethod, MountOptions, Session, SessionError,
};
use userbtrfs_testkit::test_env::{
    FUSE_FOR_ALL, NOBODY, fuse_or_skip, has_program, is_apart, until,
};

use crate::harness::{Mounted, config, options};
use crate::memory::{Behavior, Memory};

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").unwrap()
}

fn is_mounted(point: &Path) -> bool {
    mounts().lines().any(|line| line.split(' ').nth(1) == point.to_str())
}

/// Runs one of these tests as the user nobody, in a directory of that user.
fn as_nobody(test: &str) -> bool {
    let directory = TempDir::new().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    // The program itself may be in a directory that only root can access.
    let program = directory.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::create_dir(directory.path().join("point")).unwrap();
    std::os::unix::fs::chown(directory.path().join("point"), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = Command::new(&program);
    command.args([test, "--exact", "--nocapture"]).env(NOBODYS_PLACE, directory.path());
    let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

/// The variable with the directory in which tests of the user nobody may mount.
const NOBODYS_PLACE: &str = "USERBTRFS_TEST_PLACE_OF_NOBODY";

/// Mounts, uses, stops and mounts again as a user, with files open.
fn mount_as_user(point: &Path) {
    let options = options();
    let refused = MountOptions { flags: MountFlags::ALLOW_OTHER, ..options.clone() };
    let refused = Mount::new(point, &refused).unwrap_err();
    assert!(
        matches!(&refused, MountError::Helper(text) if text.contains("allow_other")),
        "{refused:?}"
    );
    for _ in 0..2 {
        let mount = Mount::new(point, &options).unwrap();
        let memory = userbtrfs_sync::Arc::new(Memory::new(Behavior::default()));
        let session = Session::start(mount, memory, &config()).unwrap();
        let file = File::create_new(point.join("file")).unwrap();
        (&file, b"written before the end").write();
        assert!(session.unmount().unwrap_err().is_busy());
        session.stop().unwrap();
        session.wait().unwrap();
        assert!(!is_mounted(point));
        assert!(file.sync_all().is_err());
    }
}

#[test]
fn any_user_mounts_by_the_helper() {
    if let Some(place) = std::env::var_os(NOBODYS_PLACE) {
        mount_as_user(&Path::new(&place).join("point"));
        return;
    }
    let this = "ends::any_user_mounts_by_the_helper";
    if fuse_or_skip() && has_program("fusermount3") && is_apart(this, FUSE_FOR_ALL) {
        assert!(as_nobody(this));
    }
}

#[test]
fn session_ends_on_unmount() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("file"), "x").unwrap();
    assert!(is_mounted(mounted.root()));
    mounted.unmount();
    assert!(!is_mounted(mounted.root()));
    mounted.session.wait().unwrap();
    assert_eq!(mounted.session.threads(), 0);
    assert_eq!(mounted.bytes_there("file"), b"x");
    mounted.session.unmount().unwrap();
}

/// Opening the image then waits for the end of the session, which may take long.
#[test]
fn end_is_known_while_a_request_is_in_flight() {
    let Some(mounted) = Mounted::new() else { return };
    let slow = File::create_new(mounted.path("slow")).unwrap();
    let program = thread::spawn(move || slow.sync_all());
    let seen = &mounted.memory.seen;
    seen.until(|state| state.sleepers == 1);
    let umount = Command::new("umount").args(["--force", "--lazy"]).arg(mounted.root()).status();
    assert!(umount.unwrap().success());
    mounted.session.wait_over();
    assert!(program.join().unwrap().is_err());
    assert!(mounted.session.threads() > 0, "it is worked on");
    seen.change(|state| state.sleepers_may_go = true);
    mounted.session.wait().unwrap();
}

#[test]
fn session_ends_on_unmount_by_another_process() {
    let Some(mounted) = Mounted::new() else { return };
    mounted.run_umount();
    mounted.session.wait().unwrap();
    // Another filesystem that is mounted there now is not touched.
    let other = Mount::new(mounted.root(), &options()).unwrap();
    mounted.session.stop().unwrap();
    assert!(is_mounted(other.point()));
}

#[test]
fn mount_in_use_is_not_unmounted_but_can_be_stopped() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    (&file, b"written before the end").write();
    assert!(mounted.session.unmount().unwrap_err().is_busy());
    mounted.session.stop().unwrap();
    mounted.session.wait().unwrap();
    assert!(!is_mounted(mounted.root()));
    assert!(file.sync_all().is_err());
    assert_eq!(mounted.bytes_there("file"), b"written before the end");
}

#[test]
fn detached_mount_can_be_stopped() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    rustix::mount::unmount(mounted.root(), UnmountFlags::DETACH).unwrap();
    assert!(mounted.session.unmount().unwrap_err().is_elsewhere());
    file.set_len(1).unwrap();
    mounted.session.stop().unwrap();
    mounted.session.wait().unwrap();
    assert!(file.set_len(2).is_err());
    assert_eq!(mounted.bytes_there("file"), [0]);
}

/// Tests another mount over the filesystem, and one in its place.
#[test]
fn mount_of_another_process_is_kept() {
    for is_detached in [false, true] {
        let Some(mounted) = Mounted::new() else { return };
        let file = File::create_new(mounted.path("file")).unwrap();
        if is_detached {
            rustix::mount::unmount(mounted.root(), UnmountFlags::DETACH).unwrap();
        }
        let other = Mount::new(mounted.root(), &options()).unwrap();
        mounted.session.stop().unwrap();
        mounted.session.wait().unwrap();
        assert!(other.is_alive() && is_mounted(other.point()));
        assert!(file.set_len(1).is_err());
        other.unmount().unwrap();
        // The filesystem below, if it was not detached, is visible again.
        assert_eq!(is_mounted(mounted.root()), !is_detached);
        mounted.session.stop().unwrap();
        assert!(!is_mounted(mounted.root()));
    }
}

/// Writes without writeback: the data stays dirty in the page cache.
trait WriteLater {
    fn write(self);
}

impl WriteLater for (&File, &[u8; 22]) {
    fn write(self) {
        std::os::unix::fs::FileExt::write_all_at(self.0, self.1, 0).unwrap();
    }
}

#[test]
fn dropped_session_is_unmounted_even_in_use() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    let point = mounted.root().to_owned();
    drop(mounted);
    assert!(!is_mounted(&point));
    assert!(file.sync_all().is_err());
}

#[test]
fn dropped_mount_without_session_is_unmounted() {
    if !fuse_or_skip() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let mount = Mount::new(directory.path(), &options()).unwrap();
    assert!(is_mounted(mount.point()) && mount.is_alive());
    drop(mount);
    assert!(!is_mounted(directory.path()));
}

#[test]
fn panic_fails_its_request_and_is_reported_at_the_end() {
    let Some(mounted) = Mounted::new() else { return };
    for _ in 0..3 {
        let error = fs::metadata(mounted.path("panic")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
    fs::write(mounted.path("file"), "served by others").unwrap();
    until("replacements", || mounted.session.threads() == 2);
    mounted.unmount();
    assert_eq!(mounted.session.wait(), Err(SessionError::Panicked));
    assert!(mounted.session.requests(userbtrfs_fuse::Opcode::Lookup) >= 4);
}

#[test]
fn mount_table_shows_the_options() {
    let flags = MountFlags::READ_ONLY | MountFlags::NO_SUID | MountFlags::ALLOW_OTHER;
    let options = MountOptions { flags, ..options() };
    let Some(mounted) = Mounted::with(Behavior::default(), &config(), &options) else { return };
    let all = mounts();
    let line = all.lines().find(|line| line.contains(mounted.root().to_str().unwrap())).unwrap();
    assert!(line.starts_with("memory,\\040in\\040a\\040test "), "{line}");
    for part in [" fuse.memory ro,nosuid,", "allow_other"] {
        assert!(line.contains(part), "{line}");
    }
    let error = File::create_new(mounted.path("file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
}

#[test]
fn the_helper_mounts_and_unmounts() {
    if !fuse_or_skip() || !has_program("fusermount3") {
        return;
    }
    let options = MountOptions { method: MountMethod::Helper, ..options() };
    let Some(mounted) = Mounted::with(Behavior::default(), &config(), &options) else { return };
    let all = mounts();
    let line = all.lines().find(|line| line.contains(mounted.root().to_str().unwrap())).unwrap();
    assert!(line.starts_with("memory,\\040in\\040a\\040test "), "{line}");
    assert!(line.contains(" fuse.memory "), "{line}");
    fs::write(mounted.path("file"), "x").unwrap();
    let unmount = || Command::new("fusermount3").arg("-u").arg(mounted.root()).output().unwrap();
    until("nobody to use it", || unmount().status.success());
    mounted.session.wait().unwrap();
}

#[test]
fn a_mount_needs_no_options() {
    for method in [MountMethod::Direct, MountMethod::Helper] {
        if !fuse_or_skip() || (method == MountMethod::Helper && !has_program("fusermount3")) {
            return;
        }
        let options = MountOptions { method, ..MountOptions::default() };
        let mounted = Mounted::with(Behavior::default(), &config(), &options).unwrap();
        let all = mounts();
        let line = all.lines().find(|line| line.contains(mounted.root().to_str().unwrap()));
        assert!(line.unwrap().starts_with("fuse /"), "{line:?}");
    }
}

#[test]
fn failed_mount_reports_the_reason() {
    if !fuse_or_skip() {
        return;
    }
    let nowhere = Mount::new(Path::new("/no/where"), &options()).unwrap_err();
    assert_eq!(nowhere.to_string(), "/no/where: No such file or directory (os error 2)");
    let directory = TempDir::new().unwrap();
    let options = MountOptions { block_size: Some(4096), source: "/dev/null".into(), ..options() };
    let refused = Mount::new(directory.path(), &options).unwrap_err();
    assert!(matches!(refused, MountError::System { call: "mount", .. }), "{refused}");
}

#[test]
fn a_session_begins_once_the_filesystem_can_be_used() {
    if !fuse_or_skip() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let mount = Mount::new(directory.path(), &options()).unwrap();
    let memory = userbtrfs_sync::Arc::new(Memory::new(Behavior::default()));
    let session = Session::start(mount, memory, &config()).unwrap();
    let agreed = session.agreement();
    assert!(agreed.flags.contains(userbtrfs_fuse::InitFlags::WRITEBACK_CACHE), "{agreed:?}");
    assert_eq!(agreed.max_write, 1 << 20);
    assert!(fs::read_dir(directory.path()).unwrap().next().is_none());
}
