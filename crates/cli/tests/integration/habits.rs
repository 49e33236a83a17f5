//! Verbs that change an image, with the options that people know from coreutils and btrfs-progs.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use userbtrfs::FileKind;

use crate::support::command::{Ran, command, verb};
use crate::support::made::Made;
use crate::support::{assert_says, pattern};

/// Makes files with these contents.
fn with_files(files: &[(&str, &str)]) -> Made {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    for (path, content) in files {
        let dir = &path[..path.rfind('/').unwrap()];
        filesystem.create_dir_all(dir, 0o755).unwrap();
        filesystem.write(path, content).unwrap();
    }
    filesystem.close().unwrap();
    made
}

fn read(made: &Made, path: &str) -> String {
    made.verb("cat", &[path]).good()
}

/// Runs a verb with this standard input.
fn with_input(made: &Made, words: &[&str], input: &[u8]) -> Ran {
    let image = made.image();
    let words = [&words[..1], &[image.to_str().unwrap()], &words[1..]].concat();
    let mut command = command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap().into()
}

#[test]
fn cp_has_the_options_of_coreutils() {
    let made = with_files(&[("/a", "a"), ("/b", "b"), ("/dir/a", "old"), ("/tree/a", "t")]);
    made.does("cp -n", &["/a", "/dir"]);
    assert_eq!(read(&made, "/dir/a"), "old");
    made.does("cp -f", &["/a", "/dir/a"]);
    assert_eq!(read(&made, "/dir/a"), "a");
    made.does("cp -t /dir", &["/b", "/tree/a"]);
    assert_eq!((read(&made, "/dir/a"), read(&made, "/dir/b")), ("t".into(), "b".into()));
    // With -n a tree gets only what is missing.
    made.does("rm", &["/dir/b"]);
    made.does("cp -rnT", &["/dir", "/tree"]);
    made.does("cp -rT", &["/tree", "/new"]);
    assert_eq!(made.paths(), ["/a", "/b", "/dir", "/dir/a", "/new", "/new/a", "/tree", "/tree/a"]);
    let said = made.verb("cp -T", &["/a", "/dir"]).bad();
    assert_says(&said, &["/dir: is a directory"]);
    assert_says(&made.verb("cp -T", &["/a", "/b", "/dir"]).bad(), &["extra operand '/dir'"]);
    assert_says(&made.verb("cp", &["/a"]).bad(), &["missing destination file operand after '/a'"]);
    let said = made.verb("cp -t /none", &["/a"]).bad();
    assert_says(&said, &["target directory '/none': no such file or directory"]);
    let said = made.verb("cp -t /b", &["/a"]).bad();
    assert_says(&said, &["target directory '/b': not a directory"]);
    made.judge();
}

#[test]
fn mv_has_the_options_of_coreutils() {
    let made = with_files(&[("/a", "a"), ("/b", "b"), ("/dir/a", "old")]);
    made.does("mv -n", &["/a", "/dir"]);
    assert_eq!((read(&made, "/a"), read(&made, "/dir/a")), ("a".into(), "old".into()));
    made.does("mv -nf", &["/a", "/dir"]);
    assert_eq!(read(&made, "/dir/a"), "a");
    made.does("mv -t /dir", &["/b"]);
    assert_eq!(made.paths(), ["/dir", "/dir/a", "/dir/b"]);
    made.does("mv", &["/dir/*", "/"]);
    assert_eq!(made.paths(), ["/a", "/b", "/dir"]);
    made.judge();
}

#[test]
fn ln_replaces_links_with_force() {
    let made = with_files(&[("/a", "a"), ("/b", "b"), ("/dir/x", "x")]);
    made.does("ln -s", &["a", "/link"]);
    assert_says(&made.verb("ln -s", &["b", "/link"]).bad(), &["/link: file exists"]);
    made.does("ln -sf", &["b", "/link"]);
    assert_eq!(read(&made, "/link"), "b");
    made.does("ln -f", &["/a", "/b"]);
    assert_eq!(read(&made, "/b"), "a");
    let said = made.verb("ln -f", &["/a", "/b"]).bad();
    assert_says(&said, &["'/a' and '/b' are the same file"]);
    // A link to itself would replace the content.
    made.does("truncate -s 3", &["/c"]);
    for paths in [["/c", "/c"], ["c", "/c"], ["./c", "/c"]] {
        let said = made.verb("ln -sf", &paths).bad();
        assert_says(&said, &["are the same file"]);
    }
    made.does("ln -sf", &["/b", "/a"]);
    assert_eq!(read(&made, "/a"), "a", "/b keeps the content");
    made.does("ln -f", &["/b", "/a"]);
    made.verb("ln -f", &["/none", "/b"]).bad();
    assert_eq!(read(&made, "/b"), "a", "nothing is removed before the link can be made");
    // A hard link cannot lead into another subvolume.
    made.verb("subvolume create", &["/sub"]).good();
    made.does("cp", &["/a", "/sub/inner"]);
    made.verb("ln -f", &["/sub/inner", "/b"]).bad();
    assert_eq!(read(&made, "/b"), "a", "nothing is removed if the link cannot be made");
    assert!(!made.paths().iter().any(|path| path.contains(".ln.")));
    // A link to a directory is that directory, unless -n is given.
    made.does("ln -sfn", &["dir", "/link"]);
    made.does("ln -s", &["a", "/link"]);
    made.does("ln -sfn", &["b", "/link"]);
    let filesystem = made.open();
    assert_eq!(filesystem.read_link("/dir/a").unwrap(), b"a");
    assert_eq!(filesystem.read_link("/link").unwrap(), b"b");
    drop(filesystem);
    made.does("ln -t /dir", &["/b"]);
    assert_eq!(read(&made, "/dir/b"), "a");
    assert_says(&made.verb("ln -sfT", &["a", "/dir"]).bad(), &["/dir: cannot overwrite directory"]);
    made.judge();
}

/// Makes two files and two directories of one name each, another file, and an empty directory.
fn with_namesakes() -> Made {
    let made = with_files(&[
        ("/a/log", "a"),
        ("/b/log", "b"),
        ("/c/other", "c"),
        ("/a/dir/x", "a"),
        ("/b/dir/x", "b"),
        ("/b/dir/y", "b"),
    ]);
    made.does("mkdir", &["/all"]);
    made
}

#[test]
fn source_of_the_same_name_does_not_replace_what_the_call_made() {
    let says = "/all/log: will not overwrite what was just created\n";
    for (words, prefix) in [
        ("mv", ""),
        ("cp", "cp: "),
        ("cp -a", "cp: "),
        ("cp --remove-destination", "cp: "),
        ("ln -f", ""),
        ("ln -sf", ""),
    ] {
        let made = with_namesakes();
        // A file that was there before the call is replaced.
        made.does("truncate -s 3", &["/all/log"]);
        let said = made.verb(words, &["/a/log", "/b/log", "/c/other", "/all"]).bad();
        assert_eq!(said, format!("userbtrfs: {prefix}{says}"), "{words}");
        assert_eq!(read(&made, "/all/log"), "a", "{words}");
        assert_eq!(read(&made, "/all/other"), "c", "{words}: the rest is done");
        assert_eq!(read(&made, "/b/log"), "b", "{words}");
        made.judge();
    }
    let made = with_namesakes();
    made.verb("mv", &["/[ab]/log", "/all"]).bad();
    assert_eq!((read(&made, "/all/log"), read(&made, "/b/log")), ("a".into(), "b".into()));
    // With -n it is skipped without an error.
    let made = with_namesakes();
    for words in ["cp -n", "mv -n"] {
        made.does(words, &["/a/log", "/b/log", "/all"]);
        assert_eq!((read(&made, "/all/log"), read(&made, "/b/log")), ("a".into(), "b".into()));
        made.does("rm", &["/all/log"]);
    }
}

#[test]
fn source_of_the_same_name_does_not_replace_what_get_and_put_made() {
    let made = with_namesakes();
    let host = made.at("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("log"), "old").unwrap();
    let text = |name: &str| host.join(name).to_str().unwrap().to_owned();
    let said = made.verb("get -q", &["/a/log", "/b/log", "/c/other", &text("")]).bad();
    let log = text("log");
    let says = "will not overwrite what was just created";
    assert_eq!(said, format!("userbtrfs: get: {log}: {says}\n"));
    assert_eq!(fs::read(&log).unwrap(), b"a");
    assert_eq!(fs::read(text("other")).unwrap(), b"c", "the rest is done");

    fs::create_dir(text("b")).unwrap();
    fs::write(text("b/log"), "b").unwrap();
    let said = made.verb("put", &[&log, &text("b/log"), &text("other"), "/all"]).bad();
    assert_eq!(said, format!("userbtrfs: put: /all/log: {says}\n"));
    assert_eq!((read(&made, "/all/log"), read(&made, "/all/other")), ("a".into(), "c".into()));
    made.judge();
}

#[test]
fn directories_of_the_same_name_are_merged_and_keep_their_first_files() {
    let made = with_namesakes();
    let said = made.verb("cp -r", &["/a/dir", "/b/dir", "/all"]).bad();
    assert_eq!(said, "userbtrfs: cp: /all/dir/x: will not overwrite what was just created\n");
    assert_eq!((read(&made, "/all/dir/x"), read(&made, "/all/dir/y")), ("a".into(), "b".into()));
    let said = made.verb("mv", &["/a/dir", "/b/dir", "/"]).bad();
    assert_eq!(said, "userbtrfs: /dir: directory not empty\n");
    // Sources that are one file do not replace each other.
    made.does("cp -r", &["/a/log", "/a/log", "/all"]);
    made.does("ln", &["/a/log", "/c/log"]);
    made.does("cp -a", &["/a/log", "/c/log", "/all"]);
    // A directory is never replaced by a file, nor a file by a directory.
    made.does("mkdir -p", &["/d/log"]);
    for words in ["cp -r", "mv"] {
        made.does("rm -r", &["/all/log"]);
        made.verb(words, &["/b/log", "/d/log", "/all"]).bad();
        assert_eq!(read(&made, "/all/log"), "b", "{words}");
    }
    made.judge();
}

#[test]
fn chmod_and_mkdir_take_modes_of_any_form() {
    let made = with_files(&[("/f", "")]);
    let mode = |path: &str| made.open().metadata(path).unwrap().mode & 0o7777;
    for (change, result) in [
        ("755", 0o755),
        ("-x", 0o644),
        ("=4755", 0o4755),
        ("u+rwX,g-w", 0o4755),
        ("-w", 0o4555),
        ("a=r", 0o444),
    ] {
        made.does("chmod", &[change, "/f"]);
        assert_eq!(mode("/f"), result, "{change}");
    }
    // As mkdir(1): a symbolic mode changes a=rwx.
    made.does("mkdir -m u=rwx", &["/one"]);
    made.does("mkdir -m go=", &["/two"]);
    made.does("mkdir -m 1700", &["/three"]);
    assert_eq!((mode("/one"), mode("/two"), mode("/three")), (0o777, 0o700, 0o1700));
    assert_eq!(made.verb("mkdir -m u=q", &["/four"]).code, Some(1));
    made.judge();
}

#[test]
fn rmdir_removes_empty_directories_only() {
    let made = with_files(&[("/full/f", ""), ("/a/b/c/f", "")]);
    made.does("rm", &["/a/b/c/f"]);
    assert_says(&made.verb("rmdir", &["/full"]).bad(), &["/full: directory not empty"]);
    made.does("rmdir --ignore-fail-on-non-empty", &["/full"]);
    assert_says(&made.verb("rmdir", &["/full/f"]).bad(), &["/full/f: not a directory"]);
    assert_says(&made.verb("rmdir", &["/none"]).bad(), &["/none: no such file"]);
    made.does("rmdir -p", &["/a/b/c"]);
    assert_eq!(made.paths(), ["/full", "/full/f"]);
    made.judge();
}

#[test]
fn rm_removes_empty_directories_and_refuses_dots() {
    let made = with_files(&[("/full/f", "f"), ("/dir/empty/f", ""), ("/f", "")]);
    made.does("rm", &["/dir/empty/f"]);
    assert_says(&made.verb("rm", &["/dir/empty"]).bad(), &["/dir/empty: is a directory"]);
    assert_eq!(made.verb("rm -dv", &["/dir/empty"]).good(), "removed directory '/dir/empty'\n");
    let said = made.verb("rm --dir", &["/full", "/f"]).bad();
    assert_eq!(said, "userbtrfs: /full: directory not empty\n");
    assert_eq!(made.paths(), ["/dir", "/full", "/full/f"]);
    for path in [".", "/dir/.", "/dir/../"] {
        let said = made.verb("rm -r", &[path]).bad();
        let dots = "refusing to remove '.' or '..' directory: skipping";
        assert_eq!(said, format!("userbtrfs: {dots} '{path}'\n"));
    }
    assert_says(&made.verb("rm", &["/dir/."]).bad(), &["/dir/.: is a directory"]);
    made.does("rm -rd", &["/full", "/dir"]);
    assert!(made.paths().is_empty());
    made.judge();
}

#[test]
fn touch_creates_files_and_sets_times() {
    let made = with_files(&[("/f", "x")]);
    let times = |path: &str| {
        let found = made.open().symlink_metadata(path).unwrap();
        ((found.accessed.sec, found.accessed.nsec), (found.modified.sec, found.modified.nsec))
    };
    made.does("touch", &["/new"]);
    assert_eq!(made.open().metadata("/new").unwrap().kind, FileKind::Regular);
    made.does("touch -c", &["/none"]);
    assert_eq!(made.paths(), ["/f", "/new"]);
    made.does("touch -d @5.25", &["/f"]);
    assert_eq!(times("/f"), ((5, 250_000_000), (5, 250_000_000)));
    made.does("touch -a -t 202001020304.05", &["/f"]);
    assert_eq!(times("/f"), ((1_577_934_245, 0), (5, 250_000_000)));
    made.does("touch -m", &["-d", "2021-01-01 00:00:00 +0100", "/f"]);
    assert_eq!(times("/f"), ((1_577_934_245, 0), (1_609_455_600, 0)));
    made.does("touch -d @-0.5", &["/new"]);
    assert_eq!(times("/new").1, (-1, 500_000_000));
    for (date, least) in [("-1 day", 86_400), ("-2 hours", 7200)] {
        made.does("touch", &["-d", date, "/new"]);
        let age = userbtrfs::now().sec - times("/new").1.0;
        assert!((least..least + 3600).contains(&age), "{date}: {age}");
    }
    made.does("touch -r /f", &["/new"]);
    assert_eq!(times("/new"), times("/f"));
    made.does("ln -s", &["f", "/link"]);
    made.does("touch -h -d @9", &["/link"]);
    assert_eq!((times("/link").1.0, times("/f").1.0), (9, 1_609_455_600));
    let said = made.verb("touch", &["-d", "some day", "/f"]).bad();
    assert_says(&said, &["invalid date format 'some day'"]);
    assert_says(&made.verb("touch", &["/no/file"]).bad(), &["/no/file: no such file"]);
    // The target of a link is created; an empty path is no path.
    made.does("ln -s", &["first", "/to first"]);
    made.does("ln -s", &["to first", "/again"]);
    made.does("touch", &["/again"]);
    assert_eq!(made.open().symlink_metadata("/first").unwrap().kind, FileKind::Regular);
    made.does("ln -s", &["loop", "/loop"]);
    made.verb("touch", &["/loop"]).bad();
    let before = made.open().metadata("/").unwrap().accessed;
    for (words, rest) in [("touch -d @7", &[""][..]), ("chmod", &["700", ""])] {
        assert_says(&made.verb(words, rest).bad(), &["no such file or directory"]);
    }
    let root = made.open().metadata("/").unwrap();
    assert_eq!((root.accessed, root.mode & 0o7777), (before, 0o755));
    made.judge();
}

#[test]
fn owners_have_names_of_the_machine_or_the_image() {
    let passwd = "ann:x:4242:4243::/srv/ann:/bin/sh\n";
    let group = "staff:x:5050:ann\n";
    let made = with_files(&[("/etc/passwd", passwd), ("/etc/group", group), ("/f", "")]);
    let owner = |path: &str| {
        let found = made.open().metadata(path).unwrap();
        (found.uid, found.gid)
    };
    made.does("chown --names-from-image", &["ann:staff", "/f"]);
    assert_eq!(owner("/f"), (4242, 5050));
    made.does("chown", &["root:root", "/f"]);
    assert_eq!(owner("/f"), (0, 0));
    made.does("chown --names-from-image", &["ann:", "/f"]);
    assert_eq!(owner("/f"), (4242, 4243));
    assert_says(&made.verb("chown", &["ann", "/f"]).bad(), &["invalid user: 'ann'"]);
    let said = made.verb("chown --names-from-image", &[":ann", "/f"]).bad();
    assert_says(&said, &["invalid group: 'ann'"]);
    let source = made.at("source");
    fs::write(&source, "x").unwrap();
    made.does("put --owner ann:staff --names-from-image", &[source.to_str().unwrap(), "/put"]);
    assert_eq!(owner("/put"), (4242, 5050));
    made.judge();
    // Only the file with a name that is given is needed.
    made.does("rm", &["/etc/group"]);
    made.does("chown --names-from-image", &["ann", "/f"]);
    let said = made.verb("chown --names-from-image", &[":staff", "/f"]).bad();
    assert_says(&said, &["/etc/group: no such file in the image"]);
    made.does("rm", &["/etc/passwd"]);
    made.does("chown --names-from-image", &["7:8", "/f"]);
    let said = made.verb("chown --names-from-image", &["ann", "/f"]).bad();
    assert_says(&said, &["/etc/passwd: no such file in the image"]);
    let image = made.at("owned");
    verb("mkfs --owner root:root --size 128M", &image, &[]).good();
    verb("mkfs -f --owner 7:8", &image, &[]).good();
    let found = userbtrfs::Filesystem::open(&image).unwrap().metadata("/").unwrap();
    assert_eq!((found.uid, found.gid), (7, 8));
}

#[test]
fn standard_input_is_put_into_a_file() {
    let made = with_files(&[("/dir/f", "old"), ("/long", "a long content")]);
    let content = pattern(3_000_001);
    assert_eq!(with_input(&made, &["put", "-", "/new"], &content).good(), "");
    assert!(made.open().read("/new").unwrap() == content);
    with_input(&made, &["put", "-", "/long"], b"short").good();
    assert_eq!(read(&made, "/long"), "short");
    with_input(&made, &["put", "--owner", "7", "-", "/empty"], b"").good();
    let found = made.open().metadata("/empty").unwrap();
    assert_eq!((found.size, found.uid), (0, 7));
    made.does("ln -s", &["long", "/link"]);
    with_input(&made, &["put", "-", "/link"], b"through").good();
    assert_eq!(read(&made, "/long"), "through");
    assert_says(&with_input(&made, &["put", "-", "/dir"], b"x").bad(), &["/dir: is a directory"]);
    let said = with_input(&made, &["put", "-", "/no/file"], b"x").bad();
    assert_says(&said, &["/no/file: no such file"]);
    made.judge();
}

#[test]
fn get_and_put_accept_the_options_of_cp() {
    let made = with_files(&[("/tree/f", "f")]);
    let out = made.at("out");
    let out = out.to_str().unwrap();
    made.verb("get -r -q", &["/tree", out]).good();
    made.verb("put -a", &[out, "/again"]).good();
    made.verb("put -rR --archive", &[out, "/more"]).good();
    assert_eq!(read(&made, "/again/f") + &read(&made, "/more/f"), "ff");
}

#[test]
fn option_that_is_repeated_has_the_last_value() {
    let made = with_files(&[("/dir/a", "a"), ("/dir/b", "bc")]);
    let listed = made.verb("ls -la -l -q", &["/dir", "-a", "-q"]).good();
    assert_eq!(listed.lines().count(), 2);
    made.does("truncate -s 5 -s 1", &["/dir/b"]);
    assert_eq!(read(&made, "/dir/b"), "b");
    // All values of a list count.
    let copy = made.at("copy");
    made.verb("get -q -q --exclude a --exclude b", &["/dir", copy.to_str().unwrap()]).good();
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 0);
    made.does("rm -rf -f -r", &["/dir", "-r"]);
    assert!(made.paths().is_empty());
}

#[test]
fn mkfs_has_the_options_of_btrfs_progs() {
    let made = Made::new();
    let image = made.at("new");
    let mkfs = |options: &[&str]| verb("mkfs -q", &image, options);
    mkfs(&["-b", "0.125G", "-O", "block-group-tree", "-K"]).good();
    assert_eq!(fs::metadata(&image).unwrap().len(), 128 << 20);
    let dump = verb("dump super", &image, &[]).good();
    let is_it = |line: &str| line.starts_with("compat_ro_flags") && line.ends_with("0xb");
    assert!(dump.lines().any(is_it), "{dump}");
    assert_eq!(mkfs(&["-f", "-K", "--discard"]).code, Some(1));
}

#[test]
fn mkfs_with_force_replaces_an_image_by_one_of_another_size() {
    let made = with_files(&[("/f", "content")]);
    let image = made.image();
    let before = fs::read(&image).unwrap();
    let said = made.verb("mkfs", &["--size", "128M"]).bad();
    assert_says(&said, &["image: file exists", "use --force to overwrite"]);
    // A mistake in the options, or another user of the image, is found before it is replaced.
    made.verb("mkfs -f --size 1M", &[]).bad();
    made.verb("mkfs -f --size 128M -n 5000", &[]).bad();
    let open = made.open_for_writing();
    let said = made.verb("mkfs -f --size 128M", &[]).bad();
    assert_says(&said, &["image"]);
    open.abandon();
    assert!(fs::read(&image).unwrap() == before, "the image stays as it was");
    for (size, len) in [("128M", 128 << 20), ("1.5G", 3 << 29)] {
        made.verb("mkfs -q -f", &["--size", size]).good();
        assert_eq!(fs::metadata(&image).unwrap().len(), len);
        assert!(made.paths().is_empty());
        made.judge();
    }
}

#[test]
fn mkfs_with_force_that_fails_a_check_keeps_the_image() {
    let made = with_files(&[("/f", "content")]);
    let image = made.image();
    let before = fs::read(&image).unwrap();
    let dir = made.at("dir");
    let large = dir.join("large");
    let none = made.at("none");
    let label = "x".repeat(256);
    fs::create_dir(&dir).unwrap();
    fs::write(&large, vec![1; 151 << 20]).unwrap();
    let [dir, large, none] = [&dir, &large, &none].map(|path| path.to_str().unwrap());
    let fails: [(&[&str], &str); 8] = [
        (&["150M", "--rootdir", dir], "not enough space"),
        (&["300M", "-d", "dup", "--rootdir", dir], "not enough space"),
        (&["128M", "--rootdir", none], "none: No such file"),
        (&["128M", "--rootdir", large], "large: not a directory"),
        (&["128M", "-L", &label], "the label has 256 bytes"),
        (&["128M", "-O", "no-such"], "unknown feature no-such"),
        (&["128M", "--offset", "4096"], "--offset excludes a new size"),
        (&["15E"], "file too large"),
    ];
    for (options, why) in fails {
        assert_says(&made.verb("mkfs -f", &[&["-b"], options].concat()).bad(), &[why]);
        assert!(fs::read(&image).unwrap() == before, "{options:?}");
    }
}

/// A limit of file sizes refuses on every host what the maximum of a host refuses.
#[test]
fn mkfs_with_force_keeps_an_image_whose_new_size_the_host_refuses() {
    let made = with_files(&[("/f", "content")]);
    let image = made.image();
    let before = fs::read(&image).unwrap();
    let link = made.at("link");
    fs::hard_link(&image, &link).unwrap();
    fs::create_dir(made.at("dir")).unwrap();
    for options in ["-b 20T", "-b 7.9E", "-b 20T -r dir", "-b 20T --discard"] {
        let script = format!("ulimit -f 800000; exec \"$0\" mkfs -f {options} image");
        let mut bash = Command::new("bash");
        bash.args(["-c", &script, env!("CARGO_BIN_EXE_userbtrfs")]).current_dir(made.at(""));
        let said = Ran::from(bash.stdin(Stdio::null()).output().unwrap()).bad();
        assert_says(&said, &["image: File too large"]);
        assert!(fs::read(&image).unwrap() == before, "{options}");
    }
    // The file itself is used again, so that its other names hold the new filesystem.
    made.verb("mkfs -q -f", &["-b", "1G", "-L", "new"]).good();
    assert_eq!(fs::metadata(&link).unwrap().len(), 1 << 30);
    assert!(made.paths().is_empty());
    made.judge();
}
