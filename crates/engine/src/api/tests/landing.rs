//! Concurrent operations while data is in flight to the device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use userbtrfs_device::Operation;
use userbtrfs_format::{InodeFlags, Logical};

use super::device::{Failing, Which};
use super::*;
use crate::units::SECTOR;

#[test]
fn seek_hole_skips_data_that_lands_meanwhile() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    for name in ["file", "behind"] {
        let file = fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        for at in (0..1000).step_by(2) {
            file.write_at(&[1; 4096], at * SECTOR).unwrap();
        }
    }
    fs.close().unwrap();
    // The leaves of the extents are not cached.
    let fs = device.open(32 << 20);
    let file = fs.open_file("file").unwrap();
    file.write_at(&[2; 4096], 801 * SECTOR).unwrap();
    device.hold(Operation::Read, Which::First);
    thread::scope(|scope| {
        let seeking = scope.spawn(|| file.seek_hole(800 * SECTOR).unwrap());
        device.wait_until_held();
        let pages = fs.inner.files.get(file.inode().id()).unwrap();
        fs.inner.writer().unwrap().write_back(&pages).unwrap();
        device.release();
        assert_eq!(seeking.join().unwrap(), 803 * SECTOR);
    });
    drop(file);
    fs.close().unwrap();
}

#[test]
fn growth_while_an_fsync_has_data_in_flight_is_logged_by_the_next_fsync() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    fs.commit().unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    // Its data is taken, and the file is not logged yet.
    device.hold(Operation::Write, Which::First);
    thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync_data().unwrap());
        device.wait_until_held();
        file.set_len(12_288).unwrap();
        device.release();
        syncing.join().unwrap();
    });
    file.sync_all().unwrap();
    drop(file);
    fs.abandon();
    let fs = device.open(32 << 20);
    assert_eq!(fs.metadata("file").unwrap().size, 12_288);
    fs.close().unwrap();
}

#[test]
fn write_in_flight_of_a_deleted_file_overwrites_no_reused_space() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    file.allocate(0, 1 << 20, Allocate::Reserve { keep_size: false }).unwrap();
    fs.commit().unwrap();
    let extents = file.extents().unwrap();
    let [Extent { kind: ExtentKind::Prealloc { logical }, .. }] = extents[..] else {
        panic!("{extents:?}")
    };
    file.write_at(&[7; 4096], 0).unwrap();
    let pages = fs.inner.files.get(file.inode().id()).unwrap();
    drop(file);
    let transactions = fs.inner.transactions.as_ref().unwrap();
    device.hold(Operation::Write, Which::First);
    let given = thread::scope(|scope| {
        let writing = scope.spawn(|| fs.inner.writer().unwrap().write_back(&pages));
        device.wait_until_held();
        let removed = fs.remove_file("file");
        let commits = [transactions.commit(), transactions.commit()];
        let given: Vec<_> =
            std::iter::from_fn(|| transactions.allocate_data(16 << 20, SECTOR).ok()).collect();
        device.release();
        writing.join().unwrap().unwrap();
        assert!(removed.is_ok() && commits.iter().all(Result::is_ok), "{removed:?} {commits:?}");
        given
    });
    let overlaps = |(at, len): &(Logical, u64)| at.0 < logical + (1 << 20) && logical < at.0 + len;
    assert!(!given.iter().any(overlaps), "{logical} is in {given:?}");
    for (at, len) in given {
        transactions.give_back_data(at, len);
    }
    drop(pages);
    // The next durable transaction frees it.
    fs.root().create(b"other", 0o644).unwrap();
    fs.commit().unwrap();
    assert_eq!(transactions.space().usage(userbtrfs_transaction::SpaceKind::Data).allocated, 0);
    assert_eq!(transactions.space().usage(userbtrfs_transaction::SpaceKind::Data).pinned, 0);
    fs.close().unwrap();
    check(&device.memory);
}

#[test]
fn file_that_grows_while_it_is_written_is_not_inline() {
    let grow: [fn(&File); 2] = [
        |file| file.set_len(10_000).unwrap(),
        |file| assert_eq!(file.write_at(&[3; 10], 9000).unwrap(), 10),
    ];
    for grow in grow {
        let device = Failing::new(128);
        let fs = device.open(32 << 20);
        let file = fs.root().create(b"small", 0o644).unwrap().open().unwrap();
        let other = fs.root().create(b"other", 0o644).unwrap().open().unwrap();
        fs.commit().unwrap();
        file.write_at(&[1; 100], 0).unwrap();
        // Written in the same group.
        other.write_at(&[2].repeat(100_000), 0).unwrap();
        device.hold(Operation::Write, Which::First);
        thread::scope(|scope| {
            let committing = scope.spawn(|| fs.commit().unwrap());
            device.wait_until_held();
            grow(&file);
            device.release();
            committing.join().unwrap();
        });
        let size = file.len();
        let extents = file.extents().unwrap();
        let is_inline = |extent: &Extent| extent.kind == ExtentKind::Inline;
        assert!(!extents.iter().any(is_inline), "{extents:?}");
        drop((file, other));
        fs.close().unwrap();
        check(&device.memory);
        let found = device.open(32 << 20).read("small").unwrap();
        assert_eq!((found.len() as u64, &found[..100]), (size, &[1; 100][..]));
    }
}

/// The commit that ends a log has the data that an fsync made durable, even if it was overwritten
/// while it was in flight, and is dirty again when it has landed.
#[test]
fn commit_has_synced_data_that_was_overwritten_in_flight() {
    let cases: [(usize, usize, u64, u64); 5] = [
        // Data appended to a committed file, large and small; the first block of a new file.
        (10_000, 10_500, 10_500, 0),
        (100, 200, 200, 0),
        (0, 100_000, 0, 0),
        // A file that ends in a hole: its only block again, and a block in the hole.
        (0, 4096, 0, 100_000),
        (0, 4096, 8192, 100_000),
    ];
    for (committed, synced, again_at, size) in cases {
        let device = Failing::new(128);
        let fs = device.open(32 << 20);
        let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
        file.write_at(&vec![1; committed], 0).unwrap();
        fs.commit().unwrap();
        file.write_at(&vec![2; synced - committed], committed as u64).unwrap();
        file.set_len(size.max(file.len())).unwrap();
        device.hold(Operation::Write, Which::First);
        thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync_all().unwrap());
            device.wait_until_held();
            file.write_at(&[3; 500], again_at).unwrap();
            device.release();
            syncing.join().unwrap();
        });
        // A commit that writes no data back.
        fs.inner.transactions.as_ref().unwrap().commit().unwrap();
        let left = Arc::new(MemoryDevice::from_bytes(device.memory.snapshot()));
        drop(file);
        fs.close().unwrap();
        check(&left);
        let found = open(left, 32 << 20).read("file").unwrap();
        let least = synced.max(usize::try_from(size).unwrap());
        assert!(found.len() >= least, "{} of {least}", found.len());
        // The overwriting data may or may not be there.
        assert!(found[committed..synced].iter().all(|byte| *byte == 2 || again_at == 0));
    }
}

/// A dirty sector pins all of its block: a writer of few sectors in many blocks waits before the
/// memory bound is exceeded.
#[test]
fn scattered_writes_take_no_more_memory_than_the_bound() {
    const PARTS: u64 = 512;
    let device = Failing::new(256);
    let fs = device.open(16 << 20);
    let bound = fs.inner.files.bytes_max();
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let large = vec![1; 128 << 10];
    (0..PARTS).for_each(|at| file.write_all_at(&large, at << 17).unwrap());
    fs.commit().unwrap();
    device.hold(Operation::Write, Which::All);
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut part = large.clone();
            for at in 0..PARTS {
                assert_eq!(file.read_at(&mut part, at << 17).unwrap(), part.len());
                file.write_all_at(&[2; 4096], (at << 17) + 8192).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Until the writer blocks.
        let mut last = 0;
        while written.load(Ordering::Relaxed) != last || last == 0 {
            last = written.load(Ordering::Relaxed);
            thread::sleep(Duration::from_millis(200));
        }
        let used = fs.inner.files.used_bytes();
        device.release();
        assert!(
            last < PARTS && used <= bound + (1 << 20),
            "{used} of {bound} bytes, {last} written"
        );
    });
    drop(file);
    fs.close().unwrap();
}

#[test]
fn many_writers_never_have_more_unfinished_than_the_bound() {
    const WRITERS: usize = 64;
    let device = Failing::new(256);
    let fs = device.open(8 << 20);
    let max = OpenOptions::new().memory(8 << 20).writer().unfinished_max;
    let part = vec![7; 256 << 10];
    let files: Vec<_> = (0..WRITERS)
        .map(|number| fs.root().create(number.to_string().as_bytes(), 0o644).unwrap())
        .collect();
    fs.commit().unwrap();
    device.hold(Operation::Write, Which::All);
    thread::scope(|scope| {
        for inode in &files {
            scope.spawn(|| {
                let file = inode.open().unwrap();
                file.write_all_at(&part, 0).unwrap();
                file.write_all_at(&part, 10 << 20).unwrap();
            });
        }
        // Until more would exceed the bound.
        while fs.inner.files.unfinished_bytes() + max / 8 < max {
            thread::yield_now();
        }
        device.release();
    });
    let peak = fs.inner.files.unfinished_peak();
    assert!(peak > max / 2 && peak <= max, "{peak} of {max}");
    for inode in &files {
        assert!(inode.open().unwrap().read_all().unwrap()[10 << 20..] == part[..]);
    }
    drop(files);
    fs.close().unwrap();
    check(&device.memory);
}

/// Overwriting in place keeps the extent: only the writeback shows that the data changed.
#[test]
fn next_sync_makes_nocow_data_written_during_a_sync_durable() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    let inode = fs.root().create(b"file", 0o644).unwrap();
    inode.set_flags(InodeFlags::NODATACOW).unwrap();
    let file = inode.open().unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    fs.commit().unwrap();
    file.write_at(&[2; 4096], 0).unwrap();
    device.hold(Operation::Write, Which::First);
    thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync_all().unwrap());
        device.wait_until_held();
        file.write_at(&[3; 4096], SECTOR).unwrap();
        device.release();
        syncing.join().unwrap();
    });
    // Background writeback: the data was old, or there was too much.
    let pages = fs.inner.files.get(inode.id()).unwrap();
    fs.inner.writer().unwrap().write_back(&pages).unwrap();
    let before = device.flushes();
    file.sync_all().unwrap();
    assert!(device.flushes() > before, "it is on the device, but may be lost");
    let after = device.flushes();
    file.sync_all().unwrap();
    assert_eq!(device.flushes(), after, "nothing changed");
    drop((file, pages, inode));
    fs.close().unwrap();
}
