//! Durability of calls: data that is durable when a call returns is there after a simulated power
//! loss or a kill of the server, by our replay and by that of Linux.
//!
//! Each way has a filesystem of its own, so that what one of them makes durable, for example by
//! falling back to a commit, does not hide a failure of another one.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use userbtrfs::{OpenOptions, PendingLog};
use userbtrfs_testkit::linux::{self, Linux};
use userbtrfs_testkit::test_env::has_program;

use super::control::ask;
use super::support::site::Site;

/// The kind of cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// All writes from now on are dropped.
    Drop,
    /// The server is killed.
    Kill,
}

/// One way to make data durable: a script for `python3` in the mount, and the expected files.
struct Way {
    name: &'static str,
    options: &'static str,
    script: &'static str,
    /// For each path the byte that its whole content consists of; `None` if it must not exist.
    left: &'static [(&'static str, Option<u8>)],
}

const BYTES: usize = 8192;

/// The beginning of each script. There is a file `old` with as many bytes as are written.
const HEAD: &str = "
import mmap, os
NEW = b'n' * 8192
def written(flags, write=os.write, after=lambda fd: None):
    for path in ('dir/old', 'dir/new'):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
        write(fd, NEW)
        after(fd)
def direct(fd, content):
    aligned = mmap.mmap(-1, len(content))
    aligned.write(content)
    assert os.write(fd, aligned) == len(content)
def mapped(fd, content):
    os.truncate(fd, len(content))
    memory = mmap.mmap(fd, len(content))
    memory[:] = content
    memory.flush()
";

const WRITTEN: &[(&str, Option<u8>)] = &[("/dir/old", Some(b'n')), ("/dir/new", Some(b'n'))];

/// The files above, and the one that is written at the end of each script.
const ALL_WRITTEN: &[(&str, Option<u8>)] =
    &[("/dir/old", Some(b'n')), ("/dir/new", Some(b'n')), (LAST, Some(b'n'))];

const WAYS: &[Way] = &[
    Way { name: "O_SYNC", options: "rw", script: "written(os.O_SYNC)", left: WRITTEN },
    Way { name: "O_DSYNC", options: "rw", script: "written(os.O_DSYNC)", left: WRITTEN },
    Way {
        name: "O_DIRECT and O_SYNC",
        options: "rw",
        script: "written(os.O_DIRECT | os.O_SYNC, direct)",
        left: WRITTEN,
    },
    Way {
        name: "O_DIRECT and O_DSYNC",
        options: "rw",
        script: "written(os.O_DIRECT | os.O_DSYNC, direct)",
        left: WRITTEN,
    },
    Way {
        name: "RWF_DSYNC",
        options: "rw",
        script: "written(0, lambda fd, content: os.pwritev(fd, [content], 0, os.RWF_DSYNC))",
        left: WRITTEN,
    },
    Way { name: "-o sync", options: "sync", script: "written(0)", left: ALL_WRITTEN },
    Way { name: "fsync", options: "rw", script: "written(0, after=os.fsync)", left: WRITTEN },
    Way {
        name: "fdatasync",
        options: "rw",
        script: "written(0, after=os.fdatasync)",
        left: WRITTEN,
    },
    Way {
        name: "fdatasync without a log",
        options: "notreelog",
        script: "written(0, after=os.fdatasync)",
        left: WRITTEN,
    },
    Way { name: "msync", options: "rw", script: "written(0, mapped)", left: WRITTEN },
    Way {
        name: "fsync of a directory",
        options: "rw",
        script: "
os.rename('dir/old', 'dir/moved'); os.mkdir('dir/sub'); os.symlink('target', 'dir/link')
open('dir/new', 'w'); open('dir/removed', 'w'); os.unlink('dir/removed')
os.fsync(os.open('dir', os.O_RDONLY))
",
        left: &[("/dir/old", None), ("/dir/moved", Some(b'o')), ("/dir/removed", None)],
    },
    Way {
        name: "fsync of what was renamed",
        options: "rw",
        script: "
written(0); os.rename('dir/new', 'dir/old'); os.fsync(os.open('dir/old', os.O_RDONLY))
",
        left: &[("/dir/old", Some(b'n')), ("/dir/new", None)],
    },
];

/// The end of each script: a file that is not made durable.
const LAST: &str = "/dir/last";
const TAIL: &str = "
with open('dir/last', 'wb') as last: last.write(NEW)
";

#[test]
fn durable_files_survive_a_cut() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    for way in WAYS {
        for cut in [Cut::Drop, Cut::Kill] {
            println!("{}, {cut:?}", way.name);
            do_and_cut(&site, way, cut);
            judge(&site, way);
        }
    }
}

fn do_and_cut(site: &Site, way: &Way, cut: Cut) {
    site.made.format("256M");
    let filesystem = site.made.open_for_writing();
    let dir = filesystem.root().create_dir(b"dir", 0o755).unwrap();
    let old = dir.create(b"old", 0o644).unwrap().open().unwrap();
    old.write_all_at(&[b'o'; BYTES], 0).unwrap();
    drop((old, dir));
    filesystem.close().unwrap();
    // Only the calls of the script make anything durable.
    let mut server = site.serve(&["-o", way.options, "-o", "commit=3600"]);
    let script = [HEAD, way.script, TAIL].concat();
    let mut python = Command::new("python3");
    linux::run(python.args(["-c", &script]).current_dir(site.point())).unwrap();
    match cut {
        Cut::Drop => drop(ask("stats --drop-writes on", &site.point(), &[]).good()),
        Cut::Kill => server.kill().unwrap(),
    }
    site.umount();
    server.wait().unwrap();
}

/// Checks that all durable files are there, by our replay and by that of Linux, and that the last
/// file is not, unless it was made durable: this proves that there was a cut.
fn judge(site: &Site, way: &Way) {
    let check = |found: BTreeMap<&str, Option<Vec<u8>>>, whose: &str| {
        for (path, left) in way.left {
            let wanted = left.map(|byte| vec![byte; BYTES]);
            assert!(found[path] == wanted, "{}: {path} by {whose}", way.name);
        }
        let is_lost = found[LAST].as_ref().is_none_or(Vec::is_empty);
        let is_durable = way.left.iter().any(|(path, _)| *path == LAST);
        assert!(is_lost || is_durable, "{}: no cut", way.name);
    };
    let paths = || way.left.iter().map(|(path, _)| *path).chain([LAST]);
    let left = OpenOptions::new().pending_log(PendingLog::Leave).open(site.image()).unwrap();
    let has_log = left.superblock().log_root.is_some();
    assert_eq!(has_log, way.options != "notreelog", "{}: a log", way.name);
    drop(left);
    let filesystem = site.made.open();
    check(paths().map(|path| (path, filesystem.read(path).ok())).collect(), "our replay");
    drop(filesystem);
    let linux = Linux::lock().unwrap();
    let copy = site.made.at("copy");
    let found = linux.with_copy(&site.image(), &copy, |root| {
        paths().map(|path| (path, fs::read(root.join(&path[1..])).ok())).collect()
    });
    check(found.unwrap(), "Linux's replay");
    fs::remove_file(copy).unwrap();
}
