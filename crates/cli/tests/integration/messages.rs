//! Messages of errors that users meet first, and the hints in them.

use std::fs;
use std::os::unix::fs::FileExt as _;

use userbtrfs_testkit::test_env::{FUSE_FOR_ALL, has_program, is_apart};

use crate::support::assert_says;
use crate::support::command::{run, verb};
use crate::support::made::Made;
use crate::support::nobody::Nobody;
use crate::support::site::Site;

#[test]
fn other_content_of_an_image_is_named() {
    let made = Made::new();
    let other = made.at("other");
    for (at, magic, name) in [
        (1024 + 56, &b"\x53\xef"[..], "an ext2, ext3 or ext4 filesystem"),
        (0, b"XFSB", "an XFS filesystem"),
        (0, b"hsqs", "a SquashFS filesystem"),
    ] {
        let mut bytes = vec![0; 1 << 20];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        fs::write(&other, bytes).unwrap();
        for words in ["ls", "mkdir"] {
            let said = verb(words, &other, &["/a"]).bad();
            assert_eq!(
                said,
                format!(
                    "userbtrfs: {}: not a btrfs filesystem (it holds {name})\n",
                    other.display()
                )
            );
        }
    }
    let said = |bytes: Vec<u8>| {
        fs::write(&other, bytes).unwrap();
        verb("ls", &other, &[]).bad()
    };
    let plain = format!("userbtrfs: {}: not a btrfs filesystem", other.display());
    for len in [1 << 20, 80 << 20] {
        assert_eq!(said(vec![0; len]), format!("{plain} (it is blank)\n"));
        assert_eq!(said(b"text\n".repeat(len / 5)), format!("{plain}\n"));
    }
}

/// A superblock that is damaged is no other content.
#[test]
fn damage_of_a_superblock_is_described() {
    let made = Made::new();
    for at in [64 << 10, 64 << 20] {
        let image = fs::OpenOptions::new().write(true).open(made.image()).unwrap();
        image.write_all_at(&[0xff; 8], at + 100).unwrap();
    }
    assert_says(&made.verb("ls", &[]).bad(), &["no valid superblock: primary: ", "checksum"]);
}

#[test]
fn path_that_a_reason_begins_with_is_named() {
    let made = Made::new();
    for path in ["n", "no", "x no such file or directory"] {
        let said = made.verb("ls", &[path]).bad();
        assert_eq!(said, format!("userbtrfs: {path}: no such file or directory\n"));
    }
}

#[test]
fn mount_that_uses_an_image_is_named() {
    let Some(site) = Site::new() else { return };
    let before = site.made.open_for_writing();
    let said = site.made.verb("mkdir", &["/a"]).bad();
    assert_says(&said, &["image: in use by another userbtrfs (open for writing or mounted)"]);
    before.close().unwrap();
    site.mount(&[]).good();
    let said = site.made.verb("mkdir", &["/a"]).bad();
    let point = site.point();
    let holder = format!("image: in use by another userbtrfs (a mount at {})", point.display());
    assert_says(&said, &[&holder]);
    for words in ["mkfs -f", "mkfs -f --size 300M"] {
        assert_says(&site.made.verb(words, &[]).bad(), &[&holder]);
    }
    site.umount();
    site.judge();
}

#[test]
fn sizes_that_are_refused_are_named() {
    let made = Made::new();
    let text = made.at("text");
    fs::write(&text, "hello\n").unwrap();
    assert_says(&verb("mkfs -f", &text, &[]).bad(), &["6 bytes are too small"]);
    let image = made.image();
    let image = image.to_str().unwrap();
    for size in ["abc", ".5G", "+", "0"] {
        let said = run(["filesystem", "resize", size, image]).bad();
        assert_says(&said, &[&format!("unable to resize '{image}': {size}: not a valid size")]);
    }
    let said = run(["filesystem", "resize", "x:1G", image]).bad();
    assert_says(&said, &["x:1G: not a valid device id"]);
}

#[test]
fn options_that_are_refused_are_named_with_the_usage_of_the_verb() {
    let made = Made::new();
    for (words, rest, parts) in [
        ("find", &["!"][..], &["'!' must be followed by", "Usage: userbtrfs find "][..]),
        ("find", &["(", "-name", "x", ")"], &["'(' is not supported", "Usage: userbtrfs find "]),
        ("find", &["-size", "+1"], &["unexpected argument '-size' found"]),
        ("find", &["-name", "x", "-wholename", "y"], &["unexpected argument '-wholename' found"]),
        ("ls", &["-lZ"], &["unexpected argument '-Z' found"]),
        ("chmod", &["-c", "700", "f"], &["unexpected argument '-c' found", "userbtrfs chmod "]),
        ("chmod", &["u+q", "f"], &["'u+q'", "not a mode"]),
    ] {
        let ran = made.verb(words, rest);
        assert_eq!(ran.code, Some(1), "{words} {rest:?}");
        assert_says(&ran.stderr, parts);
    }
}

/// A user is told how to get a filesystem in which that user can write.
#[test]
fn mkfs_of_a_user_names_the_option_for_the_owner() {
    let Some(site) = Site::new() else { return };
    let this = "messages::mkfs_of_a_user_names_the_option_for_the_owner";
    if !has_program("fusermount3") || !is_apart(this, FUSE_FOR_ALL) {
        return;
    }
    let nobody = Nobody::of(&site);
    let image = site.made.at("theirs");
    fs::write(&image, b"").unwrap();
    std::os::unix::fs::chown(&image, Some(65534), Some(65534)).unwrap();
    let image = image.to_str().unwrap();
    let said = nobody.run(["mkfs", "--size", "128M", image]).good();
    assert_says(&said, &["only root can write", "--owner 65534:65534"]);
    assert!(!run(["mkfs", "-f", image]).good().contains("--owner"));
    let said = nobody.run(["mkfs", "-f", "--owner", "65534:65534", image]).good();
    assert!(!said.contains("--owner"), "{said}");
    let point = site.point();
    std::os::unix::fs::chown(&point, Some(65534), Some(65534)).unwrap();
    nobody.run(["mount", image, point.to_str().unwrap()]).good();
    let file = point.join("file");
    let written = Nobody::program("touch").arg(&file).status().unwrap();
    assert!(written.success(), "the owner writes");
    site.umount();
}
