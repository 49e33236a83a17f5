//! Runs each verb once at the smallest scale, to test that it works.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod compress;
mod instructions;
mod load;
mod seeds;
mod trace;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::test_env::{fuse_or_skip, has_program};

/// The options for a run of a few seconds.
const TINY: &[&str] = &["--runs", "1", "--scale", "500", "--warm", "--format", "json"];

/// Returns the command `userbtrfs`, if it was built.
fn cli() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_userbtrfs-bench")).with_file_name("userbtrfs");
    beside.is_file().then_some(beside)
}

/// Runs a verb and returns the rows of its report as (case, target).
fn rows(dir: &Path, verb: &[&str], targets: &str) -> Vec<(String, String)> {
    let report = report(dir, verb, targets);
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = report["rows"].as_array().unwrap();
    rows.iter().map(|row| (text(row, "case"), text(row, "target"))).collect()
}

/// Runs a verb and returns its report.
fn report(dir: &Path, verb: &[&str], targets: &str) -> Value {
    userbtrfs_testkit::time_limit::limit_time();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_userbtrfs-bench"));
    let targets = if cli().is_some() { format!("{targets},cli") } else { targets.to_owned() };
    bench.args(verb).args(TINY).args(["--target", &targets, "--dir"]).arg(dir);
    let output = bench.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["head"][0].as_str().unwrap().contains(verb[0]));
    report
}

/// Checks that the rows are those of these cases, and that our targets come first.
fn check(mut found: Vec<(String, String)>, cases: &[(&str, &[&str])]) {
    let ours = |target: &str| matches!(target, "lib" | "cli" | "fuse");
    let first_of_theirs = found.iter().position(|(_, target)| !ours(target)).unwrap();
    assert!(found[first_of_theirs..].iter().all(|(_, target)| !ours(target)), "{found:?}");
    let pairs = |(case, targets): &(&str, &[&str])| {
        let case = (*case).to_owned();
        let here = |target: &&&str| **target != "cli" || cli().is_some();
        let targets: Vec<_> = targets.iter().filter(here).map(|t| (*t).to_owned()).collect();
        targets.into_iter().map(move |target| (case.clone(), target))
    };
    let mut expected: Vec<_> = cases.iter().flat_map(pairs).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

fn left_in(dir: &TempDir) -> usize {
    dir.path().read_dir().unwrap().count()
}

#[test]
fn trees_are_copied_out() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let all: &[&str] = &["lib", "cli", "btrfs", "restore", "floor-read", "floor-write"];
    let found = rows(dir.path(), &["extract", "--workload", "small,large"], "lib,btrfs,restore");
    check(found, &[("extract small-50-none", all), ("extract large-8M-zstd", all)]);
    assert_eq!(left_in(&dir), 0);
}

#[test]
fn names_are_listed_and_the_image_is_kept_if_told_so() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let targets: &[&str] = &["lib", "cli", "btrfs", "floor-read"];
    for _ in 0..2 {
        let found = rows(dir.path(), &["list", "--files", "100000", "--keep"], "lib,btrfs");
        check(found, &[("list empty-200", targets)]);
        assert_eq!(left_in(&dir), 2);
    }
}

#[test]
fn file_is_read_in_all_ways() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let found = rows(dir.path(), &["read", "--compression", "lzo"], "lib,btrfs,mmap");
    let sequential: &[&str] = &["lib", "cli", "btrfs", "floor-read"];
    let random: &[&str] = &["lib", "btrfs", "floor-read"];
    let lent: &[&str] = &["lib", "btrfs", "mmap", "floor-read"];
    let cases = [
        ("read sequential large-8M-lzo", sequential),
        ("read random large-8M-lzo", random),
        ("read random x32 large-8M-lzo", random),
        ("read random cached 1M large-8M-lzo", random),
        ("read random cached 64M large-8M-lzo", random),
        ("read random cached 1M, lent, large-8M-lzo", lent),
        ("read random cached 64M, lent, large-8M-lzo", lent),
    ];
    check(found, &cases);
    assert_eq!(left_in(&dir), 0);
}

#[test]
fn files_are_created_renamed_and_removed() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let meta = ["meta", "--files", "100000,50000", "--threads", "2", "--dirs", "3"];
    let found = rows(dir.path(), &meta, "lib,btrfs");
    let all: &[&str] = &["lib", "btrfs", "floor-write"];
    let both: &[&str] = &["lib", "btrfs"];
    let cases = [
        ("create x2 /3 100", all),
        ("create x2 /3 200", all),
        ("create+commit x2 /3 100", all),
        ("create+commit x2 /3 200", all),
        ("rename x2 /3 100", both),
        ("rename x2 /3 200", both),
        ("rename+commit x2 /3 100", both),
        ("rename+commit x2 /3 200", both),
        ("remove x2 /3 100", both),
        ("remove x2 /3 200", both),
        ("remove+commit x2 /3 100", both),
        ("remove+commit x2 /3 200", both),
        ("commit of new files x1 /3 60", all),
    ];
    check(found, &cases);
    assert_eq!(left_in(&dir), 0);
}

#[test]
fn a_file_is_written_in_both_ways() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let found = rows(dir.path(), &["write"], "lib,btrfs");
    let all: &[&str] = &["lib", "btrfs", "floor-write"];
    let both: &[&str] = &["lib", "btrfs"];
    let cases = [
        ("write sequential 8M", all),
        ("write sequential+sync 8M", all),
        ("write, read back 8M", both),
        ("write random 4K 8M", both),
        ("write random 4K+sync 8M", both),
    ];
    check(found, &cases);
    assert_eq!(left_in(&dir), 0);
}

#[test]
fn a_filesystem_is_built_of_a_real_tree() {
    skip_unless_linux!();
    let [dir, source] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    std::fs::create_dir(source.path().join("dir")).unwrap();
    std::fs::write(source.path().join("dir/large"), vec![7; 3 << 20]).unwrap();
    std::fs::write(source.path().join("small"), "small").unwrap();
    let path = source.path().to_str().unwrap();
    let found = rows(dir.path(), &["build", "--source", path], "lib,btrfs,rootdir");
    let case = format!("build {path}");
    check(found, &[(case.as_str(), &["lib", "cli", "btrfs", "rootdir", "floor-write"])]);
    assert_eq!(left_in(&dir), 0);
    assert!(source.path().join("small").is_file(), "the source is only read");
}

#[test]
fn a_tree_is_put() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let found = rows(dir.path(), &["put"], "lib,btrfs,rootdir");
    check(found, &[("put inline-40", &["lib", "cli", "btrfs", "rootdir", "floor-write"])]);
    assert_eq!(left_in(&dir), 0);
}

#[test]
fn subvolumes_and_files_are_shared_and_deleted() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let found =
        rows(dir.path(), &["share", "--files", "1000000", "--deleted", "6000000"], "lib,btrfs");
    let write: &[&str] = &["lib", "btrfs", "floor-write"];
    let read: &[&str] = &["lib", "btrfs", "floor-read"];
    let both: &[&str] = &["lib", "btrfs"];
    let cases = [
        ("snapshot cold, 2000 files", write),
        ("snapshot warm, 2000 files", write),
        ("clone of 2M", write),
        ("clone+commit of 2M", both),
        ("delete snapshot, 12000 files", read),
        ("delete source of a snapshot, 12000 files", read),
        ("delete last, 12000 files", both),
    ];
    check(found, &cases);
    assert_eq!(left_in(&dir), 0);
}

#[test]
fn programs_are_run_on_mounts() {
    skip_unless_linux!();
    if !fuse_or_skip() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let targets = ["fuse", "btrfs", "nothing", "floor"];
    let verbs: [(&[&str], &str); 3] = [
        (&["dbench", "--clients", "2", "--seconds", "3"], "dbench 2"),
        (&["fsmark", "--threads", "2"], "fs_mark x2 80"),
        (&["fio", "--jobs", "2"], "fio fsync x2"),
    ];
    for (verb, case) in verbs {
        if has_program(if verb[0] == "fsmark" { "fs_mark" } else { verb[0] }) {
            let found = rows(dir.path(), verb, &targets.join(","));
            check(found, &[(case, &targets)]);
        }
    }
    assert_eq!(left_in(&dir), 0);
}
