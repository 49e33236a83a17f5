//! Names of subvolumes, as Linux treats them.
//!
//! 1. A snapshot does not contain its own name, wherever that is.

use std::thread;

use userbtrfs::mkfs::Options;
use userbtrfs::{Error, Filesystem, OpenOptions, TreeId};
use userbtrfs_testkit::linux::{Linux, btrfs_check};
use userbtrfs_testkit::skip_unless_linux;

use super::made::{MIB, Made};
use super::ours::judge_by_linux;

/// A filesystem in an image file.
struct Image {
    folder: tempfile::TempDir,
    filesystem: Filesystem,
}

impl Image {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Made::new("names", 256 * MIB, Options::default());
        made.image().write_to(&folder.path().join("image")).unwrap();
        let filesystem = OpenOptions::new().write(true).open(folder.path().join("image")).unwrap();
        Self { folder, filesystem }
    }

    fn is_absent(&self, path: &str) -> bool {
        matches!(self.filesystem.lookup(path), Err(Error::NotFound))
    }

    /// Closes the image, and has Linux judge it.
    fn judge(self, what: &str) {
        self.filesystem.close().unwrap();
        let path = self.folder.path().join("image");
        btrfs_check(&path).unwrap();
        judge_by_linux(&Linux::lock().unwrap(), what, &path);
    }
}

#[test]
fn snapshot_inside_its_source_does_not_contain_its_own_name() {
    skip_unless_linux!();
    let image = Image::new();
    let fs = &image.filesystem;
    fs.create_dir("/dir", 0o755).unwrap();
    for number in 0..2000 {
        fs.write(format!("/dir/file {number}"), vec![1; 300]).unwrap();
    }
    let dir = fs.open_dir("/dir").unwrap();
    for name in ["first", "second"] {
        // The second is made of blocks that the first one shares, and of new ones.
        fs.write("/dir/file 7", name).unwrap();
        dir.snapshot(name.as_bytes(), TreeId::FS, name == "second").unwrap();
        assert_eq!(fs.read(format!("/dir/{name}/dir/file 7")).unwrap(), name.as_bytes());
        assert!(image.is_absent(&format!("/dir/{name}/dir/{name}")));
    }
    assert!(fs.open_dir("/dir/second/dir/first").unwrap().entries().next().is_none());
    assert!(image.is_absent("/dir/first/dir/second"));
    fs.write("/dir/first/dir/file 8", b"changed").unwrap();
    fs.write("/dir/file 9", b"changed").unwrap();
    image.judge("snapshot inside its source");
}

/// Threads make snapshots of a subvolume inside of it, some of them in one transaction, beside
/// threads that change the same directory and sync.
#[test]
fn snapshots_made_at_a_time_inside_their_source_do_not_contain_themselves() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 5;
    skip_unless_linux!();
    let image = Image::new();
    let fs = &image.filesystem;
    let root = fs.root();
    for number in 0..1000 {
        fs.write(format!("/file {number}"), vec![1; 200]).unwrap();
    }
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = &root;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let name = format!("{thread} {round}");
                    root.snapshot(name.as_bytes(), TreeId::FS, round % 2 == 0).unwrap();
                }
            });
            scope.spawn(move || {
                for round in 0..ROUNDS * 4 {
                    let path = format!("/by {thread} in {round}");
                    fs.write(&path, b"content").unwrap();
                    match round % 3 {
                        0 => fs.open_file(&path).unwrap().sync_all().unwrap(),
                        1 => fs.rename(&path, format!("{path} renamed")).unwrap(),
                        _ => fs.remove_file(&path).unwrap(),
                    }
                }
            });
        }
    });
    let names: Vec<_> = (0..THREADS)
        .flat_map(|thread| (0..ROUNDS).map(move |round| format!("{thread} {round}")))
        .collect();
    for name in &names {
        assert!(image.is_absent(&format!("/{name}/{name}")), "{name}");
        for other in &names {
            let contains = |a: &str, b: &str| !image.is_absent(&format!("/{a}/{b}"));
            assert!(!(contains(name, other) && contains(other, name)), "{name} and {other}");
        }
        let (thread, round) = name.split_once(' ').unwrap();
        for earlier in 0..round.parse::<usize>().unwrap() {
            let path = format!("/{name}/{thread} {earlier}");
            assert!(!image.is_absent(&path), "{path}: it was made before the call");
        }
    }
    image.judge("snapshots made at a time");
}
