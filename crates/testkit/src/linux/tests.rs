//! The guards, on images made here.

use std::fs;
use std::fs::File;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::walk_linux::walk;

/// An empty btrfs in a file.
fn image() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    File::create(&image).unwrap().set_len(128 << 20).unwrap();
    run(Command::new("mkfs.btrfs").arg("-q").arg(&image)).unwrap();
    (folder, image)
}

fn loops_of(image: &Path) -> String {
    let output = run(Command::new("losetup").arg("--associated").arg(image)).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn files_written_under_one_mount_are_walked_under_another() {
    crate::skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let (_folder, image) = image();
    let mount = linux.mount(&image, "noatime").unwrap();
    fs::write(mount.path().join("file"), b"content").unwrap();
    run(Command::new("btrfs").args(["subvolume", "create"]).arg(mount.path().join("sub"))).unwrap();
    fs::write(mount.path().join("sub/file"), b"content").unwrap();
    drop(mount);
    let manifest = walk(linux.mount(&image, "ro,noatime").unwrap().path()).unwrap();
    assert!(manifest.get(b"/sub").unwrap().subvolume);
    let [a, b] = [b"/file".as_slice(), b"/sub/file"].map(|path| manifest.get(path).unwrap());
    assert_eq!((a.inode, &a.link, &b.link), (b.inode, &None, &None));
    assert!(a.btime.is_some());
    btrfs_check(&image).unwrap();
    linux.assert_no_complaints().unwrap();
}

#[test]
fn guards_undo_what_they_did_also_in_a_panic() {
    crate::skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let (_folder, image) = image();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _mount = linux.mount(&image, "ro").unwrap();
        assert!(loops_of(&image).starts_with("/dev/loop"));
        panic!("as a test that fails");
    }));
    assert!(panicked.is_err());
    // Another process that looks at all devices may have it open for a moment.
    test_env::until("the end of the loop device", || loops_of(&image).is_empty());
}

#[test]
fn a_damaged_image_is_complained_about() {
    crate::skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let (_folder, image) = image();
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    let primary = 64 << 10;
    std::os::unix::fs::FileExt::write_all_at(&file, b"damage", primary + 0x300).unwrap();
    assert!(btrfs_check(&image).is_err());
    assert!(linux.mount(&image, "ro").is_err());
    assert!(!linux.complaints().unwrap().is_empty());
    assert_eq!(linux.complaints().unwrap(), [""; 0], "told once");
}

#[test]
fn damage_on_devices_of_others_is_not_complained_about() {
    crate::skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let (_folder, image) = image();
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    // Damages the generation of the superblock, so that the checksum does not match.
    std::os::unix::fs::FileExt::write_all_at(&file, b"damage", (64 << 10) + 0x48).unwrap();
    let attached = run(Command::new("losetup").args(["--find", "--show"]).arg(&image)).unwrap();
    let device = String::from_utf8(attached.stdout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mount =
        Command::new("mount").args(["-t", "btrfs"]).arg(device.trim()).arg(folder.path()).output();
    run(Command::new("losetup").arg("--detach").arg(device.trim())).unwrap();
    assert!(!mount.unwrap().status.success());
    assert_eq!(linux.complaints().unwrap(), [""; 0]);
    assert!(linux.mount(&image, "ro").is_err());
    assert!(!linux.complaints().unwrap().is_empty(), "the same of our own device");
}
