//! Devices that fail.

use userbtrfs_sync::{Class, Mutex};

use super::device::Failing;
use super::*;
use crate::units::SECTOR;

#[test]
fn write_error_is_reported_once_and_old_data_stays() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let other = fs.root().create(b"other", 0o644).unwrap().open().unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    file.sync_all().unwrap();
    device.fail_writes(true);
    file.write_at(&[b'!'; 4096], 4096).unwrap();
    file.write_at(&[b'!'; 4096], 16384).unwrap();
    other.write_at(&[2; 8192], 0).unwrap();
    let told = file.sync_all().unwrap_err();
    assert!(matches!(told, Error::Unwritten(_)));
    let words = told.to_string();
    assert_eq!(words.matches("inode").count(), 1, "{words}");
    assert_eq!(words.matches("offset 4096").count(), 1, "{words}");
    file.sync_all().unwrap();
    other.sync_all().unwrap();
    let expected = [&[1; 8192][..], &[0; 12288]].concat();
    assert!(file.read_all().unwrap() == expected);
    file.write_at(&[b'!'; 4096], 0).unwrap();
    let committed = fs.commit();
    assert!(matches!(committed, Err(Error::Unwritten(_))), "{committed:?}");
    assert!(matches!(file.close(), Err(Error::Unwritten(_))));
    device.fail_writes(false);
    drop(other);
    fs.close().unwrap();
    check(&device.memory);
    let fs = device.open(32 << 20);
    assert!(fs.read("file").unwrap() == expected);
    assert!(fs.read("other").unwrap() == [2; 8192]);
    fs.close().unwrap();
}

#[test]
fn failing_file_does_not_prevent_writeback_of_others() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    let write = |n: usize, byte: u8| {
        let name = format!("file {n}");
        let file = fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        file.write_at(&[byte; 8192], 0).unwrap();
    };
    device.fail_writes(true);
    write(0, b'!');
    (1..100).for_each(|n| write(n, 7));
    assert!(is_unwritten(fs.commit()));
    assert_eq!(fs.inner.files.unfinished_bytes(), 0);
    device.fail_writes(false);
    fs.close().unwrap();
    let fs = device.open(32 << 20);
    (1..100).for_each(|n| assert!(fs.read(format!("file {n}")).unwrap() == [7; 8192]));
    fs.close().unwrap();
}

/// Returns a file with dirty data that cannot be written, opened twice.
fn with_lost_data() -> (Arc<Failing>, Filesystem, [File; 2]) {
    let device = Failing::new(128);
    let fs = device.open(4 << 20);
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    fs.commit().unwrap();
    device.fail_writes(true);
    file.write_at(&[b'!'; 8192], 0).unwrap();
    let files = [file, fs.open_file("file").unwrap()];
    (device, fs, files)
}

fn is_unwritten(result: Result<()>) -> bool {
    match result {
        Ok(()) => false,
        Err(Error::Unwritten(_)) => true,
        Err(other) => panic!("{other}"),
    }
}

/// Writes the dirty data of a file like the background worker, without reporting the error.
fn write_in_the_background(fs: &Filesystem, id: InodeId) {
    let pages = fs.inner.files.get(id).unwrap();
    fs.inner.writer().unwrap().write_back(&pages).unwrap_err();
}

#[test]
fn each_open_file_reports_a_write_error_on_sync() {
    let (_device, fs, [one, other]) = with_lost_data();
    assert!(is_unwritten(one.sync_all()));
    assert!(is_unwritten(other.sync_all()), "nothing of it is durable");
    assert!(!is_unwritten(one.sync_all()));
    assert!(!is_unwritten(other.sync_all()));
    assert!(!is_unwritten(fs.open_file("file").unwrap().sync_all()));
    assert!(!is_unwritten(fs.commit()));
}

#[test]
fn close_of_one_file_keeps_error_for_sync_of_another() {
    let (_device, fs, [one, other]) = with_lost_data();
    write_in_the_background(&fs, one.inode().id());
    assert!(is_unwritten(other.close()));
    assert!(is_unwritten(one.sync_all()));
    assert!(!is_unwritten(one.close()), "told before");
}

#[test]
fn error_while_file_is_closed_is_reported_after_eviction() {
    let (_device, fs, [one, other]) = with_lost_data();
    let id = one.inode().id();
    drop((one, other));
    write_in_the_background(&fs, id);
    // Other files evict it.
    let other = fs.root().create(b"other", 0o644).unwrap().open().unwrap();
    other.write_all_at(&[2].repeat(16 << 20), 0).unwrap();
    other.sync_all().unwrap();
    assert!(fs.inner.files.get(id).is_none(), "in memory");
    assert!(is_unwritten(fs.commit()));
    assert!(!is_unwritten(fs.commit()));
    // Like a server that opens the file for each request.
    assert!(is_unwritten(fs.inode(id).sync_all()));
    assert!(!is_unwritten(fs.inode(id).sync_all()));
}

/// Returns a file of many extents, the leaves of which are not cached.
fn with_many_leaves(device: &Arc<Failing>, extents: u64, memory: u64) -> (Filesystem, File) {
    let fs = device.open(memory);
    for (name, extents) in [("file", extents), ("behind", 200)] {
        let file = fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        for at in 0..extents {
            file.allocate(at * STRIDE, SECTOR, Allocate::Reserve { keep_size: false }).unwrap();
        }
    }
    fs.close().unwrap();
    let fs = device.open(memory);
    let file = fs.open_file("file").unwrap();
    // Caches the blocks that a change needs to read.
    fs.root().create(b"other", 0o644).unwrap();
    (fs, file)
}

const STRIDE: u64 = 2 * SECTOR;

#[test]
fn failed_truncation_loses_nothing() {
    let device = Failing::new(128);
    let (fs, file) = with_many_leaves(&device, 1000, 32 << 20);
    let size = file.len();
    file.write_at(&[7; 4096], SECTOR).unwrap();
    device.allow_reads(0);
    assert_eq!(file.set_len(SECTOR).unwrap_err().errno(), 5);
    device.allow_all_reads();
    assert_eq!(file.len(), size);
    file.sync_all().unwrap();
    drop(file);
    fs.close().unwrap();
    let fs = device.open(32 << 20);
    let found = fs.read("file").unwrap();
    assert!(found[4096..8192] == [7; 4096], "acknowledged, and never cut");
    fs.close().unwrap();
    check(&device.memory);
}

#[test]
fn truncated_data_does_not_reappear_when_a_later_write_fails() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    file.write_at(&[b'!'; 4096], 0).unwrap();
    fs.commit().unwrap();
    file.set_len(1000).unwrap();
    fs.commit().unwrap();
    device.fail_writes(true);
    file.write_at(&[2; 4096], 2 * SECTOR).unwrap();
    assert!(is_unwritten(fs.commit()), "growing writes the last sector again");
    device.fail_writes(false);
    assert!(is_unwritten(file.close()));
    fs.close().unwrap();
    let fs = device.open(32 << 20);
    let expected = [&[b'!'; 1000][..], &[0; 7192], &[2; 4096]].concat();
    assert!(fs.read("file").unwrap() == expected);
    fs.close().unwrap();
    check(&device.memory);
}

#[test]
fn failed_preallocation_leaks_no_space() {
    let device = Failing::new(384);
    let (fs, file) = with_many_leaves(&device, 16_000, 4 << 20);
    let bytes = |file: &File| {
        let extents = file.extents().unwrap();
        let held = extents.iter().filter(|extent| extent.kind != ExtentKind::Hole);
        held.map(|extent| extent.len).sum::<u64>()
    };
    let before = device.reads();
    let transactions = fs.inner.transactions.as_ref().unwrap();
    let usage = || transactions.space().usage(userbtrfs_transaction::SpaceKind::Data);
    let held = bytes(&file);
    let used = usage().allocated;
    // The holes of the whole file are looked up first.
    let looked = device.reads() - before;
    device.allow_reads(looked * 3 / 2);
    let failed = file.allocate(0, file.len(), Allocate::Reserve { keep_size: false });
    assert_eq!(failed.unwrap_err().errno(), 5);
    device.allow_all_reads();
    let more = bytes(&file) - held;
    assert!(more > 0, "it failed before there was any");
    assert_eq!((usage().allocated, usage().reserved), (used + more, 0));
    drop(file);
    fs.close().unwrap();
}

#[test]
fn failed_sync_is_traced_as_failed() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let told = Arc::new(Mutex::new(Class::CacheShard, Vec::new()));
    let heard = Arc::clone(&told);
    fs.trace_syncs(move |record| heard.lock().push(record.how));
    device.fail_writes(true);
    file.write_at(&[b'!'; 4096], 0).unwrap();
    file.sync_all().unwrap_err();
    assert_eq!(*told.lock(), [SyncOutcome::Failed]);
    file.sync_all().unwrap();
    assert_ne!(told.lock()[1], SyncOutcome::Failed);
    device.fail_writes(false);
    file.close().unwrap();
    fs.close().unwrap();
    check(&device.memory);
}

#[test]
fn change_after_abort_fails_and_is_not_written() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.write_at(&[1; 10_000], 0).unwrap();
    lab.fs.commit().unwrap();
    file.write_at(&[2; 10_000], 0).unwrap();
    lab.fs.clone().abandon();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err());
    assert!(file.append(b"x").is_err());
    assert!(file.sync_all().is_err());
    drop(file);
    let Lab { device, memory, fs } = lab;
    drop(fs);
    check(&device);
    let lab = Lab::open(device, memory);
    assert!(lab.fs.read("file").unwrap() == [1; 10_000]);
    lab.close();
}
