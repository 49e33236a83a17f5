//! Extents of a transaction that files share by a clone: after a crash, fsynced data exists with
//! its checksums, for us and for Linux.

use std::ops::Range;
use std::thread;

use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::Time;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::stories::{judge_by_linux, judge_by_us};

use super::*;

const KIB: u64 = 1024;

/// Clones a part of a file into another one, or elsewhere into the same.
fn share((from, range): (&File, Range<u64>), (to, at): (&File, u64)) {
    to.clone_range(from, range.start, range.end - range.start, at).unwrap();
}

/// Simulates a crash, and checks that the files are unchanged.
fn crash(lab: Lab, names: &[&str]) {
    let before: Vec<_> = names.iter().map(|name| lab.fs.read(name).unwrap()).collect();
    assert!(lab.fs.stats().log.log_commits > 0, "it was logged");
    let Lab { device, memory, fs } = lab;
    let snapshot = device.snapshot();
    let cut = Time::now();
    fs.abandon();
    let lab = Lab::open(Arc::new(MemoryDevice::from_bytes(snapshot.clone())), memory);
    for (name, before) in names.iter().zip(before) {
        assert!(lab.fs.read(name).unwrap() == before, "{name}");
    }
    lab.close();
    judge(&SparseImage::from_bytes(&snapshot), cut);
}

/// Checks that Linux replays the log like us.
fn judge(image: &SparseImage, cut: Time) {
    skip_unless_linux!();
    let linux = judge_by_linux(&Linux::lock().unwrap(), image).unwrap();
    let us = judge_by_us(image).unwrap();
    assert_eq!(linux.differences_of_judges(&us, cut), [""; 0]);
}

/// The story of the same name.
#[test]
fn two_files_share_new_extents() {
    for part in [false, true] {
        let lab = Lab::new();
        lab.fs.commit().unwrap();
        let a = lab.create("a");
        let b = lab.create("b");
        a.write_at(&pattern(1, 256 << 10), 0).unwrap();
        if part {
            share((&a, 64 * KIB..128 * KIB), (&b, 0));
            share((&a, 100 * KIB..164 * KIB), (&b, 192 * KIB));
            b.sync_all().unwrap();
            a.sync_all().unwrap();
        } else {
            share((&a, 0..256 * KIB), (&b, 0));
            a.sync_all().unwrap();
            b.sync_all().unwrap();
            a.write_at(&pattern(2, 64 << 10), 64 * KIB).unwrap();
            a.sync_all().unwrap();
            b.write_at(&pattern(3, 64 << 10), 128 * KIB).unwrap();
            b.sync_all().unwrap();
        }
        crash(lab, &["a", "b"]);
    }
}

/// The story of the same name: source and destination are one file.
#[test]
fn a_part_of_a_new_extent_is_shared_and_written_again() {
    for is_committed in [true, false] {
        let lab = Lab::new();
        let a = lab.create("a");
        a.write_at(&pattern(1, 512 << 10), 0).unwrap();
        if is_committed {
            lab.fs.commit().unwrap();
            a.write_at(&pattern(2, 512 << 10), 0).unwrap();
        }
        a.set_len(320 * KIB).unwrap();
        a.write_at(&pattern(3, 64 << 10), 320 * KIB).unwrap();
        share((&a, 320 * KIB..384 * KIB), (&a, 512 * KIB));
        a.sync_all().unwrap();
        a.write_at(&pattern(4, 64 << 10), 256 * KIB).unwrap();
        a.write_at(&pattern(5, 32 << 10), 336 * KIB).unwrap();
        a.sync_all().unwrap();
        crash(lab, &["a"]);
    }
}

/// Threads clone parts of files into each other and sync them, each its own: files of one
/// subvolume, all of whose extents are new.
#[test]
fn files_cloned_by_many_while_others_sync_have_all_checksums() {
    const FILES: usize = 6;
    let lab = Lab::of(256 << 20, &Options::default(), 32 << 20);
    lab.fs.commit().unwrap();
    let names: Vec<String> = (0..FILES).map(|number| format!("file{number}")).collect();
    let files: Vec<File> = names.iter().map(|name| lab.create(name)).collect();
    for (seed, file) in (1..).zip(&files) {
        file.write_all_at(&pattern(seed, 256 << 10), 0).unwrap();
    }
    thread::scope(|scope| {
        for (seed, own) in (100..).zip(&files) {
            let files = &files;
            scope.spawn(move || {
                let mut random = Random(seed);
                for round in 0..40 {
                    let source = &files[usize::try_from(random.below(FILES as u64)).unwrap()];
                    let from = random.below(32) * 4 * KIB;
                    let to = random.below(32) * 4 * KIB;
                    let len = (1 + random.below(24)) * 4 * KIB;
                    let is_own = source.inode().id() == own.inode().id();
                    if is_own && from.abs_diff(to) < len {
                        own.write_all_at(&pattern(round, 20_000), to).unwrap();
                    } else {
                        own.clone_range(source, from, len, to).unwrap();
                    }
                    own.sync_all().unwrap();
                }
            });
        }
    });
    drop(files);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    crash(lab, &names);
}
