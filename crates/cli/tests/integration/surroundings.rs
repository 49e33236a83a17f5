//! The environment of a process: limits, inherited descriptors, write-protected devices, and mount
//! points that hide the image.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use userbtrfs_testkit::linux::{Access, Linux, LoopDevice};
use userbtrfs_testkit::test_env::until;

use super::support::command::{Ran, run};
use super::support::site::Site;

/// Runs a script of bash in the folder of a site, with the command as `$U`.
fn script(site: &Site, text: &str) -> Ran {
    let mut bash = Command::new("timeout");
    bash.args(["600", "bash", "-c", text]).env("U", env!("CARGO_BIN_EXE_userbtrfs"));
    bash.current_dir(site.made.at("")).output().unwrap().into()
}

#[test]
fn image_mounted_at_the_directory_that_holds_it_is_served() {
    let Some(site) = Site::new() else { return };
    let image = site.point().join("image");
    fs::rename(site.image(), &image).unwrap();
    let words = ["mount".as_ref(), image.as_os_str()];
    run(words.into_iter().chain([site.point().as_os_str()])).good();
    fs::write(site.point().join("file"), "content").unwrap();
    assert!(!image.exists());
    site.umount();
    until("the image", || image.exists());
    fs::rename(image, site.image()).unwrap();
    site.judge();
    assert_eq!(site.made.verb("cat", &["/file"]).good(), "content");
}

#[test]
fn server_in_the_background_keeps_no_descriptor_of_its_caller() {
    let Some(site) = Site::new() else { return };
    // A pipe whose reader waits for its end, and a lock that is released with its descriptor.
    let piped = "sh -c 'exec 3>&1; $U mount image point' | timeout 300 cat";
    let locked = "(exec 9>lock; flock 9; $U mount image point)";
    for begun in [piped, locked] {
        let text = format!("set -o pipefail; {begun} && flock -n lock true && echo free");
        assert_eq!(script(&site, &text).good(), "free\n", "{begun}");
        site.umount();
    }
    site.judge();
}

#[test]
fn write_protected_device_is_mounted_read_only_and_otherwise_refused() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let device = LoopDevice::attach(&linux, &site.image(), Access::ReadOnly).unwrap();
    let path = device.path().as_os_str();
    let point = site.point();
    let mounted = run(["mount".as_ref(), path, point.as_os_str()]);
    assert_eq!(mounted.code, Some(0), "{mounted:?}");
    assert!(mounted.stderr.contains("source write-protected, mounted read-only"), "{mounted:?}");
    let line = site.line().unwrap();
    assert!(line.contains(" ro,"), "{line}");
    site.umount();
    let said = run(["mkdir".as_ref(), path, "/dir".as_ref()]).bad();
    assert!(said.contains("is read-only"), "{said}");
    drop((device, linux));
    site.judge();
}

#[test]
fn mount_of_a_root_directory_that_cannot_be_read_fails() {
    let Some(site) = Site::new() else { return };
    let find = "btrfs inspect-internal dump-tree -t 5 image | awk '/^leaf/ { print $2; exit }'; \
        btrfs-map-logical -l $(btrfs inspect-internal dump-tree -t 5 image | \
        awk '/^leaf/ { print $2; exit }') image | sed -n 's/.*physical \\([0-9]*\\).*/\\1/p'";
    let found = script(&site, find).good();
    let image = fs::OpenOptions::new().write(true).open(site.image()).unwrap();
    for physical in found.lines().skip(1) {
        image.write_all_at(&[0; 16384], physical.parse().unwrap()).unwrap();
    }
    for options in [&["-o", "ro"][..], &[]] {
        let said = site.mount(options).bad();
        assert!(said.contains("FS_TREE") && !site.is_mounted(), "{said}");
    }
}

#[test]
fn write_beyond_the_limit_of_file_sizes_is_an_error() {
    let Some(site) = Site::new() else { return };
    fs::write(site.made.at("large"), vec![7; 8 << 20]).unwrap();
    let said = script(&site, "ulimit -f 1000; $U put image large /").bad();
    assert!(said.contains("File too large"), "{said}");
    site.judge();
}

/// A user that has no processes of other tests, since the limit counts all of them.
const ALONE: u32 = 54_321;

#[test]
fn thread_start_failure_is_tolerated_or_an_error() {
    let Some(site) = Site::new() else { return };
    script(&site, "chmod 777 .; chmod 666 image; cp $U program; chmod 755 program").good();
    let limited = |processes: u32, words: &str| {
        let user = format!("setpriv --reuid {ALONE} --regid {ALONE} --clear-groups");
        script(&site, &format!("{user} prlimit --nproc={processes} ./program {words}"))
    };
    for words in ["put image /etc/hostname /", "mkdir image /dir", "get image / got"] {
        let said = limited(1, words).bad();
        assert!(said.contains("cannot start a thread"), "{words}: {said}");
    }
    site.made.verb("mkdir", &["/dir"]).good();
    site.made.verb("put", &["/etc/hostname", "/dir"]).good();
    limited(6, "get -q -j 100000 image /dir got").good();
    assert!(site.made.at("got/hostname").exists());
    site.judge();
}
