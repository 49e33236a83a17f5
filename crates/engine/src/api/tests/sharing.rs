//! Extents of a transaction that files share, as after a clone: after a crash, fsynced data exists
//! with its checksums, for us and for Linux.

use std::ops::Range;

use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::Time;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::stories::{judge_by_linux, judge_by_us};
use userbtrfs_transaction::HandleKind;

use super::*;
use crate::data::{BackingExtents, ExtentMaps};
use crate::inode::ops;
use crate::inode::{ExtentMapKind, FileChange};

const KIB: u64 = 1024;

/// Clones a part of a file into another one, or elsewhere into the same.
fn share(lab: &Lab, (from, range): (&File, Range<u64>), (to, at): (&File, u64)) {
    let inner = &lab.fs.inner;
    for file in [from, to] {
        let pages = inner.files.get(file.inode().id()).unwrap();
        inner.writer().unwrap().write_back(&pages).unwrap();
    }
    let (source, len) = (BackingExtents::new(from.pages.inode(), None), range.end - range.start);
    let mut segments = ExtentMaps::new(inner.nodes.tree_roots(), &source, range.start, range.end);
    let mut parts = Vec::new();
    while let Some(segment) = segments.next().unwrap() {
        assert!(matches!(segment.kind, ExtentMapKind::Regular(..)), "all of it was written");
        parts.push((at + segment.start - range.start, segment.end - segment.start, segment.kind));
    }
    let reserved = inner.nodes.reserve(20).unwrap();
    let put = |file: &mut FileChange<'_>| {
        for (start, bytes, kind) in parts {
            file.put(start, start + bytes, kind, false);
            file.add_bytes(bytes.cast_signed());
        }
        file.set_size(file.size().max(at + len));
        file.set_disk_size(file.size());
        file.touch();
    };
    let inode = to.pages.inode();
    ops::change_file(&inner.nodes, inode, HandleKind::Operation, Some(reserved), put).unwrap();
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

/// The story of the same name, which needs clone.
#[test]
fn two_files_share_new_extents() {
    for part in [false, true] {
        let lab = Lab::new();
        lab.fs.commit().unwrap();
        let (a, b) = (lab.create("a"), lab.create("b"));
        a.write_at(&pattern(1, 256 << 10), 0).unwrap();
        if part {
            share(&lab, (&a, 64 * KIB..128 * KIB), (&b, 0));
            share(&lab, (&a, 100 * KIB..164 * KIB), (&b, 192 * KIB));
            b.sync_all().unwrap();
            a.sync_all().unwrap();
        } else {
            share(&lab, (&a, 0..256 * KIB), (&b, 0));
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
        share(&lab, (&a, 320 * KIB..384 * KIB), (&a, 512 * KIB));
        a.sync_all().unwrap();
        a.write_at(&pattern(4, 64 << 10), 256 * KIB).unwrap();
        a.write_at(&pattern(5, 32 << 10), 336 * KIB).unwrap();
        a.sync_all().unwrap();
        crash(lab, &["a"]);
    }
}
