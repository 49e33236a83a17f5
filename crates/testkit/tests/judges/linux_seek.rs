//! `SEEK_DATA` and `SEEK_HOLE` from many offsets, with the results of Linux.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{SeekFrom, copy_file_range, seek};
use rustix::io::Errno;
use userbtrfs::{Error, ExtentKind, File, Result};
use userbtrfs_format::SECTOR;
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::manifest::Kind;
use userbtrfs_testkit::skip_unless_linux;

use super::{Unpacked, open};

/// Images with small files that have holes.
const IMAGES: &[&str] = &["holes", "hole-items", "extents", "shared", "basic"];

#[test]
fn seeks_return_the_same_offsets_as_in_linux() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    for name in IMAGES {
        let golden = Golden::named(name);
        let unpacked = Unpacked::new(&golden);
        let filesystem = open(&unpacked.image, 4).unwrap();
        let mount = linux.mount(&unpacked.image, "ro,noatime,subvolid=5").unwrap();
        for entry in golden.manifest().unwrap().unwrap().entries() {
            if entry.kind == Kind::File {
                let path = entry.path.as_slice();
                let below = std::ffi::OsStr::from_bytes(&path[1..]);
                let theirs = std::fs::File::open(mount.path().join(Path::new(below))).unwrap();
                compare(&filesystem.open_file(path).unwrap(), &theirs, &entry.path.to_string());
            }
        }
    }
    linux.assert_no_complaints().unwrap();
}

fn compare(ours: &File, theirs: &std::fs::File, path: &str) {
    for offset in places(ours) {
        let expected = seek(theirs, SeekFrom::Data(offset));
        assert_eq!(errno(ours.seek_data(offset)), expected, "{path}: data from {offset}");
        let expected = seek(theirs, SeekFrom::Hole(offset));
        assert_eq!(errno(ours.seek_hole(offset)), expected, "{path}: hole from {offset}");
    }
}

fn errno(found: Result<u64>) -> rustix::io::Result<u64> {
    found.map_err(|error: Error| Errno::from_raw_os_error(error.errno()))
}

/// Returns starts, middles and ends of extents and of their sectors, and the adjacent offsets.
fn places(file: &File) -> BTreeSet<u64> {
    let extents = file.extents().unwrap();
    let mut places = BTreeSet::from([0, file.len()]);
    for extent in &extents {
        let start = extent.start;
        let end = extent.start + extent.len;
        places.extend([start, start + extent.len / 2, end, end / SECTOR * SECTOR]);
        places.insert(end.next_multiple_of(SECTOR));
    }
    places.iter().flat_map(|at| [at.saturating_sub(1), *at, at + 1]).collect()
}

#[test]
fn extents_have_no_gap_and_are_data_where_a_seek_finds_it() {
    for name in IMAGES {
        let golden = Golden::named(name);
        let unpacked = Unpacked::new(&golden);
        let filesystem = open(&unpacked.image, 4).unwrap();
        for entry in golden.manifest().unwrap().unwrap().entries() {
            if entry.kind != Kind::File {
                continue;
            }
            let file = filesystem.open_file(entry.path.as_slice()).unwrap();
            let mut end = 0;
            let mut data: Vec<(u64, u64)> = Vec::new();
            for extent in file.extents().unwrap() {
                assert_eq!(extent.start, end, "{}", entry.path);
                end += extent.len;
                match (extent.kind, data.last_mut()) {
                    (ExtentKind::Hole | ExtentKind::Prealloc { .. }, _) => {}
                    (_, Some((start, len))) if *start + *len == extent.start => *len += extent.len,
                    _ => data.push((extent.start, extent.len)),
                }
            }
            assert_eq!((end, &data), (file.len(), &entry.segments), "{}", entry.path);
        }
    }
}

#[test]
fn inline_data_may_be_followed_by_an_extent() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    run(Command::new("mkfs.btrfs").arg("-q").arg(&image)).unwrap();
    let mount = linux.mount(&image, "noatime").unwrap();
    let [short, other] = ["short", "other"].map(|name| mount.path().join(name));
    std::fs::write(&short, [1; 1000]).unwrap();
    std::fs::write(&other, [2; 2 * 4096]).unwrap();
    let [to, from] = [&short, &other].map(|path| {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        file.sync_all().unwrap();
        file
    });
    let mut start = SECTOR;
    let mut target = SECTOR;
    copy_file_range(from, Some(&mut start), to, Some(&mut target), 4096).unwrap();
    drop(mount);
    let file = open(&image, 4).unwrap().open_file("/short").unwrap();
    let kinds: Vec<_> = file.extents().unwrap().iter().map(|extent| extent.kind).collect();
    assert!(matches!(kinds[..], [ExtentKind::Inline, ExtentKind::Data { .. }]), "{kinds:?}");
    let content = [[1; 1000].as_slice(), &[0; 3096], &[2; 4096]].concat();
    assert_eq!(file.read_all().unwrap(), content);
    let mount = linux.mount(&image, "ro,noatime").unwrap();
    compare(&file, &std::fs::File::open(mount.path().join("short")).unwrap(), "/short");
    linux.assert_no_complaints().unwrap();
}
