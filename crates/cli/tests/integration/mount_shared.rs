//! Several mounts of one image: one server has them all.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use userbtrfs_testkit::linux::{self, Linux};
use userbtrfs_testkit::test_env::{FUSE_FOR_ALL, has_program, is_apart, until};

use super::support::command::{Ran, run};
use super::support::nobody::Nobody;
use super::support::site::{Site, send, umount_unused};

/// An image with the subvolumes `@`, `@home` and `@/var`, and places to mount them at.
struct Subvolumes {
    site: Site,
}

impl Subvolumes {
    fn new() -> Option<Self> {
        let site = Site::new()?;
        let linux = Linux::lock().unwrap();
        let mount = linux.mount(&site.image(), "noatime").unwrap();
        let script = "btrfs -q subvolume create @; btrfs -q subvolume create @home; \
            btrfs -q subvolume create @/var; echo of root >@/file; echo of home >@home/file";
        linux::run(Command::new("sh").args(["-ec", script]).current_dir(mount.path())).unwrap();
        drop(mount);
        for name in ["home", "again", "var", "top"] {
            fs::create_dir(site.made.at(name)).unwrap();
        }
        Some(Self { site })
    }

    /// Mounts at a place of this name.
    fn mount(&self, options: &[&str], name: &str) -> Ran {
        let words = ["mount"].iter().chain(options).map(OsStr::new);
        let image = self.site.image();
        let point = self.at(name);
        run(words.chain([image.as_os_str(), point.as_os_str()]))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.site.made.at(name)
    }

    fn umount(&self, name: &str) {
        umount_unused(&[], &self.at(name)).good();
    }
}

impl Drop for Subvolumes {
    fn drop(&mut self) {
        for name in ["home", "again", "var", "top"] {
            let _ = Command::new("umount").arg("-lq").arg(self.at(name)).status();
        }
    }
}

#[test]
fn subvolumes_of_one_image_are_mounted_side_by_side() {
    let Some(all) = Subvolumes::new() else { return };
    all.mount(&["-o", "subvol=@"], "point").good();
    all.mount(&["-o", "subvol=@home,nodev"], "home").good();
    let read = |path: &str| fs::read_to_string(all.at(path)).unwrap();
    assert_eq!((read("point/file"), read("home/file")), ("of root\n".into(), "of home\n".into()));
    assert_ne!(all.at("point").metadata().unwrap().dev(), all.at("home").metadata().unwrap().dev());
    fs::write(all.at("point/new"), "one").unwrap();
    fs::write(all.at("home/new"), "two").unwrap();
    File::open(all.at("home/new")).unwrap().sync_all().unwrap();
    // Each mount is asked by its own path.
    for name in ["point", "home"] {
        let said = run(["stats".as_ref(), all.at(name).as_os_str()]).good();
        assert!(said.contains("state: read-write\n"), "{said}");
    }
    // The first ends before the second.
    let mut open = File::create(all.at("home/open")).unwrap();
    all.umount("point");
    open.write_all(b"still").unwrap();
    fs::remove_file(all.at("home/open")).unwrap();
    all.mount(&["-o", "subvol=@"], "point").good();
    let mut nothing = String::new();
    open.read_to_string(&mut nothing).unwrap_err();
    drop(open);
    all.umount("home");
    all.umount("point");
    all.site.judge();
    assert_eq!(all.site.made.verb("cat", &["/@/new", "/@home/new"]).good(), "onetwo");
}

#[test]
fn subvolume_that_is_visible_in_a_mount_is_bound_from_there() {
    let Some(all) = Subvolumes::new() else { return };
    all.mount(&["-o", "subvol=@"], "point").good();
    all.mount(&["-o", "subvol=@"], "again").good();
    all.mount(&["-o", "subvol=@/var,ro"], "var").good();
    let mut writer = File::create(all.at("point/var/log")).unwrap();
    for round in 0..50 {
        writeln!(writer, "{round}").unwrap();
        let paths = ["again/var/log", "var/log"];
        let [one, two] = paths.map(|path| fs::read_to_string(all.at(path)).unwrap());
        assert!(one == two && one.ends_with(&format!("{round}\n")), "what is written is seen");
    }
    drop(writer);
    let error = fs::write(all.at("var/log"), "").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    all.umount("again");
    all.umount("var");
    all.umount("point");
    all.site.judge();
}

#[test]
fn subvolume_that_contains_a_mounted_one_is_refused() {
    let Some(all) = Subvolumes::new() else { return };
    all.mount(&["-o", "subvol=@home"], "home").good();
    let said = all.mount(&["-o", "subvolid=5"], "top").bad();
    assert!(said.contains("contains @home, which is mounted already; mount it first"), "{said}");
    all.umount("home");
    all.mount(&["-o", "subvolid=5"], "top").good();
    all.mount(&["-o", "subvol=@home"], "home").good();
    fs::write(all.at("top/@home/new"), "content").unwrap();
    assert_eq!(fs::read_to_string(all.at("home/new")).unwrap(), "content");
    let said = all.mount(&["-o", "subvol=nothing"], "again").bad();
    assert!(said.contains("no such"), "{said}");
    all.umount("home");
    all.umount("top");
    all.site.judge();
}

#[test]
fn signal_ends_all_mounts_of_a_server() {
    let Some(all) = Subvolumes::new() else { return };
    let child = all.site.serve(&["-o", "subvol=@"]);
    all.mount(&["-o", "subvol=@home"], "home").good();
    let mut file = File::create(all.at("home/new")).unwrap();
    file.write_all(b"content").unwrap();
    send(Signal::TERM, &child);
    Ran::from(child.wait_with_output().unwrap()).good();
    assert!(file.write_all(b"more").is_err() && !all.at("home/file").exists());
    drop(file);
    all.site.judge();
    assert_eq!(all.site.made.verb("cat", &["/@home/new"]).good(), "content");
}

/// With `-f` the command stays as long as its mount, though another process serves it.
#[test]
fn mount_in_the_foreground_that_is_handed_over_stays_until_its_end() {
    let Some(all) = Subvolumes::new() else { return };
    all.mount(&["-o", "subvol=@"], "point").good();
    let mut command = Command::new(env!("CARGO_BIN_EXE_userbtrfs"));
    command.args(["mount", "-f", "-o", "subvol=@home"]).arg(all.site.image()).arg(all.at("home"));
    let mut child = command.spawn().unwrap();
    until("the mount", || all.at("home/file").exists());
    assert!(child.try_wait().unwrap().is_none());
    all.umount("home");
    assert!(child.wait().unwrap().success());
    all.umount("point");
    all.site.judge();
}

#[test]
fn users_share_no_server() {
    let Some(all) = Subvolumes::new() else { return };
    let this = "mount_shared::users_share_no_server";
    if !has_program("fusermount3") || !is_apart(this, FUSE_FOR_ALL) {
        return;
    }
    let nobody = Nobody::of(&all.site);
    for name in ["home", "again"] {
        std::os::unix::fs::chown(all.at(name), Some(65534), Some(65534)).unwrap();
    }
    let mount = |subvolume: &str, name: &str| {
        let image = all.site.image();
        let point = all.at(name);
        let words = ["mount", "-o", subvolume].map(OsStr::new);
        nobody.run(words.into_iter().chain([image.as_os_str(), point.as_os_str()]))
    };
    all.mount(&["-o", "subvol=@"], "point").good();
    assert!(mount("subvol=@home", "home").bad().contains("in use by another userbtrfs"));
    all.umount("point");
    mount("subvol=@", "point").good();
    mount("subvol=@home", "home").good();
    let said = mount("subvol=@home", "again").bad();
    assert!(said.contains("only root can mount it again"), "{said}");
    for name in ["home", "point"] {
        nobody.run(["umount".as_ref(), all.at(name).as_os_str()]).good();
    }
    all.site.judge();
}
