//! `ls`, `find`, `tree`, `stat` and `getfattr` with the options that people know from coreutils,
//! findutils and attr.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use userbtrfs_testkit::test_env::{has_program, until};

use crate::support::assert_says;
use crate::support::command::{command, verb};
use crate::support::made::Made;

/// A filesystem with a few files: `/a/big`, `/a/new`, `/a/old`, `/a/.hidden`, `/a/sub/x.txt` and
/// `/link`.
fn made() -> Made {
    let made = Made::new();
    made.does("mkdir -p", &["/a/sub"]);
    made.does("truncate -s 0", &["/a/new", "/a/.hidden", "/a/sub/x.txt"]);
    made.does("truncate -s 1.5k", &["/a/big"]);
    made.does("truncate -s 7", &["/a/old"]);
    made.does("ln -s", &["a/big", "/link"]);
    made.does("touch -d @1000000000", &["/a/old", "/a/sub"]);
    made.does("touch -d @1500000000", &["/a/big"]);
    made.does("touch -d @1700000000", &["/a/new"]);
    made
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn ls_sorts_by_name_time_and_size() {
    let made = made();
    let list = |words: &str| made.verb(words, &["/a"]).good();
    assert_eq!(list("ls"), "big\nnew\nold\nsub\n");
    assert_eq!(list("ls -1r"), "sub\nold\nnew\nbig\n");
    assert_eq!(list("ls -A"), ".hidden\nbig\nnew\nold\nsub\n");
    assert_eq!(list("ls -t"), "new\nbig\nold\nsub\n");
    assert_eq!(list("ls -tr"), "sub\nold\nbig\nnew\n");
    assert_eq!(list("ls -S"), "big\nsub\nold\nnew\n");
    // The last of the two options counts.
    assert_eq!(list("ls -St"), list("ls -t"));
    assert_eq!(list("ls -d"), "/a\n");
    assert!(list("ls -ldh").contains("drwxr-xr-x"));
    assert!(list("ls -lh").contains(" 1.5K "));
    made.does("truncate -s 1048575", &["/a/big"]);
    assert!(list("ls -lh").contains(" 1.0M "));
}

#[test]
fn ls_lists_files_before_directories() {
    let made = made();
    assert_eq!(
        made.verb("ls", &["/a/sub", "/link", "/a/old"]).good(),
        "/a/old\n/link\n\n/a/sub:\nx.txt\n"
    );
    assert_eq!(made.verb("ls -d", &["/a/sub", "/link"]).good(), "/a/sub\n/link\n");
}

#[test]
fn ls_of_a_pattern_heads_each_of_several_directories() {
    let made = made();
    made.does("mkdir -p", &["/a/more/y"]);
    assert_eq!(made.verb("ls", &["/a/[ms]*"]).good(), "/a/more:\ny\n\n/a/sub:\nx.txt\n");
    assert_eq!(made.verb("ls", &["/a/s*"]).good(), "x.txt\n");
}

#[test]
fn quoted_wildcards_match_names_in_the_image() {
    let made = made();
    assert_eq!(made.verb("ls -d", &["/a/*"]).good(), "/a/big\n/a/new\n/a/old\n/a/sub\n");
    assert_eq!(made.verb("ls -d", &["/*/[bn]*", "/a/.h*"]).good(), "/a/.hidden\n/a/big\n/a/new\n");
    assert_eq!(made.verb("ls -d", &["/a/*/"]).good(), "/a/sub/\n");
    assert_eq!(made.verb("ls", &["*/*/?.txt"]).good(), "a/sub/x.txt\n");
    assert_eq!(made.verb("ls -d", &["/a/[[:lower:]][^[:space:]]g"]).good(), "/a/big\n");
    assert_says(&made.verb("ls", &["/a/*.none"]).bad(), &["/a/*.none: no such file"]);
    // A name with such characters is that name.
    made.does("truncate -s 0", &["/a/*"]);
    assert_eq!(made.verb("ls", &["/a/*"]).good(), "/a/*\n");
    made.does("rm", &["/a/*"]);
    assert_eq!(made.verb("ls", &["/a"]).good(), "big\nnew\nold\nsub\n");
    made.does("rm", &["/a/[no]*"]);
    assert_eq!(made.verb("ls", &["/a"]).good(), "big\nsub\n");
    let copies = made.at("copies");
    std::fs::create_dir(&copies).unwrap();
    made.verb("get", &["/a/*g", "/a/s*", copies.to_str().unwrap()]).good();
    assert!(copies.join("big").exists() && copies.join("sub/x.txt").exists());
}

#[test]
fn find_has_the_predicates_of_findutils() {
    let made = made();
    let find = |predicates: &[&str]| {
        let found = made.verb("find", &[&["/"], predicates].concat()).good();
        let mut found: Vec<_> = found.lines().map(str::to_owned).collect();
        found.sort();
        found.join(" ")
    };
    assert_eq!(find(&["-name", "*.txt"]), "/a/sub/x.txt");
    assert_eq!(find(&["-iname", "X.TXT"]), "/a/sub/x.txt");
    assert_eq!(find(&["-name", "*i*"]), "/a/.hidden /a/big /link");
    assert_eq!(find(&["-type", "d"]), "/ /a /a/sub");
    assert_eq!(find(&["-type", "l,d", "-maxdepth", "1"]), "/ /a /link");
    assert_eq!(find(&["-mindepth", "2", "-type", "f", "-path", "*/sub/*"]), "/a/sub/x.txt");
    assert_eq!(find(&["-empty", "-type", "f", "-name", "n*"]), "/a/new");
    assert_eq!(find(&["-name", "*", "-name", "*.txt", "-name", "x*"]), "/a/sub/x.txt");
    assert_eq!(find(&["-type", "f,d", "-type", "d,l"]), "/ /a /a/sub");
    assert_eq!(find(&["!", "-name", "*i*", "-type", "f"]), "/a/new /a/old /a/sub/x.txt");
    assert_eq!(find(&["-not", "-type", "f", "!", "-path", "/a*"]), "/ /link");
    assert_eq!(find(&["-type", "f", "!", "-empty", "!", "!", "-iname", "B*"]), "/a/big");
    made.does("touch", &["/a/-x"]);
    assert_eq!(find(&["-name", "-x"]), "/a/-x");
    assert_eq!(find(&["-name", "[[:punct:]]*[![:upper:]]", "-type", "f"]), "/a/-x /a/.hidden");
    for refused in [&["(", "-name", "x", ")"][..], &["!", "/a"], &["!"], &["-type", "x"]] {
        let ran = made.verb("find", &[&["/"], refused].concat());
        assert_eq!((ran.code, &ran.stdout[..]), (Some(1), &b""[..]), "{refused:?}");
    }
    let ended = made.verb("find", &["/a/sub", "/link", "-print0"]).good();
    assert_eq!(ended, "/a/sub\0/a/sub/x.txt\0/link\0");
    assert_eq!(made.verb("--format json find", &["/link"]).good().matches("symbolic").count(), 1);
}

#[test]
fn find_and_tree_stay_in_one_subvolume() {
    let made = Made::new();
    made.does("mkdir", &["/dir"]);
    let filesystem = made.open_for_writing();
    drop(filesystem.open_dir("/dir").unwrap().create_subvolume(b"sub", 0o755).unwrap());
    filesystem.create_dir("/dir/sub/below", 0o755).unwrap();
    filesystem.close().unwrap();
    assert!(made.verb("find", &["/"]).good().contains("below"));
    for option in ["-x", "-xdev", "-mount"] {
        assert_eq!(made.verb("find", &["/", option]).good(), "/\n/dir\n/dir/sub\n");
    }
    assert!(made.verb("tree", &["/"]).good().contains("below"));
    assert!(!made.verb("tree -x", &["/"]).good().contains("below"));
    made.does("cp -rx", &["/dir", "/copy"]);
    assert_eq!(made.verb("find", &["/copy"]).good(), "/copy\n/copy/sub\n");
}

/// Returns a tree with the characters that draw its lines, given in ASCII.
fn drawn(text: &str) -> String {
    let text = text.replace("|--", "\u{251c}\u{2500}\u{2500}");
    let text = text.replace("`--", "\u{2514}\u{2500}\u{2500}");
    text.replace('|', "\u{2502}")
}

#[test]
fn tree_draws_levels() {
    let made = made();
    let expected = "/\n|-- a\n|   |-- big\n|   |-- new\n|   |-- old\n|   `-- sub\n\
                    |       `-- x.txt\n\
                    `-- link -> a/big\n\n2 directories, 5 files\n";
    assert_eq!(made.verb("tree", &[]).good(), drawn(expected));
    let dirs = made.verb("tree -d", &["/"]).good();
    assert_eq!(dirs, drawn("/\n`-- a\n    `-- sub\n\n2 directories\n"));
    let level = made.verb("tree -a -L 1", &["/a"]).good();
    assert_eq!(lines(&level)[1], drawn("|-- .hidden"));
    assert_eq!(lines(&level).last(), Some(&"1 directory, 4 files"));
    let document: Value =
        serde_json::from_str(&made.verb("--format json tree", &["/a/sub"]).good()).unwrap();
    assert_eq!(document["tree"][1]["path"], "/a/sub/x.txt");
    assert_eq!(document["tree"][1]["depth"], 1);
}

#[test]
fn stat_prints_what_a_format_asks_for() {
    let made = made();
    made.does("chown", &["0:0", "/a/big"]);
    made.does("chmod", &["4751", "/a/big"]);
    let stat = |format: &str| made.verb("stat", &["/a/big", "-c", format]).good();
    assert_eq!(stat("%n %s %a %A"), "/a/big 1536 4751 -rwsr-x--x\n");
    assert_eq!(stat("%F|%h|%u|%g|%U|%G|%%"), "regular file|1|0|0|root|root|%\n");
    assert_eq!(stat("%X %Y"), "1500000000 1500000000\n");
    assert_eq!(stat("%y"), "2017-07-14 02:40:00.000000000 +0000\n");
    assert_eq!(stat("[%6s][%-6s][%06s]"), "[  1536][1536  ][001536]\n");
    assert_eq!(
        stat("%f %i"),
        format!("89e9 {}\n", made.open().lookup("/a/big").unwrap().id().number)
    );
    let two = made.verb(r"stat --printf=%s\n%N\n", &["/a/old", "/link"]).good();
    assert_eq!(two, "7\n'/a/old'\n5\n'/link' -> 'a/big'\n");
    assert_eq!(made.verb("stat -L -c %s", &["/link"]).good(), "1536\n");
    assert_eq!(made.verb("stat -c %q", &["/link"]).code, Some(1));
    // The option of coreutils, and the one of all verbs.
    assert_eq!(made.verb("stat --format=%s", &["/a/big"]).good(), "1536\n");
    assert_eq!(made.verb("stat", &["/a/big", "--format", "-%s"]).good(), "-1536\n");
    let document = made.verb("--format=json stat --format json", &["/a/big"]).good();
    assert_eq!(serde_json::from_str::<Value>(&document).unwrap()["stat"][0]["size"], 1536);
}

/// Compares with what stat(1) prints of the same file.
#[test]
fn stat_fills_formats_as_coreutils_does() {
    if !has_program("stat") {
        return;
    }
    let made = Made::new();
    let file = made.at("file");
    std::fs::write(&file, "content").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4751)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(981_173_106, 789_012_345);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    made.does("put", &[file.to_str().unwrap(), "/"]);
    let theirs = |option: &str, format: &str| {
        let mut stat = std::process::Command::new("stat");
        stat.args([option, format, "file"]).current_dir(file.parent().unwrap()).env("TZ", "UTC0");
        stat.output().unwrap().stdout
    };
    for format in [
        "%#a|% s|%+5s|%.3Y|%r|%R|%Hr|%Lr|%#f|%.Y|%.12Y|%20.3Y|%-20.3Y|%020.3Y",
        "%+.3Y|%.2n|%10.2n|%.3s|%8.5s|%-8.5s|%08.5s|%05n|%-05a|%8A|%.3A|%+a|%#06a|%08F|%y",
    ] {
        let ours = made.verb("stat", &["file", "-c", format]).stdout;
        assert_eq!(ours, theirs("-c", format), "{format}");
    }
    // It is inline; Linux counts the sector.
    assert_eq!(made.verb("stat", &["file", "-c", "%b %B"]).good(), "8 512\n");
    let format = r"\101\x41\e\v\a\b\f\r\t\1012\0101\xff%s\x25s\\\045\n";
    let ours = made.verb("stat", &["file", "--printf", format]).stdout;
    assert_eq!(ours, theirs("--printf", format));
}

#[test]
fn times_are_shown_in_the_zone_of_the_environment() {
    let made = made();
    let shown = |zone: &str| {
        let image = made.image();
        let words = ["stat", "-c", "%y", image.to_str().unwrap(), "/a/new"];
        let ran = command(words).env("TZ", zone).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    assert_eq!(shown("UTC0"), "2023-11-14 22:13:20.000000000 +0000\n");
    assert_eq!(shown("<+0545>-5:45"), "2023-11-15 03:58:20.000000000 +0545\n");
    assert_eq!(shown("EST5EDT,M3.2.0,M11.1.0"), "2023-11-14 17:13:20.000000000 -0500\n");
}

#[test]
fn getfattr_shows_whole_trees() {
    let made = made();
    made.does("setfattr", &["-n", "user.k", "-v", "1", "/a/big"]);
    made.does("setfattr", &["-n", "user.k", "-v", "2", "/a/sub/x.txt"]);
    let all = made.verb("getfattr -R -d", &["/"]).good();
    assert_says(&all, &["# file: /a/big\nuser.k=\"1\"\n", "# file: /a/sub/x.txt\nuser.k=\"2\"\n"]);
    assert_eq!(all.matches("# file").count(), 2, "the link is not followed");
    let named = made.verb("getfattr -R -n user.k", &["/a/sub"]);
    assert_eq!(named.code, Some(1));
    assert_says(&String::from_utf8(named.stdout).unwrap(), &["# file: /a/sub/x.txt"]);
    assert_says(&named.stderr, &["/a/sub: no such attribute"]);
}

#[test]
fn json_tells_bytes_from_text_that_looks_like_their_escape() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let root = filesystem.root();
    root.create(b"\xff", 0o644).unwrap();
    root.create(br"\xff", 0o644).unwrap();
    drop(root);
    filesystem.close().unwrap();
    let document: Value = serde_json::from_str(&made.verb("--format json ls", &[]).good()).unwrap();
    let [text, bytes] = &document["ls"].as_array().unwrap()[..] else { panic!("{document}") };
    assert_eq!((&text["name"], &bytes["name"]), (&r"\xff".into(), &r"\xff".into()));
    assert_eq!((&text["name_hex"], &bytes["name_hex"]), (&Value::Null, &"ff".into()));
    assert_eq!(bytes["path_hex"], "2fff");
    let found: Value = serde_json::from_str(&made.verb("--format json find", &[]).good()).unwrap();
    let marked = found["find"].as_array().unwrap().iter().filter(|it| it["path_hex"] == "2fff");
    assert_eq!(marked.count(), 1);
}

#[test]
fn json_of_dumps_has_a_header() {
    let made = Made::new();
    for (words, name) in [("dump super", "dump-super"), ("dump tree", "dump-tree")] {
        let text = made.verb(&format!("--format json {words}"), &[]).good();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["__header"]["version"], "1");
        assert!(document[name].is_object() || document[name].is_array(), "{words}");
    }
}

/// `df` of a mount point shows the use of space as df(1) does.
#[test]
fn df_shows_a_mount() {
    let Some(site) = crate::support::site::Site::new() else { return };
    site.mount(&[]).good();
    let point = site.point();
    let shown = crate::support::command::run(["df", point.to_str().unwrap()]).good();
    assert_says(&shown, &["Filesystem", "256M", "% ", point.to_str().unwrap()]);
    let raw = crate::support::command::run(["df", "-b", point.to_str().unwrap()]).good();
    assert_says(&raw, &["268435456"]);
    // A file stands for its mount, unless it is an image itself.
    std::fs::write(point.join("file"), "content").unwrap();
    let of_file = crate::support::command::run(["df", point.join("file").to_str().unwrap()]).good();
    assert_says(&of_file, &["Filesystem", point.to_str().unwrap()]);
    let inner = point.join("inner");
    verb("mkfs -q", &inner, &["--size", "128M"]).good();
    assert_says(&verb("df", &inner, &[]).good(), &["Data, single: total="]);
    until("nobody to use it", || {
        std::process::Command::new("umount").arg(&point).status().unwrap().success()
    });
    let said = crate::support::command::run(["df", point.to_str().unwrap()]).bad();
    assert_says(&said, &["is a directory"]);
    site.judge();
}

#[test]
fn du_prints_raw_names_before_nul() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    filesystem.root().create(b"a\n\xff", 0o644).unwrap();
    filesystem.close().unwrap();
    assert_eq!(made.verb("du -c0", &["/a*"]).stdout, b"0\t/a\n\xff\x000\ttotal\0");
    assert_eq!(made.verb("du", &["/a*"]).stdout, b"0\t/a\\n\\xff\n");
}

/// Compares with what du(1) prints in a mount of the same image.
#[test]
fn du_shows_what_coreutils_show() {
    let Some(site) = crate::support::site::Site::new() else { return };
    let made = &site.made;
    made.does("mkdir -p", &["/a/deep/er", "/b"]);
    for (path, size) in [("/a/f", 5000), ("/a/deep/g", 3_000_000), ("/b/small", 3)] {
        let source = made.at("source");
        std::fs::write(&source, crate::support::pattern(size)).unwrap();
        made.does("put", &[source.to_str().unwrap(), path]);
    }
    made.does("ln", &["/a/f", "/b/again"]);
    made.does("ln -s", &["a", "/link"]);
    made.does("truncate -s 1G", &["/b/hole"]);
    let words = [
        "du",
        "du -a",
        "du -s",
        "du -sc",
        "du -d 1 -h",
        "du -ah --si",
        "du -am",
        "du -ak",
        "du -acl",
    ];
    let paths = [
        &["."][..],
        &["a", "b"],
        &["b", "a"],
        &["link", "a/f"],
        &["a", "a"],
        &["b/small", "b/small", "b"],
        &["a", "a/deep"],
        &["a/deep", "a", "."],
    ];
    let lines = |text: &str| {
        // The order of the entries of a directory is not that of names.
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let ours: Vec<_> = words
        .iter()
        .flat_map(|words| paths.map(|paths| lines(&made.verb(words, paths).good())))
        .collect();
    // If files can be changed, those without data have a block.
    site.mount(&["-o", "ro"]).good();
    let all = words.iter().flat_map(|words| paths.map(|paths| (words, paths)));
    for ((words, paths), ours) in all.zip(ours) {
        let mut du = std::process::Command::new("du");
        du.args(words.split(' ').skip(1)).args(paths).current_dir(site.point());
        let theirs = String::from_utf8(du.output().unwrap().stdout).unwrap();
        assert_eq!(ours, lines(&theirs), "{words} {paths:?}");
    }
    site.umount();
    let apparent = made.verb("du -ab", &["/b", "/a/f"]).good();
    assert_eq!(lines(&apparent).last().unwrap(), "5000\t/b/again");
    let text = made.verb("--format json du -sc --apparent-size", &["/b"]).good();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["du"][0]["path"], "/b");
    assert_eq!(document["du"][1]["total"], 5000 + 3 + (1_u64 << 30));
    site.judge();
}
