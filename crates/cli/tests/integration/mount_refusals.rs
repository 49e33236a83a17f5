//! Mounts that are refused, and devices that fail under a mount.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use userbtrfs::OpenOptions;
use userbtrfs::device::{FileDevice, FileOptions, Operation};
use userbtrfs::mount::{Mount, MountOptions, Mounted, Options};
use userbtrfs_testkit::devices::{Fault, FaultyDevice, How};
use userbtrfs_testkit::linux::{Access, Linux, LoopDevice, shutdown};
use userbtrfs_testkit::test_env::{FUSE_FOR_ALL, has_program, is_apart, until};

use super::control::stats;
use super::support::command::{Ran, command, run, verb};
use super::support::nobody::Nobody;
use super::support::pattern;
use super::support::site::Site;

fn refused(site: &Site, ran: Ran, says: &[&str]) {
    let said = ran.bad();
    for word in says {
        assert!(said.contains(word), "{said}");
    }
    assert!(!site.is_mounted());
}

/// The entries of the mount point are visible again after the unmount.
#[test]
fn a_directory_that_is_not_empty_is_hidden() {
    let Some(site) = Site::new() else { return };
    fs::write(site.point().join("below"), "content").unwrap();
    site.mount(&[]).good();
    assert_eq!(fs::read_dir(site.point()).unwrap().count(), 0);
    fs::write(site.point().join("above"), "content").unwrap();
    site.umount();
    assert!(site.point().join("below").exists() && !site.point().join("above").exists());
    site.judge();
}

#[test]
fn a_file_is_no_place_to_mount_at() {
    let Some(site) = Site::new() else { return };
    let file = site.made.at("file");
    fs::write(&file, "content").unwrap();
    let ran = run(["mount".as_ref(), site.image().as_os_str(), file.as_os_str()]);
    let said = ran.bad();
    assert!(said.contains("file") && said.contains("Not a directory"), "{said}");
    assert_eq!(fs::read_to_string(file).unwrap(), "content");
}

/// Asserts that it was mounted read-only, with the warning of mount(8).
#[track_caller]
fn is_read_only(site: &Site, ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("source write-protected, mounted read-only"), "{ran:?}");
    assert!(site.line().unwrap().contains(" ro,"));
}

#[test]
fn an_image_that_may_not_be_written_is_mounted_read_only() {
    let Some(site) = Site::new() else { return };
    let this = "mount_refusals::an_image_that_may_not_be_written_is_mounted_read_only";
    if !has_program("fusermount3") || !is_apart(this, FUSE_FOR_ALL) {
        return;
    }
    let nobody = Nobody::of(&site);
    let image = site.image();
    chown(&image, Some(0), Some(0)).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o444)).unwrap();
    is_read_only(&site, &nobody.run(site.arguments(&[])));
    site.umount();
    nobody.run(site.arguments(&["-o", "ro"])).good();
    site.umount();
}

#[test]
fn a_device_for_reading_is_mounted_read_only() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let device = LoopDevice::attach(&linux, &site.image(), Access::ReadOnly).unwrap();
    let mount = |options: &[&str]| {
        let point = site.point();
        let words = [&["mount"], options].concat();
        let words = words.iter().map(AsRef::<std::ffi::OsStr>::as_ref);
        run(words.chain([device.path().as_os_str(), point.as_os_str()]))
    };
    is_read_only(&site, &mount(&[]));
    site.umount();
    mount(&["-o", "ro"]).good();
    assert_eq!(fs::read_dir(site.point()).unwrap().count(), 0);
    site.umount();
    // No process may have the device open when it is detached.
    until("the end of the server", || {
        File::options().read(true).open(device.path()).is_ok_and(|device| {
            rustix::fs::flock(&device, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
        })
    });
}

#[test]
fn without_fusermount_only_root_mounts() {
    let Some(site) = Site::new() else { return };
    let mut command = Nobody::of(&site).command(site.arguments(&[]));
    command.env("PATH", "/nonexistent");
    refused(&site, Ran::from(command.output().unwrap()), &["fusermount3", "cannot be run"]);
}

#[test]
fn without_fuse_nothing_is_mounted() {
    // Hides /dev/fuse from this process; /dev/shm stays, since the image may be there.
    const HIDE: &str = "mount --rbind /dev/shm /mnt; mount -t tmpfs none /dev; mkdir /dev/shm; \
        mount --rbind /mnt /dev/shm; mknod /dev/null c 1 3; exec \"$@\"";
    let Some(site) = Site::new() else { return };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "sh", "-ec", HIDE, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_userbtrfs")).args(site.arguments(&[]));
    refused(&site, Ran::from(command.output().unwrap()), &["/dev/fuse", "No such file"]);
}

/// A small tmpfs that holds the image; unmounted when dropped.
struct Host(tempfile::TempDir);

impl Host {
    fn new(bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        let flags = MountFlags::empty();
        rustix::mount::mount("none", folder.path(), "tmpfs", flags, options.as_c_str()).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_below_is_an_io_error_and_tears_no_commit() {
    let Some(site) = Site::new() else { return };
    let host = Host::new(48 << 20);
    let image = host.at("image");
    verb("mkfs -q", &image, &["--size", "256M"]).good();
    let why = "No space left on device";
    let durable = fails_under_load(&site, &image, why, |_| {});
    until("the end", || OpenOptions::new().open(&image).is_ok());
    has_what_was_durable(&image, durable);
}

/// The filesystem that holds the image is shut down: all later writes to it are I/O errors.
#[test]
fn a_device_that_fails_under_load_is_an_io_error_and_tears_no_commit() {
    let Some(site) = Site::new() else { return };
    let Some(below) = Site::new() else { return };
    if !has_program("perl") {
        return;
    }
    below.mount(&[]).good();
    let image = below.point().join("image");
    verb("mkfs -q", &image, &["--size", "200M"]).good();
    let shut_down = |number| {
        if number == 20 {
            userbtrfs_testkit::linux::run(&mut shutdown(&below.point(), 2)).unwrap();
        }
    };
    let durable = fails_under_load(&site, &image, "Input/output error", shut_down);
    assert_eq!(durable, 20);
    below.umount();
    below.judge();
    below.mount(&[]).good();
    has_what_was_durable(&image, durable);
    below.umount();
}

fn has_what_was_durable(image: &Path, durable: u32) {
    let filesystem = userbtrfs::Filesystem::open(image).unwrap();
    for number in 0..durable {
        assert!(filesystem.read(format!("/{number}")).unwrap() == content(number), "{number}");
    }
    userbtrfs_testkit::linux::btrfs_check(image).unwrap();
}

/// Returns the content of a file.
fn content(number: u32) -> Vec<u8> {
    vec![u8::try_from(number % 250).unwrap(); 1 << 20]
}

/// Mounts an image and writes files until that fails; `before` is called with the number of each.
/// Programs get an I/O error, not that the filesystem is full; no change succeeds from then on; the
/// command prints the reason at once, and `stats` shows it. Returns the number of durable files.
fn fails_under_load(site: &Site, image: &Path, why: &str, before: impl Fn(u32)) -> u32 {
    let said = site.made.at("said");
    let point = site.point();
    let words = ["mount", "-f", "-o", "commit=1"].map(AsRef::<std::ffi::OsStr>::as_ref);
    let mut command = command([&words[..], &[image.as_os_str(), point.as_os_str()]].concat());
    let mut server = command.stderr(File::create(&said).unwrap()).spawn().unwrap();
    until("the mount", || site.is_mounted());
    let write = |number: u32| {
        before(number);
        let mut file = File::create_new(point.join(number.to_string()))?;
        file.write_all(&content(number))?;
        file.sync_all()
    };
    let (durable, error) = (0..)
        .map(|number| (number, write(number)))
        .find_map(|(number, done)| done.err().map(|error| (number, error)))
        .unwrap();
    assert!(durable > 10, "{error}");
    assert!(is_of_device(&error), "{error}");
    // Changes of the trees fail, too.
    let made = |number: u32| fs::create_dir(point.join(format!("dir{number}")));
    let error = (0..1_000_000).find_map(|number| made(number).err()).unwrap();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::ROFS), "{error}");
    // Existing files can be read.
    assert!(fs::read(point.join("3")).unwrap() == content(3));
    let said = || fs::read_to_string(&said).unwrap();
    until("a word of the server", || said().contains(why));
    let shown = stats(&point);
    assert_eq!(shown["state"], "read-only");
    assert!(shown["why"].as_str().unwrap().contains(why), "{shown}");
    site.umount();
    assert_eq!(server.wait().unwrap().code(), Some(1));
    assert!(said().lines().all(|line| line.starts_with("userbtrfs: ")), "{}", said());
    durable
}

fn is_of_device(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::ROFS))
}

/// Reads of damaged data fail, and other files can be read.
#[test]
fn a_hole_in_the_device_is_an_io_error() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    for name in ["lost", "kept"] {
        fs::write(site.point().join(name), name.repeat(200_000)).unwrap();
    }
    site.umount();
    site.judge();
    damage(&site.image(), b"lostlost");
    let server = site.serve(&[]);
    let error = fs::read(site.point().join("lost")).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    assert_eq!(fs::read_to_string(site.point().join("kept")).unwrap(), "kept".repeat(200_000));
    fs::write(site.point().join("new"), "content").unwrap();
    site.umount();
    Ran::from(server.wait_with_output().unwrap()).good();
}

/// Overwrites all sectors that begin with these bytes.
fn damage(image: &Path, bytes: &[u8]) {
    let content = fs::read(image).unwrap();
    let file = File::options().write(true).open(image).unwrap();
    let sectors = content.chunks(4096).enumerate().filter(|(_, sector)| sector.starts_with(bytes));
    let count = sectors.map(|(at, _)| file.write_all_at(&[1; 4096], at as u64 * 4096).unwrap());
    assert!(count.count() > 10);
}

/// A device that fails under load: programs get an I/O error, no change succeeds from then on, the
/// end of the mount returns the reason, and synced files are there.
#[test]
fn a_device_that_fails_makes_the_mount_read_only() {
    let Some(site) = Site::new() else { return };
    let options = FileOptions { writable: true, ..FileOptions::default() };
    let file = Arc::new(FileDevice::open(site.image(), options).unwrap());
    let device = Arc::new(FaultyDevice::new(file));
    let filesystem =
        OpenOptions::new().write(true).open_devices(vec![Arc::clone(&device) as _]).unwrap();
    let options = MountOptions { source: "image".into(), ..MountOptions::default() };
    let mount = Mount::new(&site.point(), &options).unwrap();
    let mounted = Mounted::start(mount, filesystem, &Options::default()).unwrap();
    let root = mounted.point();
    let synced: Vec<u32> = thread::scope(|scope| {
        let writers =
            [0, 1, 2, 3].map(|writer| scope.spawn(move || write_until_refused(root, writer)));
        // Each has synced its first file.
        let second = |writer| root.join(format!("{writer}-1")).exists();
        until("files that are synced", || (0..4).all(second));
        let operation = Operation::Write;
        let how = How::Eio;
        device.arm(Fault { operation, after: 0, how, lasting: true });
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(device.failed() > 0 && synced.iter().all(|count| *count > 0), "{synced:?}");
    // Files from before the failure can be read.
    assert!(fs::read(root.join("0-0")).unwrap() == pattern(5000));
    let unmount_handle = mounted.unmount_handle();
    until("nobody to use the mount", || unmount_handle.unmount().is_ok());
    drop(unmount_handle);
    let why = mounted.end().unwrap_err().to_string();
    assert!(why.contains("Input/output error"), "{why}");
    drop(device);
    let filesystem = OpenOptions::new().write(true).open(site.image()).unwrap();
    for (writer, count) in synced.iter().enumerate() {
        for number in 0..*count {
            let path = format!("/{writer}-{number}");
            assert!(filesystem.read(&path).unwrap() == pattern(5000), "{path}");
        }
    }
    filesystem.close().unwrap();
    site.judge();
}

/// Makes files and syncs them until the filesystem is read-only; returns the number of files that
/// were synced before the first failure.
fn write_until_refused(root: &Path, writer: u32) -> u32 {
    let write = |number: u32| {
        let file = File::create_new(root.join(format!("{writer}-{number}")))?;
        file.write_all_at(&pattern(5000), 0)?;
        file.sync_all()
    };
    let mut synced = 0;
    let mut has_failed = false;
    for number in 0.. {
        match write(number).map_err(|error| Errno::from_io_error(&error).unwrap()) {
            Ok(()) if !has_failed => synced += 1,
            Ok(()) | Err(Errno::IO) => {}
            Err(Errno::ROFS) => return synced,
            Err(other) => panic!("{other}"),
        }
        has_failed |= synced <= number;
    }
    unreachable!("it does not turn read-only")
}
