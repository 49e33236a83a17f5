//! Compressed writing, at a small scale.

use std::fs;
use std::path::Path;

use serde_json::Value;
use userbtrfs_testkit::skip_unless_linux;

use crate::{check, left_in, report, rows};

/// Returns the used bytes of the row of a case and a target.
fn stored(report: &Value, case: &str, target: &str) -> u64 {
    let rows = report["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["case"] == case && row["target"] == target).unwrap();
    row["stored"].as_u64().unwrap()
}

#[test]
fn file_is_written_compressed_and_read_back() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let verb = ["compress", "--part", "file", "--data", "text", "--mebibytes", "2000"];
    let verb = [&verb[..], &["--compress", "none,zlib:3,lzo,zstd:9"]].concat();
    let report = report(dir.path(), &verb, "lib,btrfs");
    for target in ["lib", "btrfs"] {
        let plain = stored(&report, "compress, write text none 4M", target);
        assert!(plain >= 4 << 20, "{target}: {plain}");
        for method in ["zlib:3", "lzo", "zstd:9"] {
            let case = format!("compress, write text {method} 4M");
            let compressed = stored(&report, &case, target);
            assert!(compressed < plain / 4 * 3, "{target}, {method}: {compressed} of {plain}");
        }
    }
    assert_eq!(left_in(&dir), 0);
}

#[test]
fn binary_and_random_data_have_a_row_for_each_step() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let verb = ["compress", "--part", "file", "--data", "binary,random", "--compress", "zstd:1"];
    let found = rows(dir.path(), &verb, "lib,btrfs");
    let all: &[&str] = &["lib", "btrfs", "floor-write"];
    let both: &[&str] = &["lib", "btrfs"];
    let cases = [
        ("compress, write binary zstd:1 1M", all),
        ("compress, write+sync binary zstd:1 1M", all),
        ("compress, read back binary zstd:1 1M", both),
        ("compress, write random zstd:1 1M", all),
        ("compress, write+sync random zstd:1 1M", all),
        ("compress, read back random zstd:1 1M", both),
    ];
    check(found, &cases);
    assert_eq!(left_in(&dir), 0);
}

/// Makes a tree with a file of four MiB that compresses well.
fn fill(source: &Path) {
    fs::create_dir(source.join("dir")).unwrap();
    fs::write(source.join("dir/large"), b"many times the same. ".repeat(200_000)).unwrap();
    fs::write(source.join("small"), "small").unwrap();
}

#[test]
fn tree_is_copied_into_a_compressed_filesystem() {
    skip_unless_linux!();
    let dir = tempfile::tempdir().unwrap();
    let source = tempfile::tempdir().unwrap();
    fill(source.path());
    let path = source.path().to_str().unwrap();
    let verb = ["compress", "--part", "tree", "--tree", path];
    let report = report(dir.path(), &verb, "lib,btrfs,rootdir");
    let case = format!("build {path} zstd:3");
    for target in ["lib", "btrfs"] {
        let compressed = stored(&report, &case, target);
        assert!(compressed < 2 << 20, "{target}: {compressed}");
    }
    if crate::cli().is_some() {
        assert!(stored(&report, &case, "cli") < 2 << 20);
    }
    let is_noted = |line: &Value| line.as_str().unwrap().contains("rootdir cannot run");
    let is_noted = report["head"].as_array().unwrap().iter().any(is_noted);
    let is_run = report["rows"].as_array().unwrap().iter().any(|row| row["target"] == "rootdir");
    assert_ne!(is_noted, is_run, "a target that cannot run is noted");
    assert_eq!(left_in(&dir), 0);
}
