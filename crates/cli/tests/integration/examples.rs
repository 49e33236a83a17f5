//! The examples work as documented.

use std::path::{Path, PathBuf};
use std::process::Command;

use userbtrfs_testkit::time_limit::limit_time;

use crate::support::command::Bench;
use crate::support::made::Made;
use crate::support::{assert_says, small};

/// Returns the command of an example: cargo builds it with all tests, but not for this one alone.
fn example(name: &str) -> Command {
    limit_time();
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

#[test]
fn create_and_fsync_keeps_the_file_that_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("new.img");
    let ran = example("create_and_fsync").arg(&image).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let expected = "begin\nend\n/var/log/scratch: read: no such file or directory\n";
    assert_eq!(text(&ran.stdout), expected);
    // The image exists now, and is not overwritten.
    let ran = example("create_and_fsync").arg(&image).output().unwrap();
    assert!(!ran.status.success());
    assert_says(&text(&ran.stderr), &["File exists"]);
}

#[test]
fn backup_copies_a_directory_into_the_image_once() {
    let made = Made::new();
    let source = made.at("source");
    std::fs::create_dir_all(source.join("inner")).unwrap();
    std::fs::write(source.join("inner/file"), "content").unwrap();
    std::os::unix::fs::symlink("inner/file", source.join("link")).unwrap();
    let backup = || {
        let mut backup = example("backup");
        backup.arg(&source).arg(made.image()).arg("monday").output().unwrap()
    };
    let ran = backup();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert_eq!(text(&ran.stdout), "1 files, 7 bytes\n");
    assert_eq!(made.verb("cat", &["/backups/monday/link"]).good(), "content");
    let ran = backup();
    assert!(!ran.status.success());
    assert_says(&text(&ran.stderr), &["file exists"]);
}

#[test]
fn snapshot_backup_copies_each_snapshot_and_deletes_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("backups");
    let mut command = example("snapshot_backup");
    let ran = command.arg(dir.path().join("new.img")).arg(&backups).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let expected = [
        "monday: 2 files, 19 bytes",
        "tuesday: 2 files, 20 bytes",
        "wednesday: 2 files, 22 bytes",
        "monday: deleted",
        "/data/report: as of thursday",
        "/snapshots/tuesday/notes: draft",
        "/snapshots/tuesday/report: as of tuesday",
        "/snapshots/wednesday/notes: draft",
        "/snapshots/wednesday/report: as of wednesday",
    ];
    assert_eq!(text(&ran.stdout).lines().collect::<Vec<_>>(), expected);
    assert_eq!(std::fs::read_to_string(backups.join("monday/report")).unwrap(), "as of monday\n");
}

#[test]
fn image_in_file_changes_no_byte_around_the_filesystem() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.bin");
    let ran = example("image_in_file").arg(&file).output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let expected = "made\nopened again\nthe bytes around the filesystem are unchanged\n";
    assert_eq!(text(&ran.stdout), expected);
    // The file exists now, and is not overwritten.
    let ran = example("image_in_file").arg(&file).output().unwrap();
    assert!(!ran.status.success());
    assert_says(&text(&ran.stderr), &["File exists"]);
}

#[test]
fn custom_device_keeps_few_blocks_of_a_large_filesystem() {
    let ran = example("custom_device").output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let out = text(&ran.stdout);
    assert_says(&out, &["the file has 1048576 bytes\n", "the device has 1099511627776 bytes"]);
    let kept = out.split("keeps ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!((16..200).contains(&kept.parse::<usize>().unwrap()), "{out}");
}
