//! The examples work as documented.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::command::Bench;
use crate::support::{assert_says, small};

/// Returns the command of an example: cargo builds it with all tests, but not for this one alone.
fn example(name: &str) -> Command {
    let command = PathBuf::from(env!("CARGO_BIN_EXE_userbtrfs"));
    let folder = command.parent().expect("it lies in a folder");
    let example = folder.join("examples").join(name);
    if !example.exists() {
        build(folder, name);
    }
    Command::new(example)
}

/// Builds an example beside the command.
fn build(folder: &Path, name: &str) {
    let profile = if folder.ends_with("release") { "release" } else { "dev" };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--package", "userbtrfs", "--profile", profile])
        .args(["--example", name, "--target-dir"])
        .arg(folder.parent().expect("it is named for the profile"))
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", text(&built.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn list_and_read_lists_a_directory_and_prints_a_file() {
    let bench = Bench::new(&small());
    let ran = example("list_and_read").arg(bench.image()).args(["/", "/small"]).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert_says(&text(&ran.stdout), &["6  small\n", "45056  large\n", "hello\n"]);
    let ran = example("list_and_read").arg(bench.image()).args(["/", "/none"]).output().unwrap();
    assert!(!ran.status.success());
    assert_says(&text(&ran.stderr), &["no such file or directory"]);
}

#[test]
fn parallel_checksum_sums_every_file() {
    let bench = Bench::new(&small());
    let ran = example("parallel_checksum").arg(bench.image()).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let out = text(&ran.stdout);
    let paths: Vec<_> = out.lines().map(|line| &line[10..]).collect();
    assert_eq!(paths, ["/large", "/small", "/sub/inner"]);
    // CRC-32 of "hello\n" and "world\n", as `crc32` prints them.
    assert_says(&out, &["363a3020  /small\n", "dd3861a8  /sub/inner\n"]);
}
