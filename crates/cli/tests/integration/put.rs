//! `put`: the attributes that it keeps, its errors, and its destinations.

use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};
use rustix::process::{Pid, Signal, kill_process};
use userbtrfs::{FileKind, XattrMode};
use userbtrfs_testkit::manifest::diff;
use userbtrfs_testkit::test_env::{skip, until};
use userbtrfs_testkit::{walk_linux, walk_ours};

use crate::support::command::command;
use crate::support::made::Made;
use crate::support::{assert_says, pattern};

/// Fields that no copy can keep, or that filesystems count in different ways.
const NOT_COPIED: &[&str] =
    &["inode", "subvolume", "nlink", "size", "ctime", "btime", "atime", "flags", "segments"];

/// Makes a tree with inodes of every kind, as far as this user may make them.
fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("deep/deeper")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    fs::write(dir.join("small"), b"hello\n").unwrap();
    fs::write(dir.join("largest"), vec![7; 2048]).unwrap();
    fs::write(dir.join("larger"), pattern(2049)).unwrap();
    fs::write(dir.join("deep/large"), pattern(3_000_001)).unwrap();
    fs::write(dir.join("nothing"), b"").unwrap();
    fs::write(dir.join(std::ffi::OsStr::from_bytes(b"deep/\xff\n")), b"odd name").unwrap();
    fs::hard_link(dir.join("small"), dir.join("deep/again")).unwrap();
    symlink("../small", dir.join("deep/link")).unwrap();
    symlink("nowhere", dir.join("dangling")).unwrap();
    fs::hard_link(dir.join("dangling"), dir.join("dangling-again")).unwrap();
    drop(UnixListener::bind(dir.join("socket")).unwrap());
    mknodat(CWD, dir.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let device = makedev(300, 70_000);
    // This may need privilege.
    let _ = mknodat(CWD, dir.join("device"), FileType::BlockDevice, Mode::RUSR, device);
    let _ = setxattr(dir.join("small"), "user.name", b"value\0\xff", XattrFlags::empty());
    let _ = setxattr(dir.join("deep"), "user.empty", b"", XattrFlags::empty());
    fs::set_permissions(dir.join("small"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(dir.join("deep"), fs::Permissions::from_mode(0o1710)).unwrap();
    let time = |nanos| UNIX_EPOCH + Duration::new(1_000_000_000, nanos);
    for (name, nanos) in [("deep/deeper", 1), ("deep", 2), ("small", 999_999_999)] {
        let times = FileTimes::new().set_accessed(time(nanos)).set_modified(time(nanos));
        File::open(dir.join(name)).unwrap().set_times(times).unwrap();
    }
}

struct Source(PathBuf);

impl Source {
    fn new(made: &Made) -> Self {
        let source = Self(made.at("source"));
        fs::create_dir(&source.0).unwrap();
        fill(&source.0);
        source
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Asserts that a directory of the image has the same content as this source.
    #[track_caller]
    fn assert_copied(&self, made: &Made, to: &str) {
        let theirs = walk_linux::walk(&self.0).unwrap();
        let ours = walk_ours::walk(&made.open()).unwrap().below(to.as_bytes());
        let differences = diff(&theirs, &ours, NOT_COPIED);
        assert!(differences.is_empty(), "{differences:#?}");
        assert!(ours.entries().len() > 10);
    }
}

#[test]
fn tree_is_copied_with_everything() {
    let made = Made::new();
    let source = Source::new(&made);
    // Reading changes the access time.
    let accessed = fs::metadata(source.0.join("small")).unwrap();
    made.does("put", &[source.text(), "/copy"]);
    source.assert_copied(&made, "/copy");
    made.does("put", &[source.text(), "/copy"]);
    source.assert_copied(&made, "/copy/source");
    made.judge();

    let filesystem = made.open();
    let small = filesystem.metadata("/copy/small").unwrap();
    assert_eq!((small.nlink, small.mode), (2, 0o104_751));
    assert_eq!(small.accessed.sec, accessed.atime());
    assert_eq!(i64::from(small.accessed.nsec), accessed.atime_nsec());
    assert_eq!(filesystem.symlink_metadata("/copy/dangling").unwrap().nlink, 2);
    assert_eq!(filesystem.metadata("/copy/socket").unwrap().kind, FileKind::Socket);
}

#[test]
fn existing_directories_are_filled_and_files_replaced() {
    let made = Made::new();
    let source = Source::new(&made);
    made.does("mkdir -p", &["/copy/other", "/copy/deep"]);
    made.does("truncate -s 9", &["/copy/small", "/copy/dangling"]);
    let content = format!("{}/.", source.text());
    made.does("put", &[&content, "/copy"]);
    assert!(made.paths().contains(&"/copy/other".to_owned()));
    made.does("rm -r", &["/copy/other"]);
    made.does("put", &[&content, "/copy"]);
    source.assert_copied(&made, "/copy");
    made.judge();

    made.does("rm", &["/copy/nothing"]);
    made.does("mkdir", &["/copy/nothing"]);
    made.does("rm -r", &["/copy/empty"]);
    made.does("truncate -s 0", &["/copy/empty"]);
    let said = made.verb("put", &[&content, "/copy"]).bad();
    assert_says(
        &said,
        &["put: /copy/nothing: is a directory", "put: /copy/empty: not a directory"],
    );
    made.judge();
}

#[test]
fn file_in_the_way_stays_if_there_is_no_space_for_the_copy() {
    let made = Made::of_size("128M");
    let source = made.at("too large");
    fs::write(&source, vec![1; 140 << 20]).unwrap();
    let filesystem = made.open_for_writing();
    filesystem.write("/file", "old").unwrap();
    filesystem.close().unwrap();
    let said = made.verb("put", &[source.to_str().unwrap(), "/file"]).bad();
    assert_says(&said, &["/file: no space left on the device"]);
    assert_eq!(made.open().read("/file").unwrap(), b"old");
    assert_eq!(made.paths(), ["/file"]);
    made.judge();
}

#[test]
fn hard_links_between_sources_are_kept_with_a_given_owner() {
    let made = Made::new();
    let source = Source::new(&made);
    let small = format!("{}/small", source.text());
    let deep = format!("{}/deep", source.text());
    made.does("put --owner 12:34", &[&small, &deep, "/"]);
    let filesystem = made.open();
    let small = filesystem.metadata("/small").unwrap();
    assert_eq!((small.nlink, small.uid, small.gid, small.mode), (2, 12, 34, 0o104_751));
    assert_eq!(filesystem.metadata("/deep/again").unwrap().id, small.id);
    assert_eq!(filesystem.metadata("/deep").unwrap().uid, 12);
    made.judge();
}

/// Two names of one inode with the same last component become one name in the copy.
#[test]
fn sources_with_one_inode_and_name_are_copied_once() {
    let made = Made::new();
    let a = made.at("a");
    let b = made.at("b");
    for dir in [&a, &b] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(a.join("f"), b"content").unwrap();
    fs::hard_link(a.join("f"), b.join("f")).unwrap();
    made.does("mkdir", &["/d"]);
    let text = |dir: &Path| dir.join("f").to_str().unwrap().to_owned();
    made.does("put", &[&text(&a), &text(&b), "/d"]);
    assert_eq!(made.open().read("/d/f").unwrap(), b"content");
    made.judge();
}

#[test]
fn missing_source_is_named_and_the_rest_is_copied() {
    let made = Made::new();
    let source = Source::new(&made);
    let said = made.verb("put", &["/nowhere/at/all", source.text(), "/"]).bad();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_says(&said, &["put: /nowhere/at/all: ", "No such file"]);
    source.assert_copied(&made, "/source");
    let said = made.verb("put", &[source.text(), "/x/y"]).bad();
    assert_says(&said, &["/x/y: no such file or directory"]);
    let said = made.verb("put", &[source.text(), source.text(), "/new"]).bad();
    assert_says(&said, &["/new: not a directory"]);
}

#[test]
fn json_reports_counts() {
    let made = Made::new();
    let source = Source::new(&made);
    let said = made.verb("put --format json", &[source.text(), "/"]).good();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["put"]["files"], 6);
    assert_eq!(said["put"]["errors"], 0);
    assert_eq!(said["put"]["bytes"], 6 + 2048 + 8 + 2049 + 3_000_001);
}

/// Many entries in one directory and many directories: several leaves of the tree.
#[test]
fn thousands_of_files_are_copied_in() {
    let made = Made::new();
    let source = made.at("source");
    for dir in 0..20 {
        let dir = source.join(format!("directory {dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..100 {
            fs::write(dir.join(format!("a file of number {file}")), [b'x'; 150]).unwrap();
        }
    }
    made.does("put", &[source.to_str().unwrap(), "/"]);
    assert_eq!(made.paths().len(), 1 + 20 + 2000);
    made.judge();
    made.does("rm -r", &["/source"]);
    made.judge();
}

/// An attribute that fits into no tree block is left out, and nothing else.
#[test]
fn attribute_that_is_too_long_is_left_out() {
    let made = Made::new();
    made.does("mkfs -f -q -n 4k", &[]);
    let source = made.at("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), b"content").unwrap();
    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    for path in [source.join("file"), source.clone()] {
        let set = |name, value: &[u8]| setxattr(&path, name, value, XattrFlags::empty());
        if set("user.long", &[b'x'; 3960]).is_err() || set("user.b", b"kept").is_err() {
            return skip("no user attributes that are so long");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
        let times = FileTimes::new().set_accessed(time).set_modified(time);
        File::open(&path).unwrap().set_times(times).unwrap();
    }
    let ran = made.verb("put", &[source.to_str().unwrap(), "/"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_says(&ran.stderr, &["put: 2 owners or attributes not preserved"]);
    let filesystem = made.open();
    assert_eq!(filesystem.read("/source/file").unwrap(), b"content");
    for path in ["/source", "/source/file"] {
        let found = filesystem.metadata(path).unwrap();
        assert_eq!((found.mode & 0o7777, found.modified.nsec), (0o751, 5), "{path}");
        let xattrs = filesystem.lookup(path).unwrap().xattrs().unwrap();
        assert_eq!(xattrs, [(b"user.b".to_vec(), b"kept".to_vec())], "{path}");
    }
    made.judge();
}

/// Files of /proc are generated as they are read, and have size 0.
#[test]
fn file_of_size_zero_is_read_to_its_end() {
    let made = Made::new();
    made.does("put", &["/proc/version", "/proc/filesystems", "/"]);
    for name in ["version", "filesystems"] {
        let content = fs::read(Path::new("/proc").join(name)).unwrap();
        assert!(!content.is_empty());
        assert_eq!(made.open().read(format!("/{name}")).unwrap(), content, "{name}");
    }
}

/// Files of /sys have the size of a page, and their content is shorter.
#[test]
fn file_of_sysfs_is_read_to_its_end_without_a_warning() {
    let all = ["/sys/kernel/fscaps", "/sys/kernel/profiling", "/sys/kernel/notes"];
    let there: Vec<_> = all.into_iter().filter(|path| fs::read(path).is_ok()).collect();
    if there.is_empty() {
        return skip("no sysfs");
    }
    let made = Made::new();
    made.does("put", &[&there[..], &["/"]].concat());
    for path in there {
        let content = fs::read(path).unwrap();
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(made.open().read(format!("/{name}")).unwrap(), content, "{path}");
    }
}

/// ACLs of an existing directory must not grant access that its source does not.
#[test]
fn acls_of_an_existing_directory_are_removed() {
    let made = Made::new();
    let source = Source::new(&made);
    made.does("mkdir", &["/into"]);
    let filesystem = made.open_for_writing();
    let into = filesystem.lookup("/into").unwrap();
    // Version 2; user 1000 may read, within the mask.
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let nobody = u32::MAX;
    let entries = [(1, 7, nobody), (2, 4, 1000), (4, 5, nobody), (16, 5, nobody), (32, 0, nobody)];
    let list = [vec![2, 0, 0, 0], entries.map(|(a, b, c)| entry(a, b, c)).concat()].concat();
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        into.set_xattr(name.as_bytes(), &list, XattrMode::Either).unwrap();
    }
    into.set_xattr(b"user.stays", b"whatever", XattrMode::Either).unwrap();
    drop(into);
    filesystem.close().unwrap();
    made.does("put", &[&format!("{}/.", source.text()), "/into"]);
    let xattrs = made.open().lookup("/into").unwrap().xattrs().unwrap();
    assert_eq!(xattrs, [(b"user.stays".to_vec(), b"whatever".to_vec())]);
}

/// As the message says, only files that are not complete are removed.
#[test]
fn put_that_a_signal_stops_keeps_the_complete_files() {
    let made = Made::of_size("2G");
    std::fs::write(made.at("small"), "complete").unwrap();
    std::fs::write(made.at("large"), vec![1; 512 << 20]).unwrap();
    let mut put = command(["put", made.image().to_str().unwrap()]);
    put.args([made.at("small"), made.at("large")]).arg("/");
    // It takes longer than this test, also if many others want a processor.
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(put.get_program()).args(put.get_args()).stderr(Stdio::piped());
    let size = || made.image().metadata().unwrap().blocks();
    let before = size();
    let child = nice.spawn().unwrap();
    until("a part of the large file", || size() > before + (32 << 20) / 512);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("interrupted; incomplete files were removed"), "{said}");
    assert_eq!(made.verb("ls", &[]).good(), "small\n");
    assert_eq!(made.verb("cat", &["/small"]).good(), "complete");
    made.judge();
}
