//! `umount` and `filesystem sync`: what has been written is in the image when they return.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use userbtrfs_testkit::test_env::{FUSE_FOR_ALL, has_program, is_apart, until};

use super::support::command::{Ran, run, verb};
use super::support::made::judge;
use super::support::nobody::Nobody;
use super::support::site::{Site, umount_unused};

/// Copies the image as it is now, and returns the copy.
fn copy(site: &Site) -> PathBuf {
    let copy = site.made.at("copy");
    fs::copy(site.image(), &copy).unwrap();
    copy
}

#[test]
fn image_is_closed_when_umount_returns() {
    let Some(site) = Site::new() else { return };
    for round in 0..10 {
        site.mount(&[]).good();
        let name = format!("file{round}");
        let content = vec![b'a' + round; 3 << 20];
        fs::write(site.point().join(&name), &content).unwrap();
        assert_eq!(umount_unused(&[], &site.point()).good(), "");
        let copy = copy(&site);
        assert_eq!(verb("cat --no-log-replay", &copy, &[&name]).stdout, content);
    }
    judge(&site.made.at("copy"));
}

#[test]
fn umount_of_a_mount_in_use_is_refused_unless_forced() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let mut file = File::create(site.point().join("file")).unwrap();
    file.write_all(b"content").unwrap();
    let said = run(["umount".as_ref(), site.point().as_os_str()]).bad();
    assert_eq!(said, format!("userbtrfs: {}: target is busy\n", site.point().display()));
    assert!(site.is_mounted());
    umount_unused(&["--force"], &site.point()).good();
    assert!(!site.is_mounted() && file.write_all(b"more").is_err());
    drop(file);
    assert_eq!(verb("cat", &copy(&site), &["/file"]).good(), "content");
    site.judge();
}

#[test]
fn umount_of_one_place_of_two_leaves_the_other() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let bound = site.made.at("bound");
    fs::create_dir(&bound).unwrap();
    let bind = || {
        let status = Command::new("mount").arg("--bind").args([&site.point(), &bound]).status();
        assert!(status.unwrap().success());
    };
    bind();
    umount_unused(&[], &bound).good();
    fs::write(site.point().join("first"), "").unwrap();
    bind();
    let ran = umount_unused(&[], &site.point());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("still mounted at another place"), "{ran:?}");
    fs::write(bound.join("second"), "").unwrap();
    umount_unused(&[], &bound).good();
    site.judge();
    assert_eq!(site.made.verb("ls", &[]).good(), "first\nsecond\n");
}

#[test]
fn lazy_umount_ends_the_mount_with_its_last_use() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let mut file = File::create(site.point().join("file")).unwrap();
    umount_unused(&["--lazy"], &site.point()).good();
    assert!(!site.is_mounted());
    file.write_all(b"content").unwrap();
    drop(file);
    site.judge();
    assert_eq!(site.made.verb("cat", &["/file"]).good(), "content");
}

#[test]
fn helper_of_umount_waits_for_the_image() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    fs::write(site.point().join("file"), "content").unwrap();
    let mut helper = Command::new(env!("CARGO_BIN_EXE_userbtrfs"));
    helper.arg0("/sbin/umount.fuse.userbtrfs").arg(site.point()).args(["-t", "fuse.userbtrfs"]);
    Ran::from(helper.arg("-n").stdin(Stdio::null()).output().unwrap()).good();
    assert_eq!(verb("cat --no-log-replay", &copy(&site), &["/file"]).good(), "content");
}

#[test]
fn users_unmount_their_own_mounts() {
    let Some(site) = Site::new() else { return };
    let this = "umount::users_unmount_their_own_mounts";
    if !has_program("fusermount3") || !is_apart(this, FUSE_FOR_ALL) {
        return;
    }
    let nobody = Nobody::of(&site);
    nobody.run(site.arguments(&[])).good();
    let said = umount_unused(&[], &site.point());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("its image may still be open"), "{said:?}");
    site.judge();
    nobody.run(site.arguments(&[])).good();
    nobody.run(["umount".as_ref(), site.point().as_os_str()]).good();
    assert!(!site.is_mounted());
    site.judge();
}

#[test]
fn umount_of_no_mount_is_refused() {
    let Some(site) = Site::new() else { return };
    let said = umount_unused(&[], &site.point()).bad();
    assert!(said.contains("not a mount of userbtrfs"), "{said}");
    let said = umount_unused(&[], &site.made.at("nothing")).bad();
    assert!(said.contains("No such file"), "{said}");
    site.mount(&[]).good();
    fs::create_dir(site.point().join("dir")).unwrap();
    let said = umount_unused(&[], &site.point().join("dir")).bad();
    assert!(said.contains("within the mount at"), "{said}");
    umount_unused(&[], &site.point()).good();
}

/// As for a block device: umount(8) and sync(2) wait for the server.
#[test]
fn image_file_mounted_with_a_loop_device_is_committed_by_sync_and_umount() {
    let Some(site) = Site::new() else { return };
    for round in 0..5 {
        site.mount(&["-o", "loop,commit=3600"]).good();
        let line = site.line().unwrap();
        assert!(line.starts_with("/dev/loop") && line.contains(" fuseblk.userbtrfs "), "{line}");
        let device = line.split(' ').next().unwrap().to_owned();
        let synced = format!("synced{round}");
        let name = format!("file{round}");
        fs::write(site.point().join(&synced), "content").unwrap();
        let status = Command::new("sync").arg("-f").arg(site.point()).status().unwrap();
        assert!(status.success());
        assert_eq!(verb("cat --no-log-replay", &copy(&site), &[&synced]).good(), "content");
        fs::write(site.point().join(&name), "content").unwrap();
        site.umount();
        assert_eq!(verb("cat --no-log-replay", &copy(&site), &[&name]).good(), "content");
        // Another test may use it at once.
        let mut list = Command::new("losetup");
        list.args(["-n", "-O", "BACK-FILE"]).arg(&device);
        let mut file = || String::from_utf8(list.output().unwrap().stdout).unwrap();
        let image = site.image().display().to_string();
        until("the end of the loop device", || !file().contains(&image));
    }
    site.judge();
}

/// The commit at the end fails, since the disk below the image is full.
#[test]
fn umount_reports_that_the_last_commit_failed() {
    let Some(site) = Site::new() else { return };
    let small = site.made.at("small");
    fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    let mounted = mount.args(["-t", "tmpfs", "-o", "size=8M", "tmpfs"]).arg(&small).status();
    assert!(mounted.unwrap().success());
    let image = small.join("image");
    verb("mkfs -q", &image, &["--size", "256M"]).good();
    run(["mount".as_ref(), image.as_os_str(), site.point().as_os_str()]).good();
    fs::write(site.point().join("file"), vec![1; 16 << 20]).unwrap();
    let said = umount_unused(&[], &site.point()).bad();
    assert!(!site.is_mounted());
    let unmounted = Command::new("umount").arg(&small).status().unwrap();
    assert!(unmounted.success(), "the image is closed");
    assert!(said.contains("No space left on device"), "{said}");
}

#[test]
fn sync_of_a_mount_makes_it_durable() {
    let Some(site) = Site::new() else { return };
    site.mount(&["-o", "commit=3600"]).good();
    let dir = site.point().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "content").unwrap();
    assert_eq!(run(["filesystem".as_ref(), "sync".as_ref(), dir.as_os_str()]).good(), "");
    assert_eq!(verb("cat --no-log-replay", &copy(&site), &["/dir/file"]).good(), "content");
    umount_unused(&[], &site.point()).good();
    let said = run(["filesystem".as_ref(), "sync".as_ref(), dir.as_os_str()]).bad();
    assert!(said.contains("No such file"), "{said}");
    let said = run(["filesystem".as_ref(), "sync".as_ref(), site.point().as_os_str()]).bad();
    assert!(said.contains("not a mount of userbtrfs"), "{said}");
}
