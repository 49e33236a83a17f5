//! The command: every verb as text and as JSON, its messages, and its exit codes.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use userbtrfs::{ItemKind, Key, TreeId};
use userbtrfs_image_builder::{field, put_u64, root_ref};

use crate::support::command::{Bench, command, run, verb};
use crate::support::forging::{edit_leaf, inode, put_name};
use crate::support::golden::Unpacked;
use crate::support::{assert_says, small};

/// Every verb, with the rest of a command line on which it succeeds.
const VERBS: &[(&str, &[&str])] = &[
    ("ls", &["/"]),
    ("stat", &["/small"]),
    ("cat", &["/small"]),
    ("find", &["/"]),
    ("df", &[]),
    ("subvolume list", &[]),
    ("subvolume show", &["/sub"]),
    ("dump super", &[]),
    ("dump tree", &[]),
];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn every_verb_has_help() {
    assert_says(&run(["--help"]).good(), &["Usage: userbtrfs", "subvolume", "--format"]);
    assert_says(&run(["--version"]).good(), &["userbtrfs 0."]);
    let others =
        ["get", "put", "cp", "truncate", "fallocate", "mkfs", "shell", "subvolume", "dump"];
    for words in VERBS.iter().map(|(words, _)| *words).chain(others) {
        // For these, -h is an option, as in coreutils.
        let is_option = ["ls", "df", "chown"].contains(&words);
        let flags = if is_option { &["--help"][..] } else { &["--help", "-h"] };
        for &flag in flags {
            let help = run(words.split(' ').chain([flag])).good();
            assert_says(&help, &[&format!("Usage: userbtrfs {words}")]);
        }
    }
}

#[test]
fn a_wrong_command_line_is_an_error() {
    for words in ["", "fly", "ls", "cat image", "get image /a", "ls --format xml image", "df -z"] {
        let ran = run(words.split_whitespace());
        assert_eq!(ran.code, Some(1), "{words}: {ran:?}");
        assert_says(&ran.stderr, &["help"]);
        assert!(ran.stdout.is_empty());
    }
    let ran = run(["df", "--memory", "1x", "image"]);
    assert_eq!(ran.code, Some(1));
    assert_says(&ran.stderr, &["unknown suffix x"]);
}

#[test]
fn every_verb_succeeds_and_says_nothing_on_stderr() {
    let bench = Bench::new(&small());
    for (words, rest) in VERBS {
        let text = bench.verb(words, rest).good();
        assert!(text.ends_with('\n'), "{words}: {text:?}");
        assert!(!text.contains('\x1b'), "{words}: {text:?}");
    }
}

#[test]
fn every_verb_prints_json() {
    let bench = Bench::new(&small());
    for (words, rest) in VERBS.iter().filter(|(words, _)| *words != "cat") {
        let document = json(&bench.verb(&format!("{words} --format json"), rest).good());
        let version = &document["__header"]["version"];
        assert!(version == "1" || words.starts_with("dump"), "{words}: {document}");
    }
}

#[test]
fn missing_or_invalid_image_is_named() {
    let bench = Bench::new(&small());
    std::fs::write(bench.at("zeros"), vec![0; 1 << 20]).unwrap();
    std::fs::write(bench.at("empty"), b"").unwrap();
    for (words, rest) in VERBS {
        for (name, why) in [
            ("nothing", "No such file or directory"),
            ("zeros", "not a btrfs filesystem (it is blank)"),
            ("empty", "too few for a btrfs filesystem"),
            ("", "is a directory"),
        ] {
            let image = bench.at(name);
            let ran = verb(words, &image, rest);
            let why = match (*words, name) {
                ("dump super", "empty") => "does not reach copy 0 of the superblock",
                // A directory may be where an image is mounted.
                (words, "") if words.starts_with("subvolume") => "not a mount of userbtrfs",
                _ => why,
            };
            assert!(ran.stdout.is_empty(), "{words} {name}: {ran:?}");
            let said = ran.bad();
            assert_says(&said, &[&format!("userbtrfs: {}", image.display()), why]);
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

#[test]
fn system_error_is_printed_without_its_number() {
    let made = Bench::new(&small());
    let none = made.at("none");
    let named = format!("userbtrfs: {}: No such file or directory\n", none.display());
    assert_eq!(verb("ls", &none, &[]).bad(), named);
    let named = format!("userbtrfs: get: {}: ", made.at("no").display());
    let said = made.verb("get", &["/small", made.at("no/copy").to_str().unwrap()]).bad();
    assert!(!said.contains("os error"), "{said}");
    assert_says(&said, &[&named, "No such file or directory"]);
    let point = run(["stats".as_ref(), none.as_os_str()]).bad();
    assert!(!point.contains("os error"), "{point}");
}

#[test]
fn usage_names_the_destination_once() {
    for (name, usage) in [
        ("get", "get [OPTIONS] <IMAGE> <SRC>... <DEST>"),
        ("put", "put [OPTIONS] <IMAGE> <SRC>... <DEST>"),
        ("cp", "cp [OPTIONS] <IMAGE> <SRC>... <DEST>"),
        ("mv", "mv [OPTIONS] <IMAGE> <SRC>... <DEST>"),
        ("ln", "ln [OPTIONS] <IMAGE> <TARGET>... <DEST>"),
    ] {
        let help = run([name, "--help"]).good();
        assert_says(&help, &[&format!("Usage: userbtrfs {usage}\n"), "Global options:"]);
    }
}

#[test]
fn an_unknown_path_is_named_and_the_others_are_done() {
    let bench = Bench::new(&small());
    let expected = "userbtrfs: /no: no such file or directory\n";
    for words in ["ls", "stat", "cat", "find"] {
        assert_eq!(bench.verb(words, &["/no"]).bad(), expected, "{words}");
    }
    for words in ["ls", "stat", "cat"] {
        let ran = bench.verb(words, &["/no", "/small"]);
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(printed.contains("small") || printed == "hello\n", "{words}: {printed}");
        assert_eq!(ran.bad(), expected, "{words}");
    }
    for words in ["ls --format json", "stat --format json"] {
        let ran = bench.verb(words, &["/no", "/small"]);
        let document = json(&String::from_utf8_lossy(&ran.stdout));
        assert_eq!(ran.bad(), expected, "{words}");
        let list = document.as_object().unwrap().values().find_map(Value::as_array).unwrap();
        assert_eq!(list.len(), 1, "{document}");
    }
    let said = bench.verb("cat", &["/sub", "/pipe", "/small/x"]).bad();
    let expected = "userbtrfs: /sub: is a directory\nuserbtrfs: /pipe: not a regular file\n\
                    userbtrfs: /small/x: not a directory\n";
    assert_eq!(said, expected);
    assert_says(&bench.verb("subvolume show", &["/empty"]).bad(), &["/empty: no such subvolume"]);
}

#[test]
fn ls_lists_names_and_attributes() {
    let bench = Bench::new(&small());
    assert_eq!(bench.verb("ls", &["/"]).good(), "empty\nlarge\nlink\npipe\nsmall\nsub\n");
    assert_eq!(bench.verb("ls", &[]).good(), bench.verb("ls", &["/"]).good());
    assert_eq!(bench.verb("ls", &["/small"]).good(), "/small\n");
    assert_eq!(bench.verb("ls", &["/small", "/sub"]).good(), "/small\n\n/sub:\ninner\n");
    let long = bench.verb("ls -l", &["/"]).good();
    let expected = [
        "-rw-r--r--   1  1000   100            6 2023-11-14 22:13 small\n",
        "lrwxrwxrwx   1  1000   100            9 2023-11-14 22:13 link -> sub/inner\n",
        "drwxr-xr-x   1  1000   100           10 2023-11-14 22:13 sub\n",
        "prw-r--r--   1  1000   100            0 2023-11-14 22:13 pipe\n",
    ];
    assert_says(&long, &expected);
    let below = bench.verb("ls -R", &["/"]).good();
    assert_says(&below, &["/:\nempty\n", "\n\n/sub:\ninner\n", "\n\n/empty:\n"]);
    let document = json(&bench.verb("ls --format json", &["/"]).good());
    let list = document["ls"].as_array().unwrap();
    assert_eq!(list.len(), 6);
    let link = list.iter().find(|entry| entry["name"] == "link").unwrap();
    assert_eq!((&link["target"], &link["path"]), (&json("\"sub/inner\""), &json("\"/link\"")));
    assert_eq!(link["mtime"], "1700000000.000000005");
}

#[test]
fn names_with_a_dot_are_shown_when_asked_for() {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(256), |items| {
        put_name(items, 256, 8, b".hidden", (inode(257), 1));
        put_name(items, 256, 9, b"new\nline\xff", (inode(257), 1));
    });
    let bench = Bench::new(&editor);
    assert!(!bench.verb("ls", &["/"]).good().contains("hidden"));
    assert_says(&bench.verb("ls -a", &["/"]).good(), &[".hidden\n", "new\\nline\\xff\n"]);
    let found = bench.verb("find -0", &["/"]).stdout;
    let paths: Vec<_> = found.split(|byte| *byte == 0).collect();
    assert!(paths.contains(&&b"/new\nline\xff"[..]));
    let document = json(&bench.verb("find --format json", &["/"]).good());
    let list = document["find"].as_array().unwrap();
    assert!(list.iter().any(|entry| entry["path"] == "/new\\nline\\xff"), "{document}");
}

#[test]
fn stat_shows_everything_of_an_inode() {
    let bench = Bench::new(&small());
    let text = bench.verb("stat", &["/small", "/link", "/large"]).good();
    assert_says(
        &text,
        &[
            "  File: /small\n",
            "  Size: 6\tAllocated: 6\tregular file\n",
            " Inode: 257\tSubvolume: 5\tLinks: 1\n",
            "Access: (0644/-rw-r--r--)\tUid: 1000\tGid: 100\n",
            "Modify: 2023-11-14 22:13:20.000000005 +0000\n",
            " Xattr: user.note=0x72656164206d65\n",
            "Extent: 0 +6 inline\n",
            "Target: sub/inner\n",
            "Extent: 0 +8192 data at 4194304 +8192, 0 into it\n",
            "Extent: 8192 +16384 data at 4202496 +4096, 0 into it zlib\n",
            "Extent: 40960 +4096 prealloc at ",
        ],
    );
    let document = json(&bench.verb("stat --format json", &["/large"]).good());
    let extents = document["stat"][0]["extents"].as_array().unwrap();
    let kinds: Vec<_> = extents.iter().map(|extent| extent["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["data", "data", "data", "data", "prealloc"]);
    assert_eq!(extents[1]["compression"], "zlib");
}

#[test]
fn cat_prints_files_one_after_the_other_with_holes_as_zeros() {
    let bench = Bench::new(&small());
    assert_eq!(bench.verb("cat", &["/small", "/sub/inner"]).good(), "hello\nworld\n");
    assert_eq!(bench.verb("cat", &["/link"]).good(), "world\n");
    let large = bench.verb("cat", &["/large"]).stdout;
    assert_eq!((large.len(), &large[40960..]), (45056, &[0; 4096][..]));
}

#[test]
fn find_lists_everything_below() {
    let bench = Bench::new(&small());
    let found = bench.verb("find", &["/"]).good();
    let expected = "/\n/small\n/large\n/link\n/sub\n/sub/inner\n/empty\n/pipe\n";
    assert_eq!(found, expected);
    assert_eq!(bench.verb("find", &["/sub/"]).good(), "/sub/\n/sub/inner\n");
    assert_eq!(bench.verb("find", &["/link"]).good(), "/link\n");
    let document = json(&bench.verb("find --format json", &["/sub"]).good());
    assert_eq!(document["find"][1]["type"], "regular file");
}

#[test]
fn df_shows_each_kind_of_space() {
    let bench = Bench::new(&small());
    let text = bench.verb("df -b", &[]).good();
    assert_says(
        &text,
        &[
            "Data, single: total=131072, used=",
            "System, DUP: total=65536, used=4096\n",
            "Metadata, DUP: total=131072, used=36864\n",
            "Device: total=655360, allocated=",
        ],
    );
    assert_says(&bench.verb("df", &[]).good(), &["System, DUP: total=64.00KiB, used=4.00KiB\n"]);
    let document = json(&bench.verb("df --format json", &[]).good());
    assert_eq!(document["filesystem-df"].as_array().unwrap().len(), 4);
    // One name has one form.
    assert_eq!(document, json(&bench.verb("filesystem df --format json", &[]).good()));
}

#[test]
fn subvolumes_are_listed_and_shown() {
    let bench = Bench::new(&small());
    let text = bench.verb("subvolume list", &[]).good();
    assert_eq!(text, "ID 256 gen 7 top level 5 path sub\n");
    let text = bench.verb("subvolume show", &["/sub"]).good();
    assert_says(&text, &["sub\n", "Subvolume ID:", "256\n", "Parent ID:", "Flags:"]);
    let document = json(&bench.verb("subvolume list --format json", &[]).good());
    assert_eq!(document["subvolume-list"][0]["path"], "sub");
    for options in ["ls --subvol sub", "ls --subvolid 256", "ls --subvol /sub/"] {
        assert_eq!(bench.verb(options, &[]).good(), "inner\n", "{options}");
    }
    for (options, why) in [
        ("ls --subvol empty", "no such subvolume"),
        ("ls --subvol nothing", "no such file or directory"),
        ("ls --subvolid 257", "no such subvolume"),
        ("ls --subvolid 7", "no such subvolume"),
    ] {
        assert_says(&bench.verb(options, &[]).bad(), &[why]);
    }
}

#[test]
fn notices_are_printed_unless_quiet() {
    let mut editor = small();
    editor.edit_superblock(|bytes| put_u64(bytes, field::LOG_ROOT, 0x20_9000));
    let bench = Bench::new(&editor);
    let ran = bench.verb("cat --no-log-replay", &["/small"]);
    assert_eq!((ran.code, &ran.stdout[..]), (Some(0), &b"hello\n"[..]));
    let image = bench.image();
    let expected = format!("userbtrfs: {}: a log is pending", image.display());
    assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
    for words in ["cat -q", "cat --quiet", "-q cat"] {
        assert_eq!(bench.verb(&format!("{words} --no-log-replay"), &["/small"]).good(), "hello\n");
    }
    let missing = bench.verb("cat -q --no-log-replay", &["/no"]).bad();
    assert_says(&missing, &["no such file or directory"]);
}

#[test]
fn memory_bound_is_accepted_in_any_unit() {
    let bench = Bench::new(&small());
    for size in ["4M", "4096k", "4194304", "1GiB", "16E"] {
        let ran = bench.verb(&format!("cat --memory {size}"), &["/small"]);
        match size {
            "16E" => assert_eq!(ran.code, Some(1)),
            _ => assert_eq!(ran.good(), "hello\n"),
        }
    }
    assert_says(&bench.verb("ls --memory 1M", &[]).bad(), &["at least 4 MiB are needed"]);
}

/// Runs a command like `| head -1`: the reader closes the pipe after a line.
fn one_line(arguments: &[&str], image: &Path) -> String {
    let (verb, rest) = arguments.split_at(if arguments[0] == "dump" { 2 } else { 1 });
    let mut child = command([verb, &[image.to_str().unwrap()], rest].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = Vec::new();
    BufReader::with_capacity(1, child.stdout.take().unwrap()).read_until(b'\n', &mut line).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    String::from_utf8_lossy(&line).into_owned()
}

#[test]
fn a_closed_pipe_ends_every_verb_quietly() {
    let golden = Unpacked::new("nodesize-4k");
    let image = golden.path();
    assert_eq!(one_line(&["find", "/"], &image), "/\n");
    for arguments in [
        &["ls", "-lR", "/"][..],
        &["find", "--format", "json", "/"],
        &["ls", "-R", "--format", "json", "/"],
        &["cat", "/dir/below/long"],
        &["stat", "--format", "json", "/dir", "/dir/odd"],
        &["dump", "tree"],
        &["dump", "tree", "--format", "json"],
    ] {
        one_line(arguments, &image);
    }
}

/// A directory entry leads into a subvolume only if a ROOT_REF confirms it: snapshots have empty
/// directories instead.
#[test]
fn missing_subvolume_is_an_empty_directory() {
    let mut editor = small();
    let key = Key::new(5, ItemKind::ROOT_REF, 256);
    edit_leaf(&mut editor, TreeId::ROOT, key, |items| {
        items.insert(key, root_ref(256, 5, b"elsewhere"));
    });
    let bench = Bench::new(&editor);
    assert_eq!(bench.verb("ls", &["/sub"]).good(), "");
    assert_eq!(bench.verb("find", &["/sub"]).good(), "/sub\n");
    assert_says(&bench.verb("stat", &["/sub"]).good(), &[" Inode: 2\tSubvolume: 5\tLinks: 1\n"]);
    bench.verb("get -q", &["/", bench.at("copy").to_str().unwrap()]).good();
    assert!(bench.at("copy/sub").is_dir());
}
