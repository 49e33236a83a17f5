//! `get`: the attributes that it keeps, its errors, and that it stays inside its destination.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;
use rustix::process::{Pid, Signal, kill_process};
use userbtrfs::{Filesystem, Logical, Metadata, TreeId};
use userbtrfs_image_builder::{
    ChunkSpec, ExtentSpec, ImageEditor, InodeSpec, inline_extent, put_u32, put_u64,
};
use userbtrfs_testkit::test_env::{has_program, skip};

use crate::support::command::{Bench, Ran, command, verb};
use crate::support::forging::{
    LARGE, LARGE_DATA, edit_item, edit_leaf, extent, flip, inode, put_name,
};
use crate::support::golden::Unpacked;
use crate::support::made::Made;
use crate::support::terminal::Terminal;
use crate::support::{assert_says, open, small};

const ROOT: u64 = 256;

/// Names that no directory of a system can hold, each of a file of its own.
const HOSTILE: [&[u8]; 8] = [
    b".",
    b"..",
    b"../escaped",
    b"/escaped",
    b"sub/escaped",
    b"empty/../../escaped",
    b"nul\0escaped",
    b"/",
];

/// Returns true if anything named "escaped" is below a directory.
fn has_escaped(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().map(Result::unwrap).any(|entry| {
        let name = entry.file_name();
        let below = entry.file_type().unwrap().is_dir() && has_escaped(&entry.path());
        name.as_bytes().ends_with(b"escaped") || below
    })
}

#[test]
fn names_that_escape_the_destination_are_refused() {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        for (index, name) in (8..).zip(HOSTILE) {
            put_name(items, ROOT, index, name, (inode(257), 1));
        }
    });
    let bench = Bench::new(&editor);
    let said = bench.get_all("deep/../copy");
    assert_says(&said.bad(), &["No such file or directory"]);

    let said = bench.get_all("copy").bad();

    assert_eq!(said.matches("refused").count(), HOSTILE.len(), "{said}");
    assert_says(&said, &["get: /../escaped: refused", "nul\\u{0}escaped"]);
    assert!(!has_escaped(&bench.at("")) && !Path::new("/escaped").exists());
    assert_eq!(fs::read(bench.at("copy/small")).unwrap(), b"hello\n");
}

/// Directories with hostile names are refused with their content.
#[test]
fn directories_with_hostile_names_are_refused() {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(260), |items| {
        put_name(items, 260, 2, b"escaped", (inode(257), 1));
    });
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        put_name(items, ROOT, 8, b"..", (inode(260), 2));
    });
    let bench = Bench::new(&editor);
    assert_says(&bench.get_all("copy").bad(), &["/..: refused"]);
    assert!(!bench.at("escaped").exists());
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let bench = Bench::new(&small());
    for dir in ["outside", "copy", "copy/empty"] {
        fs::create_dir(bench.at(dir)).unwrap();
    }
    fs::write(bench.at("outside/precious"), b"precious").unwrap();
    symlink("../outside", bench.at("copy/sub")).unwrap();
    symlink("../outside/precious", bench.at("copy/small")).unwrap();
    symlink("../outside/new", bench.at("copy/large")).unwrap();

    let said = bench.get_all("copy").bad();

    assert_says(&said, &["copy/sub: open directory"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(fs::read_dir(bench.at("outside")).unwrap().count(), 1);
    assert_eq!(fs::read(bench.at("outside/precious")).unwrap(), b"precious");
    assert!(bench.at("copy/small").symlink_metadata().unwrap().is_file(), "links are replaced");
    assert_eq!(fs::read(bench.at("copy/small")).unwrap(), b"hello\n");
}

#[test]
fn files_in_the_way_are_replaced_and_directories_are_not() {
    let bench = Bench::new(&small());
    fs::create_dir_all(bench.at("copy/small/below")).unwrap();
    fs::write(bench.at("copy/large"), b"old").unwrap();
    fs::hard_link(bench.at("copy/large"), bench.at("other name")).unwrap();
    fs::write(bench.at("copy/link"), b"old").unwrap();
    let said = bench.get_all("copy").bad();
    assert_says(&said, &["copy/small: make file: "]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(fs::metadata(bench.at("copy/large")).unwrap().len(), 45056);
    assert_eq!(fs::read(bench.at("other name")).unwrap(), b"old", "other names keep the old file");
    assert_eq!(fs::read_link(bench.at("copy/link")).unwrap(), Path::new("sub/inner"));
}

/// Returns the names in a directory of the host.
fn names(dir: &Path) -> BTreeSet<OsString> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn file_in_the_way_stays_if_the_copy_fails() {
    let mut editor = small();
    flip(&mut editor, Logical(LARGE_DATA.0 + 4096), 0);
    let bench = Bench::new(&editor);
    fs::create_dir(bench.at("copy")).unwrap();
    for name in ["large", "small"] {
        fs::write(bench.at("copy").join(name), b"old").unwrap();
    }
    let said = bench.get_all("copy").bad();
    assert_says(&said, &["/large: "]);
    assert_eq!(fs::read(bench.at("copy/large")).unwrap(), b"old");
    assert_eq!(fs::read(bench.at("copy/small")).unwrap(), b"hello\n");
    assert!(names(&bench.at("copy")).iter().all(|name| !name.as_bytes().starts_with(b".")));
}

/// The second name is made while the content of the first is still missing.
#[test]
fn names_in_the_way_stay_if_the_copy_of_their_file_fails() {
    let mut editor = small();
    flip(&mut editor, Logical(LARGE_DATA.0 + 4096), 0);
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        put_name(items, ROOT, 20, b"other", (inode(LARGE), 1));
    });
    edit_item(&mut editor, inode(LARGE), |item| put_u32(item, 0x28, 2));
    let bench = Bench::new(&editor);
    fs::create_dir(bench.at("copy")).unwrap();
    for name in ["large", "other"] {
        fs::write(bench.at("copy").join(name), name).unwrap();
    }
    assert_says(&bench.get_all("copy").bad(), &["/large: "]);
    for name in ["large", "other"] {
        assert_eq!(fs::read(bench.at("copy").join(name)).unwrap(), name.as_bytes());
    }
    assert!(names(&bench.at("copy")).iter().all(|name| !name.as_bytes().starts_with(b".")));
}

#[test]
fn names_of_one_file_in_the_way_become_names_of_its_copy() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.write("/a", "new").unwrap();
    filesystem.hard_link("/a", "/b").unwrap();
    filesystem.hard_link("/a", "/c").unwrap();
    filesystem.symlink("a", "/link").unwrap();
    filesystem.close().unwrap();
    let copy = made.at("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["a", "b", "link"] {
        fs::write(copy.join(name), b"old").unwrap();
    }
    made.does("get", &["/.", copy.to_str().unwrap()]);
    let inodes = ["a", "b", "c"].map(|name| fs::metadata(copy.join(name)).unwrap().ino());
    assert!(inodes.iter().all(|inode| *inode == inodes[0]));
    assert_eq!(fs::read(copy.join("c")).unwrap(), b"new");
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("a"));
    assert_eq!(names(&copy), BTreeSet::from(["a", "b", "c", "link"].map(OsString::from)));
}

/// A link of the image keeps its target, and nothing is written through it, not even by a second
/// entry of the same name.
#[test]
fn hostile_link_targets_are_kept_and_not_followed() {
    let mut editor = small();
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().as_os_str().as_bytes().to_vec();
    let targets: [&[u8]; 3] = [b"../../../../etc", b"/", &target];
    edit_leaf(&mut editor, TreeId::FS, inode(260), |items| {
        for (number, target) in (3000..).zip(targets) {
            items.insert(inode(number), InodeSpec::new(0o120_777, target.len() as u64).build());
            items.insert(extent(number, 0), inline_extent(target));
        }
    });
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        // The entries are read by index: each link first, then one that would go through it.
        for (index, name, to) in [
            (8, &b"etc"[..], (inode(3000), 7)),
            (9, b"top", (inode(3001), 7)),
            (10, b"out", (inode(3002), 7)),
            (11, b"out", (inode(257), 1)),
            (12, b"etc", (inode(260), 2)),
        ] {
            put_name(items, ROOT, index, name, to);
        }
    });
    let bench = Bench::new(&editor);
    bench.get_all("copy").bad();
    assert_eq!(fs::read_link(bench.at("copy/top")).unwrap(), Path::new("/"));
    assert_eq!(fs::read_link(bench.at("copy/etc")).unwrap(), Path::new("../../../../etc"));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

/// The target of a link has length 0.
#[test]
fn links_without_a_target_are_reported() {
    let mut editor = small();
    edit_item(&mut editor, inode(259), |item| put_u64(item, 0x10, 0));
    let bench = Bench::new(&editor);
    assert_says(&bench.get_all("copy").bad(), &["copy/link: make link"]);
    assert!(bench.at("copy/small").exists());
}

#[test]
fn sources_go_into_a_directory_or_to_a_name() {
    let bench = Bench::new(&small());
    let at = |name: &str| bench.at(name).to_str().unwrap().to_owned();
    bench.verb("get -q", &["/small", &at("named")]).good();
    assert_eq!(fs::read(bench.at("named")).unwrap(), b"hello\n");
    fs::create_dir(bench.at("into")).unwrap();
    bench.verb("get -q", &["/small", "/sub", "/empty/", &at("into")]).good();
    assert_eq!(fs::read(bench.at("into/small")).unwrap(), b"hello\n");
    assert_eq!(fs::read(bench.at("into/sub/inner")).unwrap(), b"world\n");
    assert!(bench.at("into/empty").is_dir());
    bench.verb("get -q", &["/sub", &at("renamed")]).good();
    assert_eq!(fs::read(bench.at("renamed/inner")).unwrap(), b"world\n");
    let said = bench.verb("get -q", &["/small", "/large", &at("nowhere")]).bad();
    assert_says(&said, &["nowhere: not a directory"]);
    let said = bench.verb("get -q", &["/nothing", "/pipe", &at("into")]).bad();
    assert_says(&said, &["userbtrfs: /nothing: no such file or directory"]);
    assert!(bench.at("into/pipe").exists(), "the other sources are copied");
    let said = bench.verb("get -q", &["/small", &at("no/such/place")]).bad();
    assert_says(&said, &["No such file or directory"]);
    // A link as a source is copied as a link.
    bench.verb("get -q", &["/link", &at("link")]).good();
    assert_eq!(fs::read_link(bench.at("link")).unwrap(), Path::new("sub/inner"));
    bench.verb("get -q -x", &["/", &at("one")]).good();
    assert_eq!(fs::read_dir(bench.at("one/sub")).unwrap().count(), 0);
}

/// Returns true if this process may change the owner of files.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Copies all of a golden image; the folder exists as long as the returned value.
fn copied(name: &str) -> Unpacked {
    let golden = Unpacked::new(name);
    let to = golden.beside("copy");
    let ran = verb("get -q", &golden.path(), &["/", to.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    golden
}

#[test]
fn all_attributes_are_kept() {
    let golden = copied("basic");
    let filesystem = Filesystem::open(golden.path()).unwrap();
    let copies = filesystem.walk("/").unwrap().skip(1).map(|entry| {
        let entry = entry.unwrap();
        let path = format!("copy{}", String::from_utf8(entry.path).unwrap());
        let path = golden.beside(&path);
        let copy = path.symlink_metadata().unwrap();
        (entry.inode, path, copy)
    });
    // All times are checked before anything is read.
    for (inode, path, copy) in copies.collect::<Vec<_>>() {
        let metadata = inode.metadata().unwrap();
        assert_eq!(times(&metadata), copy_times(&copy), "{}", path.display());
        let owner = (metadata.uid, metadata.gid);
        let kept = owner == (copy.uid(), copy.gid());
        assert!(kept || !is_root(), "{}", path.display());
        let mask = if kept { 0o7777 } else { 0o1777 };
        assert_eq!(metadata.mode & mask, copy.mode() & 0o7777 & mask, "{}", path.display());
        assert_eq!(metadata.mode & 0o170_000, copy.mode() & 0o170_000);
        if metadata.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            assert_eq!(inode.read_link().unwrap(), target.as_os_str().as_bytes());
        } else if metadata.is_file() {
            let content = inode.open().unwrap().read_all().unwrap();
            assert!(content == fs::read(&path).unwrap(), "{}", path.display());
            assert_eq!(u64::from(metadata.nlink), copy.nlink());
        }
    }
}

fn times(metadata: &Metadata) -> [(i64, i64); 2] {
    [metadata.accessed, metadata.modified].map(|time| (time.sec, i64::from(time.nsec)))
}

fn copy_times(copy: &fs::Metadata) -> [(i64, i64); 2] {
    [(copy.atime(), copy.atime_nsec()), (copy.mtime(), copy.mtime_nsec())]
}

#[test]
fn hard_links_holes_pipes_and_attributes_are_kept() {
    let golden = copied("basic");
    let at = |name: &str| golden.beside(&format!("copy/dir/{name}"));
    let inode = |name: &str| at(name).symlink_metadata().unwrap().ino();
    assert_eq!(inode("odd"), inode("below/odd too"));
    assert!(at("pipe").symlink_metadata().unwrap().file_type().is_fifo());
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("below/long"));
    let sector = at("sector").metadata().unwrap();
    assert_eq!(sector.mode() & 0o777, 0o711);

    let hole = fs::File::open(at("hole")).unwrap();
    assert_eq!(hole.metadata().unwrap().len(), 70_536);
    let start = rustix::fs::seek(&hole, SeekFrom::Data(0)).unwrap();
    assert!((4096..=65_536).contains(&start), "data starts at {start}: no hole was kept");

    let mut value = [0; 16];
    match rustix::fs::getxattr(at("inline"), c"user.colour", &mut value) {
        Ok(len) => assert_eq!(&value[..len], b"green"),
        Err(error) => println!("SKIPPED: user attributes are not kept here: {error}"),
    }
}

/// The sources of one call are one copy.
#[test]
fn hard_links_between_sources_are_kept() {
    let golden = Unpacked::new("basic");
    fs::create_dir(golden.beside("into")).unwrap();
    let into = golden.beside("into");
    let sources = ["/dir/odd", "/dir/below/odd too", into.to_str().unwrap()];
    verb("get", &golden.path(), &sources).good();
    let inode = |name: &str| into.join(name).metadata().unwrap().ino();
    assert_eq!(inode("odd"), inode("odd too"));
}

/// Two names of one inode with the same last component become one name in the copy.
#[test]
fn sources_with_one_inode_and_name_are_copied_once() {
    let made = Made::new();
    made.does("mkdir", &["/a", "/b"]);
    let filesystem = made.open_for_writing();
    filesystem.write("/a/f", b"content").unwrap();
    filesystem.hard_link("/a/f", "/b/f").unwrap();
    filesystem.close().unwrap();
    let into = made.at("into");
    fs::create_dir(&into).unwrap();
    verb("get", &made.image(), &["/a/f", "/b/f", into.to_str().unwrap()]).good();
    assert_eq!(fs::read(into.join("f")).unwrap(), b"content");
}

/// An owner that is not mapped in the user namespace is not kept, and the file is still copied.
#[test]
fn file_with_unmapped_owner_is_copied() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.write("/file", b"content").unwrap();
    filesystem.close().unwrap();
    made.does("chown", &["12:34", "/file"]);
    let mut alone = Command::new("unshare");
    alone.args(["--user", "--map-root-user"]);
    if !has_program("unshare") || !alone.arg("true").status().unwrap().success() {
        return skip("no namespaces of users");
    }
    let mut alone = Command::new("unshare");
    alone.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_userbtrfs"), "get"]);
    let ran = alone.arg(made.image()).arg("/file").arg(made.at("copy")).output().unwrap();
    assert!(String::from_utf8_lossy(&ran.stderr).contains("owner"), "{ran:?}");
    assert_eq!(fs::read(made.at("copy")).unwrap(), b"content");
}

/// Set-id bits are kept only if the owner is kept.
#[test]
fn set_id_bits_are_kept_with_their_owner() {
    let golden = Unpacked::new("special");
    let filesystem = Filesystem::open(golden.path()).unwrap();
    for mode in ["0", "777", "1777", "2755", "4755", "7777"] {
        let name = format!("/mode {mode}");
        let to = golden.beside(mode);
        verb("get -q", &golden.path(), &[&name, to.to_str().unwrap()]).good();
        let wanted = filesystem.metadata(&name).unwrap();
        let copy = to.metadata().unwrap();
        let kept = (copy.uid(), copy.gid()) == (wanted.uid, wanted.gid);
        assert!(kept || !is_root());
        let mask = if kept { 0o7777 } else { 0o1777 };
        assert_eq!(copy.mode() & 0o7777, wanted.mode & mask, "{name}");
    }
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    let mut editor = small();
    edit_item(&mut editor, inode(257), |item| {
        for (at, sec, nsec) in [(0x70, -1i64, 999_999_999), (0x88, 1_234_567_890, 123_456_789)] {
            item[at..at + 8].copy_from_slice(&sec.to_le_bytes());
            put_u32(item, at + 8, nsec);
        }
    });
    let bench = Bench::new(&editor);
    bench.verb("get -q", &["/", bench.at("copy").to_str().unwrap()]).good();
    let copy = bench.at("copy/small").metadata().unwrap();
    assert_eq!(copy_times(&copy), [(-1, 999_999_999), (1_234_567_890, 123_456_789)]);
}

/// Makes a file of 64 GiB that takes no space in the image: its data is a hole of the image file.
/// Copying it takes longer than sending a signal.
fn endless(bench: &Bench) {
    const LEN: u64 = 64 << 30;
    let mut editor = ImageEditor::open(&bench.image()).unwrap();
    let data = ChunkSpec::data();
    edit_leaf(&mut editor, TreeId::CHUNK, data.key(), |items| {
        let long = ChunkSpec { len: LEN, ..data };
        items.insert(long.key(), long.build());
    });
    edit_leaf(&mut editor, TreeId::FS, inode(LARGE), |items| {
        items.retain(|key, _| *key <= extent(LARGE, 0) || key.objectid > LARGE);
        items.insert(extent(LARGE, 0), ExtentSpec::plain(LARGE_DATA, LEN).build());
        // NODATASUM, and two names.
        let spec = InodeSpec { flags: 1, nlink: 2, ..InodeSpec::file(LEN) };
        items.insert(inode(LARGE), spec.build());
    });
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        put_name(items, ROOT, 8, b"again", (inode(LARGE), 1));
    });
}

/// Makes an image with such a file.
fn with_endless() -> Bench {
    let bench = Bench::new(&small());
    let image = fs::OpenOptions::new().write(true).open(bench.image()).unwrap();
    image.set_len((64 << 30) + (1 << 20)).unwrap();
    endless(&bench);
    bench
}

/// Starts `get` of it, and waits until it copies the file.
fn begun(bench: &Bench, option: Option<&str>, stderr: Stdio) -> (Child, Pid) {
    let mut get = command(["get"]);
    get.args(option).args([bench.image().as_path(), Path::new("/"), &bench.at("copy")]);
    let child = get.stderr(stderr).spawn().unwrap();
    let pid = begins(bench, &child);
    (child, pid)
}

/// Waits until a command has begun to copy the file.
fn begins(bench: &Bench, child: &Child) -> Pid {
    let begun = || bench.at("copy/large").metadata().is_ok_and(|copy| copy.len() > 0);
    let started = Instant::now();
    while !begun() && started.elapsed() < Duration::from_mins(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    Pid::from_child(child)
}

/// Starts a shell with `--read-only`, whose input stays open.
fn shell(bench: &Bench) -> (Child, ChildStdin) {
    let mut shell = command(["shell", "--read-only", bench.image().to_str().unwrap()]);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = shell.stderr(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

const STOPPED: &str = "userbtrfs: get: interrupted; incomplete files were removed";

#[test]
fn a_signal_ends_get_and_leaves_no_incomplete_file() {
    for signal in [Signal::INT, Signal::TERM] {
        let bench = with_endless();
        let (mut child, pid) = begun(&bench, Some("-q"), Stdio::piped());
        kill_process(pid, signal).unwrap();
        let signalled = Instant::now();
        // The status is that of the signal, so that the loop of a shell ends.
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert!(signalled.elapsed() < Duration::from_secs(30), "{:?}", signalled.elapsed());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("{STOPPED}\n"));
        let mode = bench.at("copy").metadata().unwrap().mode();
        assert_eq!(mode & 0o7777, 0o755, "directories get their attributes");
        for name in ["copy/large", "copy/again"] {
            assert!(bench.at(name).symlink_metadata().is_err(), "{name} is there");
        }
    }
}

#[test]
fn a_signal_ends_the_script_whose_copy_it_stops() {
    let bench = with_endless();
    let (child, mut input) = shell(&bench);
    let at = |name: &str| bench.at(name).display().to_string();
    let script = format!("get / {}\nget /small {}\n", at("copy"), at("next"));
    input.write_all(script.as_bytes()).unwrap();
    kill_process(begins(&bench, &child), Signal::INT).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()));
    assert_eq!(Ran::from(output).stderr, format!("{STOPPED}\n"));
    assert!(!bench.at("next").exists());
}

#[test]
fn a_signal_ends_a_shell_that_waits_also_after_a_copy() {
    let bench = Bench::new(&small());
    let (mut child, mut input) = shell(&bench);
    writeln!(input, "get -q / {}\nfind /", bench.at("copy").display()).unwrap();
    let mut found = BufReader::new(child.stdout.take().unwrap());
    found.read_line(&mut String::new()).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    drop(input);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
}

/// Returns the output of `get` on a terminal, after it was stopped for longer than it waits before
/// it shows progress; reads for at most `at_most`.
fn said_on_a_terminal(
    option: Option<&str>,
    at_most: Duration,
    is_awaited: impl Fn(&str) -> bool,
) -> String {
    let (mut terminal, stderr) = Terminal::new();
    let bench = with_endless();
    let (mut child, pid) = begun(&bench, option, stderr);
    kill_process(pid, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    kill_process(pid, Signal::CONT).unwrap();
    terminal.read_while(at_most, is_awaited);
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    terminal.read_while(Duration::from_secs(30), |said| !said.contains(STOPPED))
}

#[test]
fn progress_is_shown_on_a_terminal_by_files_and_bytes() {
    let is_shown = |said: &str| said.contains(" file") && said.contains("iB");
    let said = said_on_a_terminal(None, Duration::from_secs(30), |said| !is_shown(said));
    assert!(is_shown(&said), "{said}");
    let quiet = said_on_a_terminal(Some("-q"), Duration::from_millis(500), |_| true);
    assert_eq!(quiet.trim_end(), STOPPED);
}

/// The destination fills up, or does not support such a size.
#[test]
fn a_file_too_large_for_the_destination_is_reported_and_removed() {
    let mut editor = small();
    edit_item(&mut editor, inode(LARGE), |item| put_u64(item, 0x10, 1 << 63));
    let bench = Bench::new(&editor);
    assert_says(&bench.get_all("copy").bad(), &["copy/large: "]);
    assert!(!bench.at("copy/large").exists() && bench.at("copy/small").exists());
}

/// Every name of a file that cannot be read is removed.
#[test]
fn all_names_of_a_bad_file_are_removed() {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(LARGE), |items| {
        let spec = InodeSpec { nlink: 2, ..InodeSpec::file(45056) };
        items.insert(inode(LARGE), spec.build());
        let bad = ExtentSpec::plain(Logical(0x900_0000), 4096);
        items.insert(extent(LARGE, 40960), bad.build());
    });
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        put_name(items, ROOT, 8, b"again", (inode(LARGE), 1));
    });
    assert!(open(&editor).unwrap().read("/again").is_err());
    let bench = Bench::new(&editor);
    let said = bench.get_all("copy").bad();
    assert_says(&said, &["lies in no chunk"]);
    assert!(!bench.at("copy/large").exists() && !bench.at("copy/again").exists());
}

#[test]
fn json_reports_counts() {
    let bench = Bench::new(&small());
    let told =
        bench.verb("get -q --format json", &["/", bench.at("copy").to_str().unwrap()]).good();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((told["get"]["files"].as_u64(), told["get"]["errors"].as_u64()), (Some(3), Some(0)));
    assert_eq!(told["get"]["bytes"].as_u64(), Some(6 + 6 + 40960));
}

/// An inode without its INODE_REF is still copied, since names are read from the directory.
#[test]
fn a_file_without_its_back_reference_is_copied() {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(257), |items| {
        items.retain(|key, _| !(key.objectid == 257 && key.kind == userbtrfs::ItemKind::INODE_REF));
    });
    let bench = Bench::new(&editor);
    bench.verb("get -q", &["/", bench.at("copy").to_str().unwrap()]).good();
    assert_eq!(fs::read(bench.at("copy/small")).unwrap(), b"hello\n");
}

#[test]
fn file_that_stdout_is_gets_the_content_where_it_is() {
    let made = Made::new();
    let source = made.at("source");
    fs::write(&source, "content\n").unwrap();
    made.does("put", &[source.to_str().unwrap(), "/f"]);
    let file = made.at("file");
    fs::write(&file, "before\n").unwrap();
    let number = || fs::metadata(&file).unwrap().ino();
    let before = number();
    symlink("/dev/fd/1", made.at("link")).unwrap();
    for target in [Path::new("/dev/stdout"), &made.at("link")] {
        let out = fs::OpenOptions::new().append(true).open(&file).unwrap();
        let image = made.image();
        let words = ["get".as_ref(), image.as_os_str(), "/f".as_ref(), target.as_os_str()];
        let status = command(words).stdout(out).status().unwrap();
        assert!(status.success(), "{}", target.display());
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "before\ncontent\ncontent\n");
    assert_eq!(number(), before, "it is no new file");
}

#[test]
fn image_is_not_replaced_by_a_copy_out_of_it() {
    let made = Made::new();
    made.does("truncate -s 4", &["/src", "/image"]);
    let image = made.image();
    let dir = image.parent().unwrap().to_path_buf();
    symlink("image", made.at("link")).unwrap();
    fs::hard_link(&image, made.at("name")).unwrap();
    let len = fs::metadata(&image).unwrap().len();
    for (source, destination) in [("/src", "image"), ("/src", "link"), ("/src", "name"), ("/", ".")]
    {
        let ran = made.verb("get", &[source, dir.join(destination).to_str().unwrap()]);
        assert_says(&ran.bad(), &["is the image itself; skipped"]);
        assert_eq!(fs::metadata(&image).unwrap().len(), len, "{destination}");
    }
    assert!(made.at("src").is_file(), "the rest is copied");
    made.judge();
}
