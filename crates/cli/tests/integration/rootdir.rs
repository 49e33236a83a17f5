//! `mkfs --rootdir`: a filesystem with the content of a directory.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use userbtrfs::{Extent, ExtentKind, Filesystem};
use userbtrfs_testkit::manifest::diff;
use userbtrfs_testkit::test_env::{NOBODY, has_program};
use userbtrfs_testkit::{walk_linux, walk_ours};

use crate::support::command::{Ran, verb};
use crate::support::made::judge;
use crate::support::{assert_says, pattern};

/// Fields that no copy can keep, or that filesystems count in different ways.
const NOT_COPIED: &[&str] =
    &["inode", "subvolume", "nlink", "size", "ctime", "btime", "atime", "flags", "segments"];

/// The size of a file below 100 MiB that does not fit into a filesystem of that size.
const NEARLY: usize = 99 << 20;

/// A folder with a directory in it, and room for an image.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.dir()).unwrap();
        place
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("dir")
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }

    fn mkfs(&self, options: &[&str]) -> Ran {
        let dir = self.dir();
        verb("mkfs --rootdir", &dir, &[&[self.image().to_str().unwrap()], options].concat())
    }

    /// Asserts that the image is sound and holds the directory.
    #[track_caller]
    fn assert_filled(&self) {
        let theirs = walk_linux::walk(&self.dir()).unwrap();
        let ours = walk_ours::walk(&Filesystem::open(self.image()).unwrap()).unwrap();
        let differences = diff(&theirs, &ours, NOT_COPIED);
        assert!(differences.is_empty(), "{differences:#?}");
        judge(&self.image());
    }
}

fn fill(dir: &Path) {
    fs::create_dir(dir.join("deep")).unwrap();
    fs::write(dir.join("small"), "small").unwrap();
    fs::write(dir.join("deep/large"), pattern(3_000_000)).unwrap();
    fs::hard_link(dir.join("small"), dir.join("deep/again")).unwrap();
    std::os::unix::fs::symlink("deep", dir.join("link")).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(&pattern(10_000), 1 << 35).unwrap();
}

#[test]
fn a_file_gets_a_size_that_fits() {
    let place = Place::new();
    fill(&place.dir());
    let said = place.mkfs(&["-L", "filled"]).good();
    assert_says(&said, &["filled", "Filesystem size:"]);
    place.assert_filled();
    let len = fs::metadata(place.image()).unwrap().len();
    assert!((128 << 20..192 << 20).contains(&len), "{len}");
    fs::remove_file(place.image()).unwrap();
    File::create(place.image()).unwrap();
    place.mkfs(&["-q"]).good();
    place.assert_filled();
}

#[test]
fn every_kind_of_filesystem_is_filled() {
    let options = [
        &["--size", "300M"][..],
        &["-d", "dup", "--csum", "sha256"],
        &["-m", "single", "-n", "4k", "--features", "block-group-tree"],
        &["--features", "mixed-bg"],
    ];
    for options in options {
        let place = Place::new();
        fill(&place.dir());
        place.mkfs(options).good();
        place.assert_filled();
    }
}

#[test]
fn files_are_compressed_if_asked_to() {
    for method in ["zlib:1", "lzo", "zstd:15"] {
        let place = Place::new();
        fill(&place.dir());
        let text = b"the same words again and again, ".repeat(100_000);
        fs::write(place.dir().join("text"), &text).unwrap();
        place.mkfs(&["--compress", method]).good();
        place.assert_filled();
        let filesystem = Filesystem::open(place.image()).unwrap();
        assert!(filesystem.read("/text").unwrap() == text);
        let extents = filesystem.open_file("/text").unwrap().extents().unwrap();
        let is_compressed =
            |extent: &Extent| matches!(extent.kind, ExtentKind::Data { compression: Some(_), .. });
        assert!(extents.iter().all(is_compressed), "{method}");
    }
    let place = Place::new();
    let told = place.mkfs(&["--compress", "zlib:10"]);
    assert_says(&told.stderr, &["compression level 10 is out of range for zlib (1 to 9)"]);
    assert!(!place.image().exists());
}

#[test]
fn all_files_get_one_owner() {
    let place = Place::new();
    fill(&place.dir());
    place.mkfs(&["--owner", "12:34"]).good();
    let filesystem = Filesystem::open(place.image()).unwrap();
    for met in filesystem.walk("/").unwrap() {
        let metadata = met.unwrap().inode.metadata().unwrap();
        assert_eq!((metadata.uid, metadata.gid), (12, 34));
    }
}

/// Mostly metadata, and mostly data.
#[test]
fn large_trees_of_metadata_and_of_data_fit() {
    let place = Place::new();
    for dir in 0..20 {
        let dir = place.dir().join(format!("{dir}-{}", "d".repeat(200)));
        fs::create_dir(&dir).unwrap();
        for file in 0..200 {
            fs::write(dir.join(format!("{file}-{}", "f".repeat(200))), pattern(1900)).unwrap();
        }
    }
    place.mkfs(&["-q"]).good();
    place.assert_filled();
    let place = Place::new();
    fs::write(place.dir().join("large"), vec![5; 200 << 20]).unwrap();
    place.mkfs(&["-q"]).good();
    place.assert_filled();
}

#[test]
fn failed_mkfs_leaves_no_file() {
    let place = Place::new();
    fs::write(place.dir().join("large"), vec![1; NEARLY]).unwrap();
    let said = place.mkfs(&["--size", "100M"]).bad();
    assert_says(&said, &["mkfs: ", "large: no space left on the device", "image: not all of"]);
    assert!(!place.image().exists());
    let said = verb("mkfs --rootdir", &place.dir().join("none"), &["image"]).bad();
    assert_says(&said, &["none: No such file"]);
    let inside = place.dir().join("image");
    let said = verb("mkfs --rootdir", &place.dir(), &[inside.to_str().unwrap()]).bad();
    assert_says(&said, &["image: image is inside "]);
    assert!(!inside.exists());
}

/// Neither an empty filesystem, nor the old one that `--force` overwrote.
#[test]
fn failed_mkfs_with_force_leaves_no_filesystem() {
    let place = Place::new();
    fs::write(place.dir().join("large"), vec![1; NEARLY]).unwrap();
    verb("mkfs -q", &place.image(), &["--size", "100M"]).good();
    place.mkfs(&["-f"]).bad();
    assert_says(&verb("ls", &place.image(), &[]).bad(), &["not a btrfs filesystem"]);
    assert_eq!(fs::metadata(place.image()).unwrap().len(), 100 << 20);
    // The file that is left does not prevent the next attempt.
    fs::write(place.dir().join("large"), b"small").unwrap();
    place.mkfs(&["-q"]).good();
    place.assert_filled();
}

#[test]
fn failed_mkfs_leaves_an_empty_file_empty() {
    let place = Place::new();
    fs::write(place.dir().join("large"), vec![1; NEARLY]).unwrap();
    File::create(place.image()).unwrap();
    place.mkfs(&["--size", "100M"]).bad();
    assert_eq!(fs::metadata(place.image()).unwrap().len(), 0);
}

#[test]
fn source_that_cannot_fit_overwrites_nothing() {
    let place = Place::new();
    verb("mkfs -q", &place.image(), &["--size", "100M"]).good();
    verb("mkdir", &place.image(), &["/old"]).good();
    let large = File::create(place.dir().join("large")).unwrap();
    large.write_all_at(&vec![1; 51 << 20], 1 << 40).unwrap();
    let said = place.mkfs(&["-f", "-d", "dup"]).bad();
    assert_says(
        &said,
        &["image: not enough space: data in ", "dir needs 106954752 bytes", "has 104857600"],
    );
    assert_eq!(verb("ls", &place.image(), &[]).good(), "old\n");
}

#[test]
fn source_that_cannot_be_read_overwrites_nothing() {
    let place = Place::new();
    let folder = place.0.path();
    let program = folder.join("program");
    fs::copy(env!("CARGO_BIN_EXE_userbtrfs"), &program).unwrap();
    verb("mkfs -q", &place.image(), &["--size", "100M"]).good();
    let before = fs::read(place.image()).unwrap();
    let hidden = place.dir().join("hidden");
    fs::write(&hidden, "content").unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o000)).unwrap();
    // Root can read every file.
    let is_root = rustix::process::geteuid().is_root();
    for path in [folder, &place.dir(), &place.image()].into_iter().filter(|_| is_root) {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for options in [&[][..], &["--size", "128M"]] {
        let mut mkfs = Command::new(&program);
        mkfs.args(["mkfs", "-f", "-r", "dir", "image"]).args(options).current_dir(folder);
        if is_root {
            mkfs.uid(NOBODY).gid(NOBODY);
        }
        let said = Ran::from(mkfs.output().unwrap()).bad();
        assert_says(&said, &["hidden: Permission denied"]);
        assert!(fs::read(place.image()).unwrap() == before, "{options:?}");
    }
}

#[test]
fn names_of_owners_may_be_those_of_the_tree() {
    let place = Place::new();
    let etc = place.dir().join("etc");
    fs::create_dir(&etc).unwrap();
    fs::write(etc.join("passwd"), "ann:x:4242:4243::/srv/ann:/bin/sh\n").unwrap();
    let options = ["--owner", "ann:", "--names-from-image"];
    place.mkfs(&[&options[..], &["-q"]].concat()).good();
    let filesystem = Filesystem::open(place.image()).unwrap();
    for path in ["/", "/etc/passwd"] {
        let found = filesystem.metadata(path).unwrap();
        assert_eq!((found.uid, found.gid), (4242, 4243), "{path}");
    }
    drop(filesystem);
    assert_says(&place.mkfs(&["-f", "--owner", "ann"]).bad(), &["invalid user: 'ann'"]);
    // The names of this machine are not those of the tree.
    std::os::unix::fs::symlink("/etc/group", etc.join("group")).unwrap();
    let said = place.mkfs(&["-f", "--owner", ":root", "--names-from-image"]).bad();
    assert_says(&said, &["etc/group: leads out of the tree"]);
    assert_eq!(place.mkfs(&["-f", "--names-from-image"]).code, Some(1), "no owner is given");
}

/// fakeroot(1) replaces calls of libc: what it shows of files is copied, in both directions.
#[test]
fn owners_and_devices_are_those_that_fakeroot_shows() {
    if !has_program("fakeroot") {
        return;
    }
    let place = Place::new();
    let folder = place.0.path();
    let program = place.0.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_userbtrfs"), &program).unwrap();
    let script = "umask 022; mkdir -p t/etc t/dev; echo x >t/etc/passwd; chown 33:44 t/etc/passwd; \
        mknod t/dev/null c 1 3; ./program mkfs -q --rootdir t image; \
        ./program put image t /put; ./program ls -lR image / | grep -v ^/; \
        ./program get image /put out; stat -c '%u:%g %t,%T' out/etc/passwd out/dev/null";
    let mut fakeroot = Command::new("fakeroot");
    fakeroot.args(["sh", "-ec", script]).current_dir(folder);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        fakeroot.uid(NOBODY).gid(NOBODY);
    }
    let shown = Ran::from(fakeroot.output().unwrap()).good();
    let count = |part: &str| shown.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("-rw-r--r--   1    33    44            2 "), 2, "{shown}");
    assert_eq!(count("crw-r--r--   1     0     0         1, 3 "), 2, "{shown}");
    assert!(shown.ends_with("33:44 0,0\n0:0 1,3\n"), "{shown}");
    judge(&folder.join("image"));
}

/// The path of a file may be longer than a path may be: `put` copies it, too.
#[test]
fn deep_tree_beyond_the_longest_path_is_copied() {
    let place = Place::new();
    let name = "d".repeat(200);
    let script = "for n in $(seq 30); do mkdir $0 && cd $0 || exit 1; done; echo content >leaf";
    let mut shell = Command::new("bash");
    let made = shell.args(["-c", script, &name]).current_dir(place.dir()).status().unwrap();
    assert!(made.success());
    place.mkfs(&["-q"]).good();
    let path = format!("{}/leaf", vec![name; 30].join("/"));
    assert_eq!(verb("cat", &place.image(), &[&path]).good(), "content\n");
    judge(&place.image());
    let removed = Command::new("rm").args(["-r".as_ref(), place.dir().as_os_str()]).status();
    assert!(removed.unwrap().success());
}
