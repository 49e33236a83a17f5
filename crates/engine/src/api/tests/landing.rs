//! What others see and do while data is on its way to the device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use userbtrfs_device::Operation;
use userbtrfs_format::{InodeFlags, Logical};

use super::device::{Failing, Which};
use super::*;

const SECTOR: u64 = 4096;

#[test]
fn what_lands_while_a_hole_is_looked_for_is_none() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    for name in ["file", "behind"] {
        let file = fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        for at in (0..1000).step_by(2) {
            file.write_at(&[1; 4096], at * SECTOR).unwrap();
        }
    }
    fs.close().unwrap();
    // The leaves of the extents are not in memory.
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
fn what_lands_in_place_of_a_deleted_file_lands_on_nobody_elses_data() {
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
    // The next transaction that is durable lets it go.
    fs.root().create(b"other", 0o644).unwrap();
    fs.commit().unwrap();
    assert_eq!(transactions.space().usage(userbtrfs_transaction::SpaceKind::Data).allocated, 0);
    assert_eq!(transactions.space().usage(userbtrfs_transaction::SpaceKind::Data).pinned, 0);
    fs.close().unwrap();
    check(&device.memory);
}

#[test]
fn what_grows_while_it_is_on_its_way_into_the_tree_leaves_it() {
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
        // Of the same group.
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

/// What an fsync made durable is in the commit that ends its log, also where it was written again
/// while it was on its way, and is unfinished when it has landed.
#[test]
fn a_commit_has_what_was_synced_and_written_again_meanwhile() {
    let cases: [(usize, usize, u64, u64); 5] = [
        // What is appended to one that has been committed, large and small; the first block of a
        // new one.
        (10_000, 10_500, 10_500, 0),
        (100, 200, 200, 0),
        (0, 100_000, 0, 0),
        // One that ends in a hole: its only block again, and one in the hole.
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
        // One that writes no data back.
        fs.inner.transactions.as_ref().unwrap().commit().unwrap();
        let left = Arc::new(MemoryDevice::from_bytes(device.memory.snapshot()));
        drop(file);
        fs.close().unwrap();
        check(&left);
        let found = open(left, 32 << 20).read("file").unwrap();
        let least = synced.max(usize::try_from(size).unwrap());
        assert!(found.len() >= least, "{} of {least}", found.len());
        // What was written again may be there, and need not.
        assert!(found[committed..synced].iter().all(|byte| *byte == 2 || again_at == 0));
    }
}

/// A sector that is dirty keeps all of its block in memory: who writes few of many waits before the
/// bound of memory is passed.
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
        // Until it comes no further.
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
        // Until more would be too much.
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

/// The place of what is overwritten in place stays: nothing else tells that it changed.
#[test]
fn what_is_overwritten_in_place_while_a_sync_goes_on_is_made_durable_by_the_next() {
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
    // Nobody asked for it: it was old, or too much.
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
