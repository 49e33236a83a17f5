//! `-v`: verbs print each completed step on stdout, in the format of coreutils.

use std::fs;

use crate::support::assert_says;
use crate::support::made::Made;

/// Runs a verb with `-v`, and returns the lines that it prints.
#[track_caller]
fn steps(made: &Made, words: &str, rest: &[&str]) -> Vec<String> {
    let ran = made.verb(words, rest);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn mkdir_prints_each_new_directory() {
    let made = Made::new();
    assert_eq!(steps(&made, "mkdir -v", &["/a"]), ["mkdir: created directory '/a'"]);
    let both = ["mkdir: created directory '/a/b'", "mkdir: created directory '/a/b/c'"];
    assert_eq!(steps(&made, "mkdir -v -p", &["/a/b/c/", "/a"]), both);
    let ran = made.verb("mkdir -v", &["/a", "d"]);
    assert_eq!((ran.code, &ran.stdout[..]), (Some(1), &b"mkdir: created directory 'd'\n"[..]));
    assert!(steps(&made, "mkdir -v --format json", &["/e"]).is_empty());
    assert!(steps(&made, "mkdir -v -q", &["/f"]).is_empty());
}

#[test]
fn mv_prints_both_names() {
    let made = Made::new();
    made.does("mkdir", &["/a", "/b"]);
    made.does("truncate -s 0", &["/f"]);
    assert_eq!(steps(&made, "mv -v", &["/f", "/a"]), ["renamed '/f' -> '/a/f'"]);
    assert_eq!(steps(&made, "mv -v", &["/a", "/c"]), ["renamed '/a' -> '/c'"]);
    assert_eq!(steps(&made, "mv -v --exchange", &["/b", "/c"]), ["exchanged '/b' <-> '/c'"]);
    let ran = made.verb("mv -v", &["/none", "/a"]);
    assert_eq!((ran.code, &ran.stdout[..]), (Some(1), &b""[..]));
}

#[test]
fn rm_prints_what_was_removed() {
    let made = Made::new();
    made.does("mkdir -p", &["/a/b"]);
    made.does("truncate -s 0", &["/a/b/f", "/g"]);
    let ran = made.verb("rm -v", &["/a", "/g"]);
    assert_eq!((ran.code, &ran.stdout[..]), (Some(1), &b"removed '/g'\n"[..]));
    let lines = ["removed '/a/b/f'", "removed directory '/a/b'", "removed directory '/a'"];
    assert_eq!(steps(&made, "rm -r -v", &["/a"]), lines);
    assert!(steps(&made, "rm -r -f -v", &["/a"]).is_empty());
    assert!(made.paths().is_empty());
}

#[test]
fn chmod_prints_old_and_new_mode() {
    let made = Made::new();
    made.does("mkdir", &["/a"]);
    made.does("truncate -s 0", &["/a/f"]);
    let line = "mode of '/a/f' changed from 0644 (rw-r--r--) to 0600 (rw-------)";
    assert_eq!(steps(&made, "chmod -v", &["600", "/a/f"]), [line]);
    let lines = [
        "mode of '/a' changed from 0755 (rwxr-xr-x) to 0700 (rwx------)",
        "mode of '/a/f' retained as 0600 (rw-------)",
    ];
    assert_eq!(steps(&made, "chmod -v -R", &["go=", "/a"]), lines);
    let line = "mode of '/a/f' changed from 0600 (rw-------) to 4610 (rwS--x---)";
    assert_eq!(steps(&made, "chmod -v", &["4610", "/a/f"]), [line]);
}

#[test]
fn setfattr_prints_attribute_and_path() {
    let made = Made::new();
    made.does("truncate -s 0", &["/f", "/g"]);
    let set = ["set attribute 'user.a' of '/f'", "set attribute 'user.a' of '/g'"];
    let value = ["-n", "user.a", "-v", "b", "/f", "/g"];
    assert_eq!(steps(&made, "setfattr --verbose", &value), set);
    assert!(steps(&made, "setfattr", &value).is_empty());
    assert!(steps(&made, "setfattr --verbose -q", &value).is_empty());
    let removed = ["removed attribute 'user.a' of '/f'"];
    assert_eq!(steps(&made, "setfattr --verbose", &["-x", "user.a", "/f"]), removed);
    let ran = made.verb("setfattr --verbose", &["-x", "user.a", "/f", "/g"]);
    let line = &b"removed attribute 'user.a' of '/g'\n"[..];
    assert_eq!((ran.code, &ran.stdout[..]), (Some(1), line));
}

#[test]
fn cp_prints_source_and_copy_of_each_file() {
    let made = Made::new();
    made.does("mkdir -p", &["/a/b", "/into"]);
    made.does("truncate -s 9", &["/a/b/f"]);
    made.does("ln", &["/a/b/f", "/a/b/g"]);
    made.does("ln -s", &["f", "/a/b/h"]);
    let copied = |target: &str| {
        let mut lines = vec![format!("'/a' -> '{target}'")];
        lines
            .extend(["/b", "/b/f", "/b/g", "/b/h"].map(|at| format!("'/a{at}' -> '{target}{at}'")));
        lines
    };
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    assert_eq!(sorted(steps(&made, "cp -a -v", &["/a", "/c"])), sorted(copied("/c")));
    assert_eq!(sorted(steps(&made, "cp -a -v", &["/a", "/into"])), sorted(copied("/into/a")));
    assert_eq!(steps(&made, "cp -v", &["/a/b/f", "/into/"]), ["'/a/b/f' -> '/into/f'"]);
    // An existing directory is filled, and not made.
    made.does("mkdir", &["/inside"]);
    let lines = steps(&made, "cp -r -v", &["/a/b/.", "/inside"]);
    let line = |name: &str| format!("'/a/b/./{name}' -> '/inside/{name}'");
    assert_eq!(sorted(lines), ["f", "g", "h"].map(line));
}

#[test]
fn put_prints_source_and_copy_of_each_file() {
    let made = Made::new();
    let source = made.at("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), b"content").unwrap();
    let text = source.to_str().unwrap();
    let lines = [format!("'{text}' -> '/source'"), format!("'{text}/file' -> '/source/file'")];
    assert_eq!(steps(&made, "put -v", &[text, "/"]), lines);
    let ran = made.verb("put -v", &[text, "/new"]);
    assert_says(&ran.stderr, &["1 file, "]);
    assert!(steps(&made, "put -q", &[text, "/quiet"]).is_empty());
    let json = steps(&made, "put -v --format json", &[text, "/json"]).concat();
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
}

/// Files are complete in any order.
#[test]
fn get_prints_source_and_copy_of_each_file() {
    let made = Made::new();
    made.does("mkdir -p", &["/a/b"]);
    made.does("truncate -s 9", &["/a/b/f"]);
    made.does("ln -s", &["f", "/a/b/h"]);
    let to = made.at("copy").display().to_string();
    let mut printed = steps(&made, "get -v", &["/a", &to]);
    printed.sort();
    let line = |name: &&str| format!("'/a{name}' -> '{to}{name}'");
    let lines: Vec<_> = ["", "/b", "/b/f", "/b/h"].iter().map(line).collect();
    assert_eq!(printed, lines);
    assert!(steps(&made, "get -v -q", &["/a", &made.at("quiet").display().to_string()]).is_empty());
}

#[test]
fn closed_stdout_does_not_stop_the_verb() {
    let made = Made::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let image = made.image();
    let words = ["mkdir", "-v", image.to_str().unwrap(), "/a", "/b"];
    let ran = crate::support::command::command(words).stdout(writer).output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    assert_eq!(made.paths(), ["/a", "/b"]);
}
