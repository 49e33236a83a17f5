//! The comparison of extracted files with the expected ones.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Result, ensure};
use userbtrfs_testkit::manifest::{Difference, Kind, Manifest, diff};
use userbtrfs_testkit::walk_linux::walk;

use super::command::{Extracted, is_superuser};

/// The maximum number of differences that are shown.
const DIFFERENCES_SHOWN: usize = 20;
/// Attributes that cannot be copied, or that the filesystem of the copy determines.
const NOT_COPIED: &[&str] = &["inode", "subvolume", "ctime", "atime", "btime", "segments", "flags"];
/// Attributes that only the superuser can set.
const PRIVILEGED: &[&str] = &["uid", "gid", "xattrs"];

/// The times that every filesystem can store, in seconds since 1970.
const TIMES_KEPT: RangeInclusive<i64> = -(1 << 31)..=(1 << 31) - 1;

/// Compares the extracted files with the expected ones, and prints the speed. Modification times
/// since the demo has `begun` are not compared: changes were made at different times.
pub(super) fn verify(
    expected_name: &str,
    expected: &Manifest,
    extracted: &Extracted,
    begun: i64,
) -> Result<()> {
    let found = walk(&extracted.folder)?;
    let mut differences = diff(expected, &found, &ignored());
    differences.retain(|difference| is_of_copy(difference, expected, begun));
    if !extracted.all_kept {
        println!("Not all attributes can be kept here, so they are not compared.");
        differences.retain(|difference| difference.attribute != "xattrs");
    }
    for difference in differences.iter().take(DIFFERENCES_SHOWN) {
        println!("{difference}");
    }
    ensure!(differences.is_empty(), "{} difference(s) from {expected_name}", differences.len());
    println!("{}; same as {expected_name}", summary(&found, extracted.time));
    Ok(())
}

fn ignored() -> Vec<&'static str> {
    let privileged = if is_superuser() { &[] } else { PRIVILEGED };
    [NOT_COPIED, privileged].concat()
}

/// Returns true if a difference is an error of the copy. Five are not: the filesystem determines
/// size and link count of a directory, the program that makes the image makes the root, only the
/// superuser can make a device, few filesystems support as wide a range of times as btrfs, and
/// files changed since the demo has `begun` were not changed at the same time.
fn is_of_copy(difference: &Difference, expected: &Manifest, begun: i64) -> bool {
    let attribute = difference.attribute.as_str();
    let path = difference.path.as_slice();
    let entry = expected.get(path);
    let time = entry.map_or(0, |entry| entry.mtime.seconds);
    let other = !TIMES_KEPT.contains(&time) || time >= begun;
    match entry.map(|entry| entry.kind) {
        _ if other && attribute == "mtime" => false,
        Some(Kind::Dir) if path == b"/" => attribute == "path",
        Some(Kind::Dir) => !matches!(attribute, "size" | "nlink"),
        Some(Kind::Block | Kind::Char) => is_superuser() || attribute != "path",
        _ => true,
    }
}

fn summary(manifest: &Manifest, time: Option<Duration>) -> String {
    let files = manifest.entries().iter().filter(|entry| entry.kind == Kind::File);
    let data = files.clone().filter(|file| file.link.is_none()).flat_map(|file| &file.segments);
    let amount = mebibytes(data.map(|(_, len)| len).sum());
    let entries = manifest.entries().len();
    let files = files.count();
    let speed = time.map_or(String::new(), |time| {
        let seconds = time.as_secs_f64();
        format!(" in {seconds:.2} s ({:.0} MiB/s)", amount / seconds.max(0.001))
    });
    format!("{entries} entries, {files} of them files, {amount:.1} MiB{speed}")
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn extracted(folder: &std::path::Path) -> Extracted {
        Extracted { folder: folder.to_owned(), all_kept: true, time: Some(Duration::from_secs(1)) }
    }

    #[test]
    fn copied_tree_equals_itself() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        tree::copy_some(&source, 1 << 20).unwrap();
        let manifest = walk(&source).unwrap();
        assert!(manifest.entries().len() > 1);
        verify("itself", &manifest, &extracted(&source), i64::MAX).unwrap();
    }

    #[test]
    fn a_changed_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "before").unwrap();
        let manifest = walk(folder.path()).unwrap();
        let changed = file.metadata().unwrap().modified().unwrap();
        std::fs::write(&file, "behind").unwrap();
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(changed).unwrap();
        let error = verify("before", &manifest, &extracted(folder.path()), i64::MAX).unwrap_err();
        assert_eq!(error.to_string(), "1 difference(s) from before");
    }

    #[test]
    fn attributes_set_by_the_filesystem_are_no_difference() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("f"), "").unwrap();
        let expected = walk(folder.path()).unwrap();
        let counts = |path: &str, attribute: &str| {
            let left = String::new();
            let right = String::new();
            let path = path.into();
            let attribute = attribute.into();
            is_of_copy(&Difference { path, attribute, left, right }, &expected, i64::MAX)
        };
        assert!(!counts("/d", "size") && !counts("/d", "nlink") && !counts("/", "mtime"));
        assert!(counts("/d", "mtime") && counts("/f", "size") && counts("/f", "nlink"));
        assert!(counts("/d", "path") && counts("/f", "path") && counts("/extra", "path"));
    }
}
