//! `FS_IOC_SHUTDOWN`: the rights that it requires, and the content after it.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use rustix::io::Errno;
use userbtrfs_engine::api::OpenOptions;
use userbtrfs_testkit::linux::{btrfs_check, run, shutdown};
use userbtrfs_testkit::test_env::{NOBODY, has_program, until};

use crate::support::{Ours, Site, shell};

fn refused(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{output:?}");
}

#[track_caller]
fn fails<T>(done: std::io::Result<T>) {
    let error = done.err().expect("nothing may be changed");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
}

/// Other ways to change something, each of which must fail. A change of a mapping is made in
/// memory; msync(2) reports that it is lost.
const CHANGES: &str = r"
import errno, fcntl, mmap, os, struct
def opened(flags, path='synced'):
    return os.open(path, os.O_RDWR | flags)
page = mmap.mmap(-1, 4096)
mapped = mmap.mmap(opened(0, 'written'), 4096)
mapped[:] = b'm' * 4096
changes = {
    'chown': lambda: os.chown('synced', 1, 1),
    'copy_file_range': lambda: os.copy_file_range(opened(0, 'committed'), opened(0), 9),
    'fallocate': lambda: os.posix_fallocate(opened(0), 0, 1 << 20),
    'lsetxattr': lambda: os.setxattr('symlink', 'trusted.new', b'value', follow_symlinks=False),
    'mkfifo': lambda: os.mkfifo('new'),
    'mknod': lambda: os.mknod('new', 0o600),
    'msync': lambda: mapped.flush(),
    'O_DIRECT': lambda: os.write(opened(os.O_DIRECT), page),
    'O_SYNC': lambda: os.write(opened(os.O_SYNC, 'written'), page),
    'O_TMPFILE': lambda: opened(os.O_TMPFILE, '.'),
    'O_TRUNC': lambda: opened(os.O_TRUNC),
    'removexattr': lambda: os.removexattr('committed', 'user.old'),
    'rmdir': lambda: os.rmdir('empty'),
    'SETFLAGS': lambda: fcntl.ioctl(opened(0), 0x40086602, struct.pack('<Q', 0x40)),
    'setxattr': lambda: os.setxattr('committed', 'user.new', b'value'),
    'setxattr, again': lambda: os.setxattr('committed', 'user.old', b'value'),
    'symlink': lambda: os.symlink('target', 'new'),
    'utimensat': lambda: os.utime('synced', (1, 1)),
}
def said(change):
    try:
        change()
    except OSError as error:
        return errno.errorcode[error.errno]
errors = {name: said(change) for name, change in changes.items()}
assert set(errors.values()) == {'EIO'}, errors
assert os.getxattr('committed', 'user.old') == b'old' and os.listdir('empty') == []
";

/// Creates the content before the shutdown: a committed file, a synced one, and one that is only
/// written.
fn fill(root: &Path) -> File {
    fs::write(root.join("committed"), "committed").unwrap();
    shell(root, "setfattr -n user.old -v old committed; mkdir empty; ln -s target symlink");
    let all = Command::new("btrfs").args(["filesystem", "sync"]).arg(root).output().unwrap();
    assert!(all.status.success(), "{all:?}");
    let mut synced = File::create_new(root.join("synced")).unwrap();
    synced.write_all(b"synced").unwrap();
    synced.sync_all().unwrap();
    let mut written = File::create_new(root.join("written")).unwrap();
    written.write_all(&vec![b'x'; 100_000]).unwrap();
    written
}

fn every_change_fails(root: &Path, mut written: File) {
    fails(File::create(root.join("new")));
    fails(fs::create_dir(root.join("dir")));
    fails(fs::remove_file(root.join("synced")));
    fails(fs::rename(root.join("synced"), root.join("other")));
    fails(fs::hard_link(root.join("synced"), root.join("link")));
    fails(fs::set_permissions(root.join("synced"), Permissions::from_mode(0o600)));
    fails(File::options().write(true).open(root.join("synced")).unwrap().set_len(0));
    // The kernel accepts the write; fsync(2) reports that it is lost, and so does a write(2) soon
    // after that.
    written.write_all(b"more").unwrap();
    fails(written.sync_all());
    let mut last = Ok(());
    until("a write to fail", || {
        last = written.write_all(b"and more");
        last.is_err()
    });
    fails(last);
    fails(File::open(root).unwrap().sync_all());
    shell(root, &format!("python3 - <<'END'\n{CHANGES}\nEND"));
}

/// Shuts down with this flag, and checks by `shown` what is left, in a mount of ours and in one by
/// Linux.
fn what_is_left(flag: u32, shown: impl Fn(&Path)) {
    let Some(site) = Site::new() else { return };
    if !["perl", "python3", "setfattr"].into_iter().all(has_program) {
        return;
    }
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true).commit_seconds(0));
    let written = fill(ours.path());
    let asked = shutdown(ours.path(), flag).output().unwrap();
    assert!(asked.status.success(), "{asked:?}");
    let copy = site.at("copy");
    run(Command::new("cp").arg("--sparse=always").args([site.image(), copy.clone()])).unwrap();
    every_change_fails(ours.path(), written);
    assert_eq!(fs::read_to_string(ours.path().join("synced")).unwrap(), "synced");
    let again = shutdown(ours.path(), 0).output().unwrap();
    assert!(again.status.success(), "{again:?}");
    ours.end();
    run(Command::new("cmp").args([site.image(), copy.clone()])).unwrap();
    Site::with_image_in_linux(&copy, "noatime", &shown);
    btrfs_check(&copy).unwrap();
    site.with_ours(|root| shown(root));
    btrfs_check(&site.image()).unwrap();
}

fn synced_is_there(root: &Path) {
    assert_eq!(fs::read_to_string(root.join("committed")).unwrap(), "committed");
    assert_eq!(fs::read_to_string(root.join("synced")).unwrap(), "synced");
    assert!(root.join("empty").is_dir());
    assert!(!root.join("new").exists() && !root.join("other").exists());
}

#[test]
fn shutdown_with_flag_0_syncs_everything_first() {
    what_is_left(0, |root| {
        synced_is_there(root);
        assert!(fs::read(root.join("written")).unwrap() == vec![b'x'; 100_000]);
    });
}

#[test]
fn shutdown_with_flag_1_keeps_names_without_pending_data() {
    what_is_left(1, |root| {
        synced_is_there(root);
        assert_eq!(fs::read(root.join("written")).unwrap(), b"");
    });
}

#[test]
fn shutdown_with_flag_2_keeps_only_durable_changes() {
    what_is_left(2, |root| {
        synced_is_there(root);
        assert!(!root.join("written").exists());
    });
}

/// Makes data that only the kernel has durable by `BTRFS_IOC_SYNC`, and shuts down. The program
/// that wrote the data does both: a file is written back when any program closes it, or is started
/// with it.
const SYNC: &str = r"
import fcntl, os, struct
file = os.open('file', os.O_RDWR | os.O_CREAT)
os.write(file, b'x' * 100000)
fcntl.ioctl(file, 0x9408)
fcntl.ioctl(file, 0x8004587d, struct.pack('<I', 2))
";

#[test]
fn data_synced_by_ioctl_is_there_after_shutdown() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    shell(ours.path(), &format!("python3 - <<'END'\n{SYNC}\nEND"));
    ours.end();
    btrfs_check(&site.image()).unwrap();
    site.with_linux("ro,noatime", |root| {
        assert!(fs::read(root.join("file")).unwrap() == vec![b'x'; 100_000]);
    });
}

/// As in Linux, a shutdown requires CAP_SYS_ADMIN and a valid flag.
#[test]
fn shutdown_without_rights_is_refused() {
    let Some(site) = Site::new() else { return };
    if !["perl", "setpriv", "unshare"].into_iter().all(has_program) {
        return;
    }
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    let root = ours.path();
    refused(&shutdown(root, 7).output().unwrap(), "Invalid argument");
    refused(&shutdown(root, 2).uid(NOBODY).gid(NOBODY).output().unwrap(), "not permitted");
    let within = |program: &str, arguments: &[&str]| {
        let asked = shutdown(root, 2);
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").args(arguments).arg("perl").args(asked.get_args());
        command
    };
    let bounded = within("setpriv", &["--bounding-set=-sys_admin"]).output().unwrap();
    refused(&bounded, "not permitted");
    // Root in its own user namespace only; if creating one is not permitted, the message is the
    // same.
    let unshared = within("unshare", &["--user", "--map-root-user"]).output().unwrap();
    refused(&unshared, "not permitted");
    let mut file = File::create(root.join("file")).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    drop(file);
    ours.end();
    btrfs_check(&site.image()).unwrap();
}
