//! Cached files on a filesystem in memory: coherent, bounded, and failing only where they must.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;

use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_format::InodeFlags;
use userbtrfs_mkfs::Options;
use userbtrfs_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userbtrfs_sync::{Arc, thread};

use crate::api::{Allocate, File, Filesystem, OpenOptions};
use crate::data::FilePages;
use crate::error::{Error, Result};
use crate::units::{SECTOR, SECTOR_LEN, to_usize};

/// The least memory bound, so that blocks are evicted.
const MEMORY: u64 = 4 << 20;

fn made(options: &Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    userbtrfs_mkfs::make(&*device, options).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>, write: bool) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(write).commit_seconds(0).memory(MEMORY);
    options.open_devices(vec![Arc::clone(device) as Arc<dyn Device>]).unwrap()
}

fn create(fs: &Filesystem, name: &str) -> File {
    fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap()
}

fn pages(file: &File) -> Arc<FilePages> {
    file.inode().inner().files.get(file.inode().id()).unwrap()
}

/// Random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

// Many threads, one file.

/// The sectors of the file that threads share, and the consecutive ones of one writer.
const SECTORS: u64 = 1024;
const STRIPE: u64 = 20;
const WRITERS: u64 = 2;

/// The last change that was started and done in each sector. Every fifth writes zeros.
struct Told {
    started: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    stop: AtomicBool,
}

impl Told {
    fn new() -> Self {
        let none = || (0..SECTORS).map(|_| AtomicU64::new(0)).collect();
        Self { started: none(), done: none(), stop: AtomicBool::new(false) }
    }

    /// Returns the content of a sector after a change.
    fn content(sector: u64, change: u64) -> Vec<u8> {
        let words = if change.is_multiple_of(5) { [0, 0] } else { [sector + 1, change] };
        words.map(u64::to_le_bytes).concat().repeat(SECTOR_LEN / 16)
    }

    /// Changes a few sectors of one of a writer's stripes.
    fn change(&self, file: &File, writer: u64, change: u64, random: &mut Random) {
        let stripes = SECTORS / STRIPE / WRITERS;
        let stripe = (random.below(stripes) * WRITERS + writer) * STRIPE;
        let start = stripe + random.below(STRIPE);
        let end = (start + 1 + random.below(STRIPE)).min(stripe + STRIPE);
        let mark = |list: &[AtomicU64]| {
            (start..end).for_each(|at| list[to_usize(at)].store(change, Ordering::SeqCst));
        };
        mark(&self.started);
        let offset = start * SECTOR;
        let len = (end - start) * SECTOR;
        if change.is_multiple_of(5) {
            file.allocate(offset, len, Allocate::PunchHole).unwrap();
        } else {
            let bytes: Vec<u8> = (start..end).flat_map(|at| Self::content(at, change)).collect();
            file.write_all_at(&bytes, offset).unwrap();
        }
        mark(&self.done);
    }

    /// Reads a few sectors in one of three ways: each has the content after one of the changes that
    /// were in progress meanwhile.
    fn look(&self, file: &File, random: &mut Random) {
        let start = random.below(SECTORS);
        let end = (start + 1 + random.below(80)).min(SECTORS);
        let now = |list: &[AtomicU64]| -> Vec<u64> {
            (start..end).map(|at| list[to_usize(at)].load(Ordering::SeqCst)).collect()
        };
        let least = now(&self.done);
        let bytes = read(file, start * SECTOR..end * SECTOR, random.below(3));
        let most = now(&self.started);
        for (at, sector) in (start..).zip(bytes.chunks_exact(SECTOR_LEN)) {
            let place = to_usize(at - start);
            check(at, sector, least[place]..=most[place]);
        }
    }
}

fn read(file: &File, range: Range<u64>, how: u64) -> Vec<u8> {
    let mut bytes = vec![9; to_usize(range.end - range.start)];
    match how {
        0 => assert_eq!(file.read_at(&mut bytes, range.start).unwrap(), bytes.len()),
        1 => {
            bytes.clear();
            let mut reader = file.reader_of(range.start, range.end);
            while let Some(chunk) = reader.next_chunk().unwrap() {
                assert_eq!(chunk.offset() - range.start, bytes.len() as u64);
                match chunk.bytes() {
                    Some(part) => bytes.extend_from_slice(part),
                    None => bytes.resize(bytes.len() + to_usize(chunk.len()), 0),
                }
            }
        }
        _ => {
            bytes.clear();
            while (bytes.len() as u64) < range.end - range.start {
                let slice = file.slice(range.start + bytes.len() as u64).unwrap().unwrap();
                bytes.extend_from_slice(&slice);
            }
            bytes.truncate(to_usize(range.end - range.start));
        }
    }
    bytes
}

fn check(at: u64, sector: &[u8], changes: std::ops::RangeInclusive<u64>) {
    let least = *changes.start();
    let most = *changes.end();
    let change = u64::from_le_bytes(sector[8..16].try_into().unwrap());
    let change = if sector[0..16] == [0; 16] { most / 5 * 5 } else { change };
    assert!(sector == Told::content(at, change), "sector {at}: is of one change");
    assert!(least <= change, "sector {at}: {change} is older than {least}");
    assert!(change <= most, "sector {at}: {change} is newer than {most}");
}

fn rounds() -> u64 {
    if std::env::var_os("USERBTRFS_TORTURE").is_some() { 40_000 } else { 700 }
}

#[test]
fn many_threads_see_one_file() {
    let fs = open(&made(&Options::default()), true);
    let file = create(&fs, "file");
    file.set_len(SECTORS * SECTOR).unwrap();
    let told = Told::new();
    let file = &file;
    thread::scope(|scope| {
        let told = &told;
        let writers = (0..WRITERS).map(|writer| {
            scope.spawn(move || {
                let mut random = Random(writer);
                (1..rounds()).for_each(|change| told.change(file, writer, change, &mut random));
            })
        });
        let writers: Vec<_> = writers.collect();
        for seed in 10..12 {
            scope.spawn(move || {
                let mut random = Random(seed);
                while !told.stop.load(Ordering::Relaxed) {
                    told.look(file, &mut random);
                }
            });
        }
        scope.spawn(|| {
            while !told.stop.load(Ordering::Relaxed) {
                fs.commit().unwrap();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        told.stop.store(true, Ordering::Relaxed);
        for ended in ended {
            ended.unwrap();
        }
    });
    let mut random = Random(99);
    (0..100).for_each(|_| told.look(file, &mut random));
}

#[test]
fn read_of_missing_data_waits_for_its_writer() {
    let device = made(&Options::default());
    open(&device, true).write("file", [7; 10_000]).unwrap();
    let file = open(&device, true).open_file("file").unwrap();
    let pages = pages(&file);
    let writing = pages.range.lock_exclusive(4096..8192);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(read(&file, 8192..8200, 0), [7; 8]);
            assert_eq!(read(&file, 5000..5001, 0), [7]);
            done.store(true, Ordering::SeqCst);
        });
        thread::sleep(std::time::Duration::from_millis(200));
        assert!(!done.load(Ordering::SeqCst));
        drop(writing);
    });
    assert!(done.load(Ordering::SeqCst));
}

/// A commit that listed the dirty files at that moment once missed one of them.
#[test]
fn list_of_unfinished_files_includes_file_that_is_being_taken() {
    let fs = open(&made(&Options::default()), true);
    let file = create(&fs, "f");
    file.write_all_at(&[1; SECTOR_LEN], 0).unwrap();
    let pages = pages(&file);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100_000 {
                pages.take_dirty(0..u64::MAX, u64::MAX);
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let found = fs.inner.files.unfinished_files();
            assert!(!found.is_empty(), "it is on its way, and not told of");
        }
    });
    fs.abandon();
}

/// Under memory pressure the end of a growing file stays dirty; its age must not change by that.
#[test]
fn rest_of_a_partly_taken_file_keeps_its_age() {
    let fs = open(&made(&Options::default()), true);
    let first = create(&fs, "first");
    let second = create(&fs, "second");
    first.write_all_at(&[1; 2 * SECTOR_LEN], 0).unwrap();
    second.write_all_at(&[1; SECTOR_LEN], 0).unwrap();
    let unfinished = || fs.inner.files.unfinished_files();
    let numbers = || unfinished().iter().map(|it| it.pages.id().number).collect::<Vec<_>>();
    let [one, other] = [&first, &second].map(|file| file.inode().id().number);
    let since = unfinished()[0].since;
    assert_eq!(numbers(), [one, other]);
    thread::sleep(std::time::Duration::from_millis(2));
    pages(&first).take_dirty(0..SECTOR, u64::MAX);
    // It is behind the other file, with its old age.
    assert_eq!((numbers(), unfinished()[1].since), (vec![other, one], since));
    pages(&first).take_dirty(0..u64::MAX, u64::MAX);
    assert!(unfinished()[1].since > since);
    fs.abandon();
}

/// Reads a stream of a file that changes after the stream has started to read it.
fn streamed(flags: InodeFlags, change: impl Fn(&File)) -> Vec<u8> {
    let device = made(&Options::default());
    let fs = open(&device, true);
    let file = create(&fs, "file");
    file.inode().set_flags(flags).unwrap();
    file.write_all_at(&[1; 1000].repeat(1000), 0).unwrap();
    file.close().unwrap();
    fs.close().unwrap();

    let fs = open(&device, true);
    let file = fs.open_file("file").unwrap();
    let mut reader = file.reader();
    reader.prefetch().unwrap();
    change(&file);
    let mut bytes = Vec::new();
    while let Some(chunk) = reader.next_chunk().unwrap() {
        assert_eq!(chunk.offset(), bytes.len() as u64);
        match chunk.bytes() {
            Some(part) => bytes.extend_from_slice(part),
            None => bytes.resize(bytes.len() + to_usize(chunk.len()), 0),
        }
        if bytes.len() < 500_000 {
            change(&file);
        }
    }
    bytes
}

#[test]
fn stream_returns_changes_made_after_prefetch() {
    let in_place = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
    let mut expected = [1; 1000].repeat(1000);
    expected[10_000..300_100].fill(2);
    for flags in [InodeFlags::empty(), in_place] {
        let write = |file: &File| file.write_all_at(&[2; 100].repeat(2901), 10_000).unwrap();
        assert!(streamed(flags, write) == expected, "dirty");
        let written = |file: &File| {
            write(file);
            file.sync_all().unwrap();
        };
        assert!(streamed(flags, written) == expected, "written");
        let written_and_dropped = |file: &File| {
            written(file);
            pages(file).drop_clean();
        };
        assert!(streamed(flags, written_and_dropped) == expected, "written and dropped");
    }
}

#[test]
fn stream_sees_later_truncation_and_holes() {
    let cut = |file: &File| file.set_len(100_000).unwrap();
    assert!(streamed(InodeFlags::empty(), cut) == [1; 1000].repeat(100));
    let punch = |file: &File| file.allocate(50_000, 900_000, Allocate::PunchHole).unwrap();
    let mut expected = [1; 1000].repeat(1000);
    expected[50_000..950_000].fill(0);
    assert!(streamed(InodeFlags::empty(), punch) == expected);
}

// Memory.

fn bytes_in_memory(fs: &Filesystem) -> u64 {
    fs.inner.files.used_bytes()
}

#[test]
fn neither_many_small_files_nor_one_large_one_take_more_than_the_bound() {
    let device = made(&Options::default());
    let fs = open(&device, true);
    for number in 0..2000_u32 {
        fs.write(format!("file {number}"), [7; 3000]).unwrap();
    }
    let large = create(&fs, "large");
    let bound = fs.inner.files.bytes_max();
    for at in 0..200_u8 {
        large.write_all_at(&[at; 8192].repeat(8), u64::from(at) * 65536).unwrap();
        let used = bytes_in_memory(&fs);
        assert!(used <= bound + 131_072, "{used} of {bound} bytes");
    }
    drop(large);
    fs.close().unwrap();

    for write in [false, true] {
        let fs = open(&device, write);
        let bound = fs.inner.files.bytes_max();
        let mut most = 0;
        for number in 0..2000_u32 {
            let mut bytes = [0; 3000];
            let file = fs.open_file(format!("file {number}")).unwrap();
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 3000);
            assert!(bytes.iter().all(|&byte| byte == 7));
            most = most.max(bytes_in_memory(&fs));
        }
        assert!((bound / 2..=bound).contains(&most), "{most} of {bound} bytes");
        assert!(fs.inner.files.len() as u64 <= bound / 4096 + 1, "{} files", fs.inner.files.len());
        let large = fs.open_file("large").unwrap();
        for at in (0..large.len()).step_by(10_000).chain((0..large.len()).step_by(7777)) {
            large.read_at(&mut [0; 5000], at).unwrap();
            assert!(bytes_in_memory(&fs) <= bound, "of {bound} bytes");
        }
    }
}

#[test]
fn held_slice_is_unchanged_and_deleted_file_leaves_memory() {
    let fs = open(&made(&Options::default()), true);
    let file = create(&fs, "file");
    file.write_all_at(&[1; 1000].repeat(200), 0).unwrap();
    let slice = file.slice(50_000).unwrap().unwrap();
    file.write_all_at(&[2; 1000].repeat(200), 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(10).unwrap();
    assert!(slice.iter().all(|&byte| byte == 1));
    assert_eq!(read(&file, 0..10, 0), [2; 10]);
    drop(file);
    fs.root().remove_file(b"file").unwrap();
    assert_eq!(bytes_in_memory(&fs), 0);
}

// Damage.

/// Returns a filesystem with a file whose sector 40 of 100 is damaged on the device.
fn damaged(write: bool) -> Filesystem {
    let device = made(&Options::default());
    let fs = open(&device, true);
    let bytes: Vec<u8> = (0..100).flat_map(|at| Told::content(at, 1)).collect();
    fs.write("file", bytes).unwrap();
    fs.close().unwrap();
    let mut image = device.snapshot();
    let sector = Told::content(40, 1);
    let places = (0..image.len()).step_by(SECTOR_LEN);
    let found: Vec<usize> = places.filter(|at| image[*at..][..SECTOR_LEN] == sector[..]).collect();
    assert_eq!(found.len(), 1);
    image[found[0] + 100] ^= 1;
    open(&Arc::new(MemoryDevice::from_bytes(image)), write)
}

const DAMAGED: u64 = 40 * SECTOR;

fn fails_at(result: &Result<usize, Error>) -> u64 {
    let Err(Error::Data { offset, .. }) = result else { panic!("{result:?}") };
    *offset
}

#[test]
fn read_fails_only_for_damage_in_its_range() {
    for write in [false, true] {
        let file = damaged(write).open_file("file").unwrap();
        let mut bytes = vec![0; 10_000];
        // In order, so that much is read ahead; then across the damage, and behind it.
        for at in (0..DAMAGED - 10_000).step_by(10_000) {
            assert_eq!(file.read_at(&mut bytes, at).unwrap(), 10_000);
        }
        assert_eq!(fails_at(&file.read_at(&mut bytes, DAMAGED - 1)), DAMAGED);
        assert_eq!(fails_at(&file.read_at(&mut bytes[..1], DAMAGED + 4095)), DAMAGED + 4095);
        assert_eq!(file.read_at(&mut bytes, DAMAGED + 4096).unwrap(), 10_000);
        assert_eq!(bytes[..SECTOR_LEN], Told::content(41, 1));
        assert_eq!(fails_at(&file.slice(DAMAGED).map(|_| 0)), DAMAGED);
    }
}

#[test]
fn stream_returns_data_before_damage_then_error_then_end() {
    for write in [false, true] {
        let file = damaged(write).open_file("file").unwrap();
        let mut reader = file.reader();
        let mut given = 0;
        let error = loop {
            match reader.next_chunk() {
                Ok(chunk) => given += chunk.expect("the error comes before the end").len(),
                Err(error) => break error,
            }
        };
        assert_eq!((given, fails_at(&Err(error))), (DAMAGED, DAMAGED));
        assert!(reader.next_chunk().unwrap().is_none());
    }
}

#[test]
fn seek_after_damage_reads_on() {
    let mut reader = damaged(false).open_file("file").unwrap().reader();
    let mut bytes = Vec::new();
    assert!(reader.read_to_end(&mut bytes).is_err());
    assert_eq!(reader.stream_position().unwrap(), DAMAGED);
    assert!(reader.read(&mut [0]).is_err(), "it is no end of the file");
    reader.seek(SeekFrom::Current(4096)).unwrap();
    bytes.clear();
    reader.read_to_end(&mut bytes).unwrap();
    let expected: Vec<u8> = (41..100).flat_map(|at| Told::content(at, 1)).collect();
    assert!(bytes == expected);
}

#[test]
fn sector_written_over_damage_is_readable() {
    let fs = damaged(true);
    let file = fs.open_file("file").unwrap();
    assert_eq!(fails_at(&file.write_at(&[1; 10], DAMAGED)), DAMAGED);
    file.write_all_at(&[1; SECTOR_LEN], DAMAGED).unwrap();
    for how in 0..3 {
        let bytes = read(&file, 0..100 * SECTOR, how);
        assert_eq!(bytes[to_usize(DAMAGED)..][..SECTOR_LEN], [1; SECTOR_LEN]);
        assert_eq!(bytes[99 * SECTOR_LEN..], Told::content(99, 1));
    }
}
