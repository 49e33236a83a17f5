//! `mkfs`: its options, its output, and the files it leaves behind.

use std::fs::{self, File};

use crate::support::command::{Ran, verb};

/// A path in a folder of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn image(&self) -> std::path::PathBuf {
        self.0.path().join("image")
    }

    fn mkfs(&self, options: &[&str]) -> Ran {
        verb("mkfs", &self.image(), options)
    }

    fn superblock(&self) -> String {
        verb("dump super", &self.image(), &[]).good()
    }
}

/// The value of a field in a dump of a superblock.
fn field<'a>(dump: &'a str, name: &str) -> &'a str {
    let line = dump.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    line.unwrap_or_else(|| panic!("no {name} in {dump}")).trim()
}

#[test]
fn a_missing_file_is_made_with_holes() {
    let place = Place::new();
    let said = place.mkfs(&["--size", "1T"]).good();
    let metadata = fs::metadata(place.image()).unwrap();
    assert_eq!(metadata.len(), 1 << 40);
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) < 8192);
    let uuid = said.lines().find_map(|line| line.strip_prefix("UUID:")).unwrap().trim();
    assert_eq!(field(&place.superblock(), "fsid"), uuid);
    assert_eq!(verb("ls", &place.image(), &[]).good(), "");
}

#[test]
fn every_option_is_accepted() {
    let place = Place::new();
    let uuid = "12345678-1234-4234-8234-123456789abc";
    let options = ["--size=300M", "-L", "a label", "-U", uuid, "-n", "4k", "-m", "single"];
    let more = ["-d", "dup", "--csum", "xxhash", "--features", "block-group-tree"];
    place.mkfs(&[&options[..], &more].concat()).good();
    let dump = place.superblock();
    assert_eq!(field(&dump, "label"), "a label");
    assert_eq!(field(&dump, "fsid"), uuid);
    assert_eq!(field(&dump, "nodesize"), "4096");
    assert!(field(&dump, "csum_type").starts_with("1 "));
    assert_eq!(field(&dump, "compat_ro_flags"), "0xb");
    let usage = verb("df", &place.image(), &[]).good();
    assert!(usage.contains("Data, DUP") && usage.contains("Metadata, single"), "{usage}");
}

#[test]
fn mixed_block_groups_set_matching_defaults() {
    let place = Place::new();
    place.mkfs(&["--size", "100M", "--features", "mixed-bg,^free-space-tree"]).good();
    let dump = place.superblock();
    assert_eq!((field(&dump, "nodesize"), field(&dump, "compat_ro_flags")), ("4096", "0x0"));
    let usage = verb("df", &place.image(), &[]).good();
    assert!(usage.contains("Data+Metadata, single"), "{usage}");
    place.mkfs(&["-f", "--features", "mixed-bg", "-d", "dup"]).good();
    let usage = verb("df", &place.image(), &[]).good();
    assert!(usage.contains("Data+Metadata, DUP"), "{usage}");
}

#[test]
fn existing_filesystem_is_overwritten_only_with_force() {
    let place = Place::new();
    place.mkfs(&["--size", "100M"]).good();
    let before = fs::read(place.image()).unwrap();
    let said = place.mkfs(&[]).bad();
    assert!(said.contains("image") && said.contains("a btrfs filesystem"), "{said}");
    assert!(fs::read(place.image()).unwrap() == before);
    assert_eq!(place.mkfs(&["-f", "-q"]).good(), "");
    assert!(fs::read(place.image()).unwrap() != before);
}

#[test]
fn failed_mkfs_leaves_no_file() {
    let place = Place::new();
    for options in [
        &[][..],
        &["--size", "1M"],
        &["--size", "15E"],
        &["--size", "100M", "-n", "5000"],
        &["--size", "100M", "-n", "8G"],
        &["--size", "100M", "--features", "no-such"],
        &["--size", "100M", "--features", "^no-holes"],
        &["--size", "100M", "--features", "block-group-tree,^free-space-tree"],
        &["--size", "100M", "--rootdir", "/nowhere/at/all"],
        &["--size", "100M", "--shrink"],
    ] {
        place.mkfs(options).bad();
        assert!(!place.image().exists(), "{options:?}");
    }
}

/// An existing empty file stays, and stays empty.
#[test]
fn failed_mkfs_leaves_an_empty_file_empty() {
    let place = Place::new();
    File::create(place.image()).unwrap();
    for options in [&["--size", "1M"][..], &["--size", "15E"], &["--size", "1G", "-n", "5000"]] {
        let said = place.mkfs(options).bad();
        assert_eq!(fs::metadata(place.image()).unwrap().len(), 0, "{said}");
    }
    let said = place.mkfs(&["--size", "15E"]).bad();
    assert!(said.contains("file too large"), "{said}");
    place.mkfs(&["--size", "100M"]).good();
}

#[test]
fn size_that_differs_from_an_existing_image_is_refused_without_force() {
    let place = Place::new();
    File::create(place.image()).unwrap();
    place.mkfs(&["--size", "100M"]).good();
    place.mkfs(&["-f", "--size", "100M"]).good();
    let said = place.mkfs(&["--size", "200M"]).bad();
    assert!(said.contains("use --force to overwrite"), "{said}");
    assert_eq!(fs::metadata(place.image()).unwrap().len(), 100 << 20);
}

#[test]
fn json_describes_the_new_filesystem() {
    let place = Place::new();
    let said = place.mkfs(&["--size", "100M", "--format", "json", "-L", "x"]).good();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["mkfs"]["label"], "x");
    assert_eq!(said["mkfs"]["total_bytes"], 100 << 20);
}
