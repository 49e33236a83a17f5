//! `stats`, `trace` and `subvolume` of a mount, by its control socket; and dropped writes.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use rustix::fs::{major, minor};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use userbtrfs::OpenOptions;
use userbtrfs_testkit::linux::{self, Linux, btrfs_check};
use userbtrfs_testkit::test_env::{FUSE_FOR_ALL, NOBODY, has_program, is_apart, until};

use super::support::command::{Ran, command, run};
use super::support::nobody::Nobody;
use super::support::site::Site;
use super::support::{assert_says, synced};

/// Runs a verb on a mount.
pub(crate) fn ask(words: &str, point: &Path, rest: &[&str]) -> Ran {
    super::support::command::verb(words, point, rest)
}

pub(crate) fn stats(point: &Path) -> Value {
    let said = ask("--format json stats", point, &[]).good();
    serde_json::from_str::<Value>(&said).unwrap()["stats"].take()
}

/// Writes a file and makes it durable.
fn fsync(path: PathBuf, content: &str) {
    let mut file = File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

/// Follows the trace, and waits until events arrive.
fn follow(point: &Path, format: &str) -> (Child, impl Iterator<Item = String> + use<>) {
    let words = ["--format", format, "trace", "fsync"].map(AsRef::as_ref);
    let mut command = command(words.into_iter().chain([point.as_os_str()]));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Fsyncs before the command is connected are not traced.
    let (told, first) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        told.send(lines.next()).unwrap();
        lines
    });
    let mut number = 0;
    until("a line of the trace", || {
        fsync(point.join("probe"), &number.to_string());
        number += 1;
        first.try_recv().is_ok_and(|line| line.is_some())
    });
    (child, reader.join().unwrap())
}

/// Returns the path of the socket of a mount.
fn socket(point: &Path) -> PathBuf {
    let device = point.metadata().unwrap().dev();
    assert!(geteuid().is_root(), "it is root who runs this");
    PathBuf::from(format!("/run/userbtrfs/{}:{}", major(device), minor(device)))
}

/// Returns the identity of the file at a path, if there is one: the socket of another mount may
/// have replaced it.
fn identity(socket: &Path) -> Option<(u64, i64, i64)> {
    let metadata = socket.symlink_metadata().ok()?;
    Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

#[test]
fn stats_show_state_and_request_counts_of_a_mount() {
    let Some(site) = Site::new() else { return };
    let child = site.serve(&[]);
    let before = stats(&site.point());
    assert_eq!(before["state"], "read-write");
    assert_eq!((&before["why"], &before["writes_dropped"]), (&Value::Null, &Value::Null));
    assert_eq!((&before["log_groups"], &before["requests"]["MKDIR"]), (&0.into(), &0.into()));
    fs::create_dir(site.point().join("dir")).unwrap();
    fsync(site.point().join("file"), "content");
    let after = stats(&site.point());
    assert_eq!((&after["log_groups"], &after["requests"]["MKDIR"]), (&1.into(), &1.into()));
    let text = ask("stats", &site.point(), &[]).good();
    for line in ["state: read-write", "log groups: 1", "requests, MKDIR: 1", "requests, FSYNC: 1"] {
        assert!(text.lines().any(|said| said == line), "{line} is not in {text}");
    }
    let socket = socket(&site.point());
    let mode = |path: &Path| path.symlink_metadata().unwrap().mode() & 0o777;
    assert_eq!((mode(socket.parent().unwrap()), mode(&socket)), (0o700, 0o600));
    let left = identity(&socket);
    site.umount();
    Ran::from(child.wait_with_output().unwrap()).good();
    assert_ne!(identity(&socket), left);
    site.judge();
}

#[test]
fn read_only_mount_shows_its_state() {
    let Some(site) = Site::new() else { return };
    let child = site.serve(&["-o", "ro"]);
    assert_eq!(stats(&site.point())["state"], "read-only");
    let refused = ask("stats --drop-writes on", &site.point(), &[]).bad();
    assert!(refused.contains("mounted read-only"), "{refused}");
    site.umount();
    Ran::from(child.wait_with_output().unwrap()).good();
}

#[test]
fn fsync_is_traced_to_all_followers_until_the_mount_ends() {
    let Some(site) = Site::new() else { return };
    let server = site.serve(&[]);
    let (json, mut documents) = follow(&site.point(), "json");
    let (mut text, mut lines) = follow(&site.point(), "text");
    fsync(site.point().join("file"), "content");
    let number = site.point().join("file").metadata().unwrap().ino();
    let is_it = |line: &String| line.starts_with(&format!("inode {number} of subvolume 5: log; "));
    assert!(lines.by_ref().any(|line| is_it(&line)));
    let mut document = documents.by_ref().map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let found = document.find(|line| line["inode"] == number).unwrap();
    assert_eq!((&found["how"], &found["subvolume"]), (&"log".into(), &5.into()));
    // A follower that has ended gets no more events; one that does not read is not waited for.
    text.kill().unwrap();
    text.wait().unwrap();
    let pid = Pid::from_raw(json.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    for number in 0..3000 {
        fsync(site.point().join("many"), &number.to_string());
    }
    site.umount();
    Ran::from(server.wait_with_output().unwrap()).good();
    kill_process(pid, Signal::CONT).unwrap();
    let rest: Vec<_> = documents.collect();
    assert!(rest.len() > 100 && rest.iter().all(|line| line.starts_with('{')), "{}", rest.len());
    assert_eq!(Ran::from(json.wait_with_output().unwrap()).good(), "");
    site.judge();
}

#[test]
fn subvolumes_of_a_mount_are_those_of_its_image() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&site.image(), "noatime").unwrap();
    let btrfs = |words: &[&str]| {
        linux::run(Command::new("btrfs").args(words).current_dir(mount.path())).unwrap();
    };
    btrfs(&["subvolume", "create", "one"]);
    btrfs(&["subvolume", "snapshot", "-r", "one", "a two"]);
    drop(mount);
    let asked = |at: &Path| {
        ["text", "json"].map(|format| {
            let list = ask(&format!("--format {format} subvolume list"), at, &[]).good();
            let show = ask(&format!("--format {format} subvolume show"), at, &["/one"]).good();
            assert!(list.contains("a two") && show.contains("a two"), "{list}{show}");
            list + &show
        })
    };
    let of_image = asked(&site.image());
    site.mount(&[]).good();
    assert_eq!(asked(&site.point()), of_image);
    let absent = ask("subvolume show", &site.point(), &["/absent"]).bad();
    assert_eq!(absent, "userbtrfs: /absent: no such file or directory\n");
    let refused = ask("subvolume list --subvolid 5", &site.point(), &[]).bad();
    assert!(refused.contains("--subvolid applies to images only"), "{refused}");
    assert_eq!(ask("subvolume create", &site.point(), &[]).code, Some(1));
    site.umount();
    site.judge();
}

#[test]
fn path_that_is_no_mount_is_refused_by_name() {
    let Some(site) = Site::new() else { return };
    let child = site.serve(&["-o", "allow_other"]);
    fs::create_dir(site.point().join("dir")).unwrap();
    let refused = |at: &Path, says: &str| {
        for words in ["stats", "trace fsync", "stats --drop-writes on"] {
            let said = ask(words, at, &[]).bad();
            assert!(said.contains(at.to_str().unwrap()) && said.contains(says), "{said}");
        }
    };
    refused(&site.made.at(""), "not a mount of userbtrfs");
    refused(&site.image(), "not a mount of userbtrfs");
    refused(&site.made.at("absent"), "No such file");
    refused(&site.point().join("dir"), "within the mount at");
    site.umount();
    Ran::from(child.wait_with_output().unwrap()).good();
}

/// Sends a request to a socket without the command, in the protocol of the command.
const CONNECT: &str = r"
import socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect(sys.argv[1])
try:
    asked.sendall(b'1\0stats\0')
    print('answered' if asked.recv(1) else 'closed')
except ConnectionError:
    print('closed')
";

/// Answers the first client of this socket, like a server; waits for a client for five minutes.
const ANSWER: &str = r"
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
listener.settimeout(300)
print('listens', flush=True)
asked, _ = listener.accept()
if asked.recv(100):
    asked.sendall(b'whole 6\nfalse\n')
";

/// For [`is_apart`]: sockets of mounts are in a directory of this test alone, whose permissions it
/// may change.
const OWN_SOCKETS: &str = "mkdir -m 755 \"$0/run\"; mount --bind \"$0/run\" /run";

/// Only the user that mounted it may send requests, even if others can see the mount and reach the
/// socket.
#[test]
fn a_stranger_is_refused() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") || !is_apart("control::a_stranger_is_refused", OWN_SOCKETS) {
        return;
    }
    let nobody = Nobody::of(&site);
    let asks = |words: &str| {
        let words = words.split(' ').map(OsStr::new);
        let point = site.point();
        nobody.run(words.chain([point.as_os_str()])).bad()
    };
    let questions =
        ["stats", "trace fsync", "subvolume list", "subvolume show", "stats --drop-writes on"];
    for option in ["rw", "allow_other"] {
        let child = site.serve(&["-o", option]);
        for words in questions {
            assert_says(&asks(words), &[site.point().to_str().unwrap(), "ermission denied"]);
        }
        let socket = socket(&site.point());
        let connect = |mut python: Command| {
            let python = python.args(["-c", CONNECT]).arg(&socket);
            String::from_utf8(linux::run(python).unwrap().stdout).unwrap()
        };
        fs::set_permissions(socket.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(connect(Nobody::program("python3")), "closed\n");
        assert_eq!(connect(Command::new("python3")), "answered\n");
        fs::set_permissions(socket.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
        assert_eq!(stats(&site.point())["writes_dropped"], Value::Null);
        site.umount();
        Ran::from(child.wait_with_output().unwrap()).good();
    }
}

/// An answer is not accepted from another user's socket in place of that of the mount.
#[test]
fn a_stranger_is_not_believed() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") || !is_apart("control::a_stranger_is_not_believed", OWN_SOCKETS) {
        return;
    }
    let server = site.serve(&[]);
    let own = socket(&site.point());
    let theirs = Path::new("/run/theirs");
    fs::create_dir(theirs).unwrap();
    chown(theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut stranger = Nobody::program("python3");
    stranger.args(["-c", ANSWER]).arg(theirs.join("socket"));
    let mut stranger = stranger.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(stranger.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "listens\n");
    fs::rename(&own, theirs.join("own")).unwrap();
    fs::rename(theirs.join("socket"), &own).unwrap();
    assert_says(&ask("stats", &site.point(), &[]).bad(), &["cannot be reached"]);
    fs::rename(theirs.join("own"), &own).unwrap();
    assert_eq!(stats(&site.point())["state"], "read-write");
    assert!(stranger.wait().unwrap().success(), "it was not asked");
    site.umount();
    Ran::from(server.wait_with_output().unwrap()).good();
}

#[test]
fn a_user_asks_the_own_mount_without_a_directory_for_that() {
    let Some(site) = Site::new() else { return };
    let this = "control::a_user_asks_the_own_mount_without_a_directory_for_that";
    if !["perl", "fusermount3"].into_iter().all(has_program) || !is_apart(this, FUSE_FOR_ALL) {
        return;
    }
    let nobody = Nobody::of(&site);
    nobody.run(site.arguments(&[])).good();
    let stats = || nobody.run(["stats".as_ref(), site.point().as_os_str()]).good();
    let said = stats();
    assert!(said.contains("state: read-write\n"), "{said}");
    let directory = PathBuf::from(format!("/tmp/userbtrfs-{NOBODY}"));
    if !Path::new(&format!("/run/user/{NOBODY}")).exists() {
        let metadata = directory.symlink_metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (NOBODY, 0o700));
    }
    // The flag is read from the caller's memory, which the kernel may deny to this server.
    let mut asked = linux::shutdown(&site.point(), 2);
    let asked = asked.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success() || said.contains("not permitted"), "{said}");
    let shown = stats();
    assert_eq!(shown.contains("state: shut down\n"), asked.status.success(), "{shown}");
    site.umount();
    site.judge();
}

/// Neither a silent client nor the socket of a killed server blocks anything.
#[test]
fn unused_sockets_do_not_block_other_mounts() {
    let Some(site) = Site::new() else { return };
    let mut killed = site.serve(&[]);
    assert_eq!(stats(&site.point())["state"], "read-write");
    let left = socket(&site.point());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let said = ask("stats", &site.point(), &[]).bad();
    assert!(said.contains(site.point().to_str().unwrap()), "{said}");
    assert!(left.exists() && UnixStream::connect(&left).is_err());
    site.umount();
    // From now on the device number may be reused by the next mount of any user.
    let child = site.serve(&[]);
    assert_eq!(stats(&site.point())["state"], "read-write");
    let socket = socket(&site.point());
    let left = identity(&socket);
    let mut silent = UnixStream::connect(&socket).unwrap();
    let mut half = UnixStream::connect(&socket).unwrap();
    half.write_all(b"stats").unwrap();
    site.umount();
    Ran::from(child.wait_with_output().unwrap()).good();
    assert_ne!(identity(&socket), left);
    for stream in [&mut silent, &mut half] {
        assert_eq!(stream.read(&mut [0; 100]).unwrap(), 0);
    }
    site.judge();
}

/// A mount by fuseblk has the device number of its block device.
#[test]
fn mounted_block_device_answers_requests() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let device = linux::LoopDevice::attach(&linux, &site.image(), linux::Access::ReadWrite);
    let device = device.unwrap();
    let point = site.point();
    run(["mount".as_ref(), device.path().as_os_str(), point.as_os_str()]).good();
    fsync(point.join("before"), "content");
    ask("stats --drop-writes on", &point, &[]).good();
    fsync(point.join("after"), "content");
    assert!(stats(&point)["writes_dropped"].as_u64().unwrap() > 0);
    // The last commit, which umount(8) waits for, is dropped, too.
    site.umount();
    let shown = run(["ls".as_ref(), device.path().as_os_str(), "/".as_ref()]).good();
    assert_eq!(shown, "before\n");
    drop(device);
    site.judge();
}

#[test]
fn two_mounts_have_a_socket_each() {
    let Some(one) = Site::new() else { return };
    let Some(two) = Site::new() else { return };
    let children = [one.serve(&[]), two.serve(&[])];
    fs::create_dir(one.point().join("dir")).unwrap();
    let made = |site: &Site| stats(&site.point())["requests"]["MKDIR"].as_u64().unwrap();
    assert_eq!((made(&one), made(&two)), (1, 0));
    for (site, child) in [&one, &two].into_iter().zip(children) {
        site.umount();
        Ran::from(child.wait_with_output().unwrap()).good();
        site.judge();
    }
}

/// A simulated power loss: files that were fsynced before it are there, for us and for Linux, and
/// nothing that was written later, though the mount showed all of it.
#[test]
fn writes_after_power_loss_are_not_in_the_image() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    for end in ["kill", "umount"] {
        let mut child = site.serve(&["-o", "memory=8M,commit=0"]);
        let at = |name: &str| site.point().join(format!("{end}-{name}"));
        fsync(at("before"), "content");
        assert_eq!(ask("stats --drop-writes on", &site.point(), &[]).good(), "");
        assert_eq!(stats(&site.point())["writes_dropped"], 0);
        let image = fs::read(site.image()).unwrap();
        fsync(at("before"), "other");
        fs::rename(at("before"), at("renamed")).unwrap();
        // More than the server keeps in memory, so that it is read again.
        let large = "0123456789abcdef".repeat(1 << 20);
        for number in 0..3 {
            fsync(at(&format!("after{number}")), &large);
        }
        linux::run(Command::new("btrfs").args(["filesystem", "sync"]).arg(site.point())).unwrap();
        for number in 0..3 {
            forget(&at(&format!("after{number}")));
            assert!(fs::read_to_string(at(&format!("after{number}"))).unwrap() == large);
        }
        assert_eq!(fs::read_to_string(at("renamed")).unwrap(), "other");
        assert!(stats(&site.point())["writes_dropped"].as_u64().unwrap() > 10);
        let late = ask("stats --drop-writes off", &site.point(), &[]).bad();
        assert!(late.contains("writes were already dropped"), "{late}");
        if end == "kill" {
            child.kill().unwrap();
        }
        site.umount();
        child.wait().unwrap();
        assert!(fs::read(site.image()).unwrap() == image, "{end}: something was written");
        shows_what_was_before(&linux, &site, end);
    }
    site.judge();
}

/// Drops the kernel's cached pages of a file, so that it reads from the server again.
fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

fn shows_what_was_before(linux: &Linux, site: &Site, end: &str) {
    let named = |name: &str| format!("{end}-{name}");
    let others = ["renamed", "after0", "after1", "after2"].map(named);
    let look = |root: &Path| {
        assert_eq!(fs::read_to_string(root.join(named("before"))).unwrap(), "content");
        assert!(others.iter().all(|other| !root.join(other).exists()));
    };
    linux.with_copy(&site.image(), &site.made.at("copy"), look).unwrap();
    let ours = OpenOptions::new().write(true).open(site.image()).unwrap();
    assert_eq!(ours.read(format!("/{end}-before")).unwrap(), b"content");
    assert!(others.iter().all(|other| ours.lookup(format!("/{other}")).is_err()));
    ours.close().unwrap();
    btrfs_check(&site.image()).unwrap();
}

/// A power loss as above, while programs write and sync.
#[test]
fn synced_files_survive_power_loss_under_load() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    for turn in 0..3 {
        let mut child = site.serve(&[]);
        let name = format!("turn{turn}");
        let folder = site.point().join(&name);
        fs::create_dir(&folder).unwrap();
        File::open(site.point()).unwrap().sync_all().unwrap();
        let is_over = AtomicBool::new(false);
        let done = [AtomicU64::new(0), AtomicU64::new(0)];
        let synced = std::thread::scope(|scope| {
            for (writer, done) in (0..).zip(&done) {
                let is_over = &is_over;
                let folder = &folder;
                scope.spawn(move || {
                    for number in 0.. {
                        if is_over.load(SeqCst) || synced::write(folder, writer, number).is_err() {
                            return;
                        }
                        done.store(number + 1, SeqCst);
                    }
                });
            }
            let count = || done.each_ref().map(|done| done.load(SeqCst)).into_iter().min().unwrap();
            until("some work", || count() > 20 + 50 * turn);
            let synced = count();
            ask("stats --drop-writes on", &site.point(), &[]).good();
            let cut = count();
            until("some more work", || count() > cut + 20);
            child.kill().unwrap();
            child.wait().unwrap();
            is_over.store(true, SeqCst);
            synced
        });
        site.umount();
        synced::check_image(&linux, &site, &name, synced);
    }
    site.judge();
}

/// Files that were reported durable are there after a shutdown without a sync.
#[test]
fn synced_files_survive_shutdown_under_load() {
    let Some(site) = Site::new() else { return };
    if !has_program("perl") {
        return;
    }
    let linux = Linux::lock().unwrap();
    for turn in 0..3 {
        let child = site.serve(&[]);
        let name = format!("turn{turn}");
        let folder = site.point().join(&name);
        fs::create_dir(&folder).unwrap();
        File::open(site.point()).unwrap().sync_all().unwrap();
        let synced = synced::write_until(&folder, || {
            until("files that are synced", || synced::has_begun(&folder));
            std::thread::sleep(std::time::Duration::from_millis(100 * turn));
            linux::run(&mut linux::shutdown(&site.point(), 2)).unwrap();
        });
        assert!(synced > 0);
        let shown = stats(&site.point());
        assert_eq!((&shown["state"], &shown["why"].is_string()), (&"shut down".into(), &true));
        site.umount();
        Ran::from(child.wait_with_output().unwrap()).good();
        synced::check_image(&linux, &site, &name, synced);
    }
    site.judge();
}

#[test]
fn drop_writes_is_turned_off_if_nothing_was_dropped() {
    let Some(site) = Site::new() else { return };
    let child = site.serve(&["-o", "commit=0"]);
    assert_eq!(ask("stats --drop-writes off", &site.point(), &[]).good(), "");
    for toggle in ["on", "on", "off"] {
        ask(&format!("stats --drop-writes {toggle}"), &site.point(), &[]).good();
    }
    assert_eq!(stats(&site.point())["writes_dropped"], Value::Null);
    fsync(site.point().join("file"), "content");
    site.umount();
    Ran::from(child.wait_with_output().unwrap()).good();
    assert_eq!(site.made.verb("cat", &["/file"]).good(), "content");
    let wrong = run(["stats", "--drop-writes", "maybe", "/"]);
    assert_ne!(wrong.code, Some(0));
    site.judge();
}
