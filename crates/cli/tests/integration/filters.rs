//! `--exclude`, `--include` and `-x` of `get` and `put`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use userbtrfs_testkit::linux;

use crate::support::made::Made;

const FILES: [&str; 6] = ["a.c", "a.o", "build/b.c", "build/b.o", "sub/build", "sub/c.c"];

fn source(made: &Made) -> String {
    let dir = made.at("source");
    for file in FILES {
        let file = dir.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "content").unwrap();
    }
    dir.to_str().unwrap().to_owned()
}

fn below(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            found.insert(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() {
                dirs.push(path);
            }
        }
    }
    found
}

/// Copies the source in and out with these options; returns what each of the two copied.
fn copied(options: &str) -> BTreeSet<String> {
    let made = Made::new();
    let source = source(&made);
    made.does(&format!("put {options}"), &[&source, "/in"]);
    let found: BTreeSet<_> = made
        .paths()
        .iter()
        .filter_map(|path| path.strip_prefix("/in/"))
        .map(str::to_owned)
        .collect();
    made.does("put", &[&source, "/all"]);
    let out = made.at("out");
    made.verb(&format!("get -q {options}"), &["/all", out.to_str().unwrap()]).good();
    assert_eq!(below(&out), found, "get and put choose the same");
    made.judge();
    found
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn exclude_leaves_out_names_and_what_is_below_them() {
    let without_o = set(&["a.c", "build", "build/b.c", "sub", "sub/build", "sub/c.c"]);
    assert_eq!(copied("--exclude *.o"), without_o);
    assert_eq!(copied("--exclude build"), set(&["a.c", "a.o", "sub", "sub/c.c"]));
    assert_eq!(copied("--exclude build/"), set(&["a.c", "a.o", "sub", "sub/build", "sub/c.c"]));
    let rest = set(&["a.c", "a.o", "build", "build/b.c", "build/b.o", "sub", "sub/c.c"]);
    assert_eq!(copied("--exclude sub/build"), rest);
}

#[test]
fn include_selects_files_or_excepts_them() {
    let only = set(&["a.c", "build", "build/b.c", "sub", "sub/c.c"]);
    assert_eq!(copied("--include *.c"), only);
    let kept = set(&["a.c", "build", "build/b.c", "build/b.o", "sub", "sub/build", "sub/c.c"]);
    assert_eq!(copied("--exclude *.o --include b.o"), kept);
}

#[test]
fn sources_are_filtered_by_their_names() {
    let made = Made::new();
    let source = source(&made);
    let files = ["a.c", "a.o"].map(|name| format!("{source}/{name}"));
    made.does("put --exclude *.o", &[&files[0], &files[1], "/"]);
    assert_eq!(made.paths(), ["/a.c"]);
}

#[test]
fn put_stays_in_one_filesystem() {
    if !linux::available_or_skip() {
        return;
    }
    let made = Made::new();
    let source = source(&made);
    let mount = |words: &[&str]| linux::run(Command::new(words[0]).args(&words[1..])).unwrap();
    let sub = format!("{source}/sub");
    mount(&["mount", "-t", "tmpfs", "none", &sub]);
    fs::write(format!("{sub}/inside"), "").unwrap();
    made.does("put", &[&source, "/all"]);
    made.does("put -x", &[&source, "/one"]);
    mount(&["umount", &sub]);
    let paths = made.paths();
    assert!(paths.contains(&"/all/sub/inside".to_owned()));
    assert!(
        paths.contains(&"/one/sub".to_owned()) && !paths.contains(&"/one/sub/inside".to_owned())
    );
    made.judge();
}
