//! Images of whole disks: a filesystem in a partition, or behind an offset; and images that cannot
//! be locked.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use userbtrfs::device::{FileDevice, FileOptions};
use userbtrfs_testkit::test_env::has_program;

use super::support::command::{run, verb};
use super::support::made::{Made, judge};
use super::support::site::Site;

const MIB: u64 = 1 << 20;
/// The second partition, in MiB.
const START: u64 = 9;
const LEN: u64 = 150;

/// A disk of three partitions, the first and the last filled with a pattern.
struct Disk {
    folder: TempDir,
}

impl Disk {
    /// Returns nothing, and says so, where sfdisk is not installed. `label` is `gpt` or `dos`.
    fn new(label: &str) -> Option<Self> {
        if !has_program("sfdisk") {
            return None;
        }
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        let file = File::create_new(disk.image()).unwrap();
        file.set_len(200 * MIB).unwrap();
        let mut sfdisk = Command::new("sfdisk");
        sfdisk.args(["-q", "--no-reread"]).arg(disk.image()).stdin(Stdio::piped());
        let mut child = sfdisk.spawn().unwrap();
        let table = format!("label: {label}\n1MiB 8MiB\n{START}MiB {LEN}MiB\n159MiB 8MiB\n");
        child.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        let pattern = vec![0xa5; 8 << 20];
        file.write_all_at(&pattern, MIB).unwrap();
        file.write_all_at(&pattern, 159 * MIB).unwrap();
        Some(disk)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Asserts that the filesystem is sound, and that nothing around it was written.
    fn judge(&self) {
        let file = File::open(self.image()).unwrap();
        let mut bytes = vec![0; 8 << 20];
        for around in [MIB, 159 * MIB] {
            file.read_exact_at(&mut bytes, around).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0xa5));
        }
        let mut bytes = vec![0; usize::try_from(LEN * MIB).unwrap()];
        file.read_exact_at(&mut bytes, START * MIB).unwrap();
        let part = self.folder.path().join("part");
        fs::write(&part, bytes).unwrap();
        judge(&part);
    }
}

#[test]
fn filesystem_in_a_partition_is_made_changed_and_read() {
    for label in ["gpt", "dos"] {
        let Some(disk) = Disk::new(label) else { return };
        let does = |words: &str, rest: &[&str]| verb(words, &disk.image(), rest).good();
        does("mkfs -q --partition 2", &[]);
        let big = disk.folder.path().join("big");
        fs::write(&big, vec![7; 3 << 20]).unwrap();
        does("put --partition 2", &[big.to_str().unwrap(), "/big"]);
        // The same filesystem, given by its offset.
        does("mkdir --offset 9M", &["/dir"]);
        does("fallocate -l 1M --offset 4K --image-offset 9M", &["/reserved"]);
        assert_eq!(does("ls --partition 2", &[]), "big\ndir\nreserved\n");
        assert_eq!(does("cat --offset 9437184", &["/big"]).len(), 3 << 20);
        assert!(does("dump super --partition 2", &[]).contains("_BHRfS_M"));
        does("subvolume list --partition 2", &[]);
        disk.judge();
    }
}

#[test]
fn image_of_a_disk_without_a_partition_says_which_to_give() {
    let Some(disk) = Disk::new("gpt") else { return };
    let fails = |words: &str| verb(words, &disk.image(), &[]).bad();
    let none = "has a partition table, and no partition holds btrfs";
    assert!(fails("ls").contains(none));
    verb("mkfs -q --partition 2", &disk.image(), &[]).good();
    let one = "has a partition table; partition 2 holds btrfs (--partition 2)";
    for words in ["ls", "df", "dump super", "dump tree", "log replay", "subvolume list", "shell"] {
        let said = fails(words);
        assert!(said.contains(one), "{words}: {said}");
    }
    assert!(fails("ls --partition 1").contains("not a btrfs filesystem"));
    assert!(fails("ls --partition 4").contains("no partition 4"));
    assert!(fails("ls --offset 1G").contains("outside its 209715200 bytes"));
    let said = verb("ls --offset 1M --partition 1", &disk.image(), &[]).stderr;
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn partition_of_an_image_is_mounted() {
    let Some(disk) = Disk::new("gpt") else { return };
    let Some(site) = Site::new() else { return };
    verb("mkfs -q --partition 2", &disk.image(), &[]).good();
    let image = disk.image();
    let point = site.point();
    let mount = |options: &[&str]| {
        let words = ["mount"].iter().chain(options).map(AsRef::as_ref);
        run(words.chain([image.as_os_str(), point.as_os_str()]))
    };
    assert!(mount(&[]).bad().contains("--partition 2"));
    for options in [["--partition", "2"], ["-o", "partition=2"], ["-o", "offset=9M"]] {
        mount(&options).good();
        let name = format!("by {}", options[1]);
        fs::write(point.join(&name), "content").unwrap();
        site.umount();
        assert_eq!(verb("cat --partition 2", &image, &[&name]).good(), "content");
    }
    disk.judge();
}

#[test]
fn image_that_cannot_be_locked_is_opened_without_a_lock() {
    let made = Made::new();
    let options = FileOptions { writable: true, ..FileOptions::default() };
    let held = FileDevice::open(made.image(), options).unwrap();
    assert!(made.verb("mkdir", &["/dir"]).bad().contains("in use by another userbtrfs"));
    made.does("mkdir --no-lock", &["/dir"]);
    drop(held);
    assert_eq!(made.verb("ls", &[]).good(), "dir\n");
    made.judge();
}
